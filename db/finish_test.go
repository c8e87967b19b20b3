package db_test

import (
	"errors"
	"testing"
	"time"

	"pulseloop/db"
	"pulseloop/db/dbtest"
	"pulseloop/pulse"
)

// A decision that takes the task away while its result is on the way in: the
// result must not count, and must not have touched the session either.
func TestAResultThatWaitedForADecisionLeavesNoTrace(t *testing.T) {
	place := dbtest.NewPostgres(t)
	s := place.Open(t, nil)
	check(t, second(s.Migrate(t.Context())))
	session, claim := claimed(t, s)

	raw := place.Raw(t)
	decision, err := raw.Begin()
	check(t, err)
	for _, sql := range []string{"UPDATE pulse_sessions SET status = 'aborted', due_at = NULL, version = 41 WHERE id = $1",
		"UPDATE inbox_tasks SET status = 'cancelled' WHERE session_id = $1"} {
		_, err := decision.Exec(sql, string(session.ID))
		check(t, err)
	}
	answer := make(chan error, 1)
	go func() {
		answer <- s.Finish(t.Context(), pulse.Fence{TaskID: claim.Task.ID, Token: claim.Token}, pulse.TaskResult{FinalText: "done"})
	}()
	waits := time.Now().Add(15 * time.Second)
	for blocked := 0; blocked == 0; {
		check(t, raw.QueryRow("SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.query LIKE '%stirred%'").Scan(&blocked))
		if time.Now().After(waits) {
			t.Fatal("the result does not wait for the session's row, so it locks the task first")
		}
	}
	check(t, decision.Commit())
	if err := <-answer; !errors.Is(err, pulse.ErrFenced) {
		t.Errorf("a result of a cancelled task was answered with %v", err)
	}
	var version int
	var due *time.Time
	check(t, raw.QueryRow("SELECT version, due_at FROM pulse_sessions WHERE id = $1", string(session.ID)).Scan(&version, &due))
	if version != 41 || due != nil {
		t.Errorf("the session is at version %d, due %v", version, due)
	}
}

// Results that go together do not wait for a session that somebody decides
// on, and that one's own result is stored when the decision is made.
func TestAResultWaitsForNoOtherSession(t *testing.T) {
	place := dbtest.NewPostgres(t)
	s := place.Open(t, nil)
	check(t, second(s.Migrate(t.Context())))
	held, heldClaim := claimed(t, s)
	_, free := claimed(t, s)
	raw := place.Raw(t)
	decision, err := raw.Begin()
	check(t, err)
	_, err = decision.Exec("SELECT 1 FROM pulse_sessions WHERE id = $1 FOR UPDATE", string(held.ID))
	check(t, err)
	answers := make(chan []error, 1)
	go func() {
		var both []db.Finished
		for _, c := range []pulse.Claim{heldClaim, free} {
			both = append(both, db.Finished{Fence: pulse.Fence{TaskID: c.Task.ID, Token: c.Token}, Result: pulse.TaskResult{FinalText: "done"}})
		}
		answers <- s.FinishMany(t.Context(), both)
	}()
	status := func(c pulse.Claim) (status string) {
		check(t, raw.QueryRow("SELECT status FROM inbox_tasks WHERE id = $1", string(c.Task.ID)).Scan(&status))
		return status
	}
	for until := time.Now().Add(15 * time.Second); status(free) != "complete"; {
		if time.Now().After(until) {
			t.Fatal("a result waits for a session that is not its own")
		}
	}
	if got := status(heldClaim); got != "claimed" {
		t.Errorf("the task of the session that is held is %s", got)
	}
	check(t, decision.Commit())
	for _, err := range <-answers {
		check(t, err)
	}
	if got := status(heldClaim); got != "complete" {
		t.Errorf("after the decision its task is %s", got)
	}
}

func claimed(t *testing.T, s *db.Store) (pulse.Session, pulse.Claim) {
	t.Helper()
	now := time.Now()
	session := pulse.Session{ID: pulse.SessionID(pulse.NewUUID(now)), ProjectName: "my-app", Goal: "g", Status: pulse.SessionRunning, Run: 1, MaxIterations: 10, CreatedBy: pulse.OriginCLI}
	task := pulse.Task{ID: pulse.TaskID(pulse.NewUUID(now)), Kind: pulse.TaskIterate, Route: "r", SessionID: session.ID, MaxAttempts: 3}
	check(t, s.Apply(t.Context(), pulse.Guard{}, pulse.Change{NewSession: &session, Tasks: []pulse.Task{task}}))
	claim, err := s.Claim(t.Context(), "d", []string{"r"}, time.Minute)
	check(t, err)
	return session, claim
}
