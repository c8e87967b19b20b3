package db

import (
	"context"
	"testing"
	"time"
)

// TestAProgramThatIsStoppedGivesItsRowsBack stops in the middle of a transaction, as a program does that gets SIGSTOP, or whose
// machine goes to sleep. What it has locked is somebody else's after a few seconds.
func TestAProgramThatIsStoppedGivesItsRowsBack(t *testing.T) {
	s, _ := openSchema(t)
	_, err := s.reads.ExecContext(t.Context(), "INSERT INTO settings (key, value, updated_at) VALUES ('held', '1', now())")
	must(t, err)
	tx, err := s.reads.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "UPDATE settings SET value = '2' WHERE key = 'held'")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = s.reads.ExecContext(ctx, "UPDATE settings SET value = '3' WHERE key = 'held'")
	must(t, err)
	if tx.Commit() == nil {
		t.Error("the stopped one took effect all the same")
	}
}
