package db_test

import (
	"testing"
	"time"

	"pulseloop/db"
	"pulseloop/db/dbtest"
	"pulseloop/pulse"
)

// TestSavedCommitsArePutOnRecordOnce: what a killed attempt of an aborted session had saved counts once, for the session and its last
// iteration alike; a session that goes on counts by itself.
func TestSavedCommitsArePutOnRecordOnce(t *testing.T) {
	for name, open := range map[string]func(testing.TB) dbtest.Place{"sqlite": dbtest.NewSQLite, "postgres": dbtest.NewPostgres} {
		t.Run(name, func(t *testing.T) {
			s := open(t).Open(t, nil)
			check(t, second(s.Migrate(t.Context())))
			session, claim := claimed(t, s)
			it := pulse.Iteration{ID: pulse.IterationID(pulse.NewUUID(time.Now())), SessionID: session.ID, Number: 1, Attempt: 1, Run: 1, TaskID: claim.Task.ID,
				TaskContent: "p", Status: pulse.IterationFailed, Commits: 1, CommitHash: "aaa"}
			check(t, s.Apply(t.Context(), pulse.Guard{}, pulse.Change{Iterations: []pulse.Iteration{it}}))
			reconcile := func(from, to string, n int, want bool) {
				t.Helper()
				if done, err := s.Reconcile(t.Context(), session.ID, from, to, n); err != nil || done != want {
					t.Errorf("from %q to %q: %v, %v", from, to, done, err)
				}
			}
			reconcile("", "bbb", 2, false) // it runs
			end(t, s, session.ID)
			reconcile("ccc", "bbb", 2, false) // its record is elsewhere
			reconcile("", "bbb", 2, true)
			reconcile("", "bbb", 2, false)
			reconcile("bbb", "bbb", 2, false)
			reconcile("bbb", "ddd", 1, true)
			got, err := s.Session(t.Context(), session.ID)
			check(t, err)
			all, err := s.Iterations(t.Context(), session.ID)
			check(t, err)
			if got.TotalCommits != 3 || got.HeadCommit != "ddd" || len(all) != 1 || all[0].Commits != 4 || all[0].CommitHash != "ddd" {
				t.Errorf("on record: %d commits up to %s; iterations %+v", got.TotalCommits, got.HeadCommit, all)
			}
		})
	}
}

// end aborts a session.
func end(t *testing.T, s *db.Store, id pulse.SessionID) {
	t.Helper()
	got, err := s.Session(t.Context(), id)
	check(t, err)
	got.Status, got.EndedAt = pulse.SessionAborted, time.Now()
	check(t, s.Apply(t.Context(), pulse.Guard{SessionID: id, Version: got.Version}, pulse.Change{Session: &got}))
}
