package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pulseloop/pulse"
)

// TestSilenceIsSaid wants a word that a person understands when nobody refuses and nobody answers, and none for who went away.
func TestSilenceIsSaid(t *testing.T) {
	silence := fmt.Errorf("timeout: %w", context.DeadlineExceeded)
	err := explain("read sessions", silence)
	var said *pulse.Error
	if !errors.As(err, &said) || said.Code != pulse.CodeUnavailable || !strings.Contains(said.Message, "database") || said.Hint == "" {
		t.Errorf("a database that does not answer: %v", err)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "read sessions") {
		t.Errorf("the cause is lost: %v", err)
	}
	if err := explain("read sessions", context.Canceled); errors.As(err, &said) && pulse.CodeOf(err) == pulse.CodeUnavailable {
		t.Errorf("who went away is told: %v", err)
	}
}
