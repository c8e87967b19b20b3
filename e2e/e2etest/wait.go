package e2etest

import (
	"context"
	"testing"
	"time"
)

// Patience bounds every wait. What a test waits for takes well under a second; the rest is for busy machines.
const Patience = 60 * time.Second

// pollEvery is how often a state is looked at that nobody announces.
const pollEvery = 15 * time.Millisecond

// Context ends with the test's patience.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Await returns when ok holds; what names it for the failure.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !within(Patience, ok) {
		t.Fatalf("waited %s in vain: %s", Patience, what)
	}
}

// within polls until ok holds or the time is over.
func within(limit time.Duration, ok func() bool) bool {
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok() {
			return true
		}
		select {
		case <-tick.C:
		case <-end.C:
			return ok()
		}
	}
}
