package db_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pulseloop/db"
	"pulseloop/db/dbtest"
	"pulseloop/pulse"
)

// monitoring is the protocol's own query, word for word: people run it.
const monitoring = `SELECT s.id, s.current_iteration, s.max_iterations, s.status, s.last_signal,
i.signal, i.output_summary, i.commit_hash
FROM pulse_sessions s
LEFT JOIN pulse_iterations i ON i.session_id = s.id
WHERE s.status = 'running'
ORDER BY i.iteration_number DESC;`

func TestMonitoringSQLRunsAsWritten(t *testing.T) {
	place := dbtest.NewPostgres(t)
	s := place.Open(t, nil)
	check(t, second(s.Migrate(t.Context())))
	now := time.Now()
	session := pulse.Session{ID: pulse.SessionID(pulse.NewUUID(now)), ProjectName: "my-app", Goal: "g", Status: pulse.SessionRunning, Run: 1,
		MaxIterations: 10, CurrentIteration: 2, LastSignal: pulse.SignalContinue, CreatedBy: pulse.OriginCLI,
		ProgressLog: []pulse.ProgressEntry{{Iteration: 1, Summary: "built"}}}
	its := []pulse.Iteration{
		{ID: pulse.IterationID(pulse.NewUUID(now)), SessionID: session.ID, Number: 1, Attempt: 1, Run: 1, Status: pulse.IterationComplete, Signal: pulse.SignalContinue, OutputSummary: "built", CommitHash: "abc"},
		{ID: pulse.IterationID(pulse.NewUUID(now)), SessionID: session.ID, Number: 2, Attempt: 1, Run: 1, Status: pulse.IterationRunning},
	}
	check(t, s.Apply(t.Context(), pulse.Guard{}, pulse.Change{NewSession: &session, Iterations: its}))
	raw := place.Raw(t)
	rows, err := raw.Query(monitoring)
	check(t, err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var id, status string
		var current, maximum int
		var last, signal, summary, commit *string
		check(t, rows.Scan(&id, &current, &maximum, &status, &last, &signal, &summary, &commit))
		if id != string(session.ID) || current != 2 || maximum != 10 || status != "running" || *last != "CONTINUE" {
			t.Errorf("session: %s %d %d %s", id, current, maximum, status)
		}
		got = append(got, *summary)
		if (signal == nil) != (*summary == "") || (commit == nil) != (*summary == "") {
			t.Errorf("an iteration that runs has a signal or a commit: %v %v", signal, commit)
		}
	}
	check(t, rows.Err())
	if len(got) != 2 || got[0] != "" || got[1] != "built" {
		t.Errorf("iterations, newest first: %q", got)
	}
	var log string
	check(t, raw.QueryRow("SELECT progress_log->0->>'summary' FROM pulse_sessions WHERE id = '"+string(session.ID)+"'").Scan(&log))
	if log != "built" {
		t.Errorf("progress_log: %q", log)
	}
}

func second[T any](_ T, err error) error { return err }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestColumnsHaveTheProtocolsNamesAndTypes(t *testing.T) {
	place := dbtest.NewPostgres(t)
	s := place.Open(t, nil)
	check(t, second(s.Migrate(t.Context())))
	for table, columns := range map[string]string{
		"pulse_sessions": "id uuid, project_name text, goal text, max_iterations integer, current_iteration integer, status text, last_signal text," +
			" progress_log jsonb, anchor_turn_id text, branch_name text, created_by text, total_commits bigint, total_tokens_used bigint",
		"pulse_iterations": "id uuid, session_id uuid, iteration_number integer, inbox_task_id uuid, task_content text, status text, signal text," +
			" output_summary text, output_full text, commit_hash text, files_changed ARRAY, anchor_turn_id text, anchor_strategy text, anchor_hint_next text," +
			" context_tokens integer, slice_id text, anchor_resolution_ms double precision, salience double precision, depth integer",
		"inbox_tasks": "id uuid, source text, media_context jsonb",
	} {
		have := map[string]string{}
		rows, err := place.Raw(t).Query("SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1", table)
		check(t, err)
		for rows.Next() {
			var name, kind string
			check(t, rows.Scan(&name, &kind))
			have[name] = kind
		}
		check(t, rows.Err())
		for column := range strings.SplitSeq(columns, ", ") {
			name, kind, _ := strings.Cut(strings.TrimSpace(column), " ")
			if have[name] != kind {
				t.Errorf("%s.%s is %q, want %s", table, name, have[name], kind)
			}
		}
	}
}

func await(t *testing.T, wakes <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-wakes:
	case <-time.After(15 * time.Second):
		t.Fatalf("no wake-up: %s", what)
	}
}

// untilWoken repeats what wakes: the listener may not be connected yet.
func untilWoken(t *testing.T, wakes <-chan struct{}, do func(n int)) {
	t.Helper()
	deadline := time.After(15 * time.Second)
	for n := 0; ; n++ {
		do(n)
		select {
		case <-wakes:
			return
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.Fatal("no wake-up, however often")
		}
	}
}

func drain(ch <-chan struct{}) {
	for {
		select {
		case <-ch:
		default:
			return
		}
	}
}

// say commits something that wakes a topic.
func say(t *testing.T, s *db.Store, slot string) {
	t.Helper()
	check(t, s.Apply(t.Context(), pulse.Guard{}, pulse.Change{Notices: []pulse.Notice{{Address: pulse.Address{Platform: "console", Chat: "1"},
		Slot: slot, Kind: pulse.NoticeInfo, Message: pulse.Text("x")}}}))
}

func TestWakeUpsReachOtherProcesses(t *testing.T) {
	place := dbtest.NewPostgres(t)
	a := place.Open(t, nil)
	check(t, second(a.Migrate(t.Context())))
	b := place.Open(t, nil)
	wakes, stop := b.Wakes(pulse.TopicNotices)
	defer stop()
	quiet, stopQuiet := b.Wakes(pulse.TopicInbound)
	defer stopQuiet()
	// Twice, because the first may be the listener's own greeting to all.
	for _, slot := range []string{"hello", "hello again"} {
		untilWoken(t, wakes, func(n int) { say(t, a, fmt.Sprint(slot, n)) })
	}
	drain(wakes)
	drain(quiet)
	for _, slot := range []string{"one", "two", "three"} {
		say(t, a, slot)
		await(t, wakes, slot)
	}
	if len(quiet) != 0 {
		t.Error("a topic nobody spoke about was woken")
	}

	// The server ends every connection of b: wake-ups come back by themselves.
	place.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE 'LISTEN%' AND datname = current_database()")
	await(t, wakes, "the one after connecting again")
	drain(wakes)
	say(t, a, "four")
	await(t, wakes, "after connecting again")
}

func TestTheStoreSurvivesLostConnections(t *testing.T) {
	place := dbtest.NewPostgres(t)
	s := place.Open(t, nil)
	check(t, second(s.Migrate(t.Context())))
	check(t, s.SaveSetting(t.Context(), "a", "b"))
	place.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'pulse' AND datname = current_database()")
	deadline := time.Now().Add(15 * time.Second)
	for {
		_, err := s.Setting(t.Context(), "a")
		_, claimErr := s.Claim(t.Context(), "d", []string{"r"}, time.Second)
		if err == nil && errors.Is(claimErr, pulse.ErrNone) {
			return
		}
		for _, e := range []error{err, claimErr} {
			if e != nil && !errors.Is(e, pulse.ErrNone) && pulse.CodeOf(e) != pulse.CodeUnavailable {
				t.Fatalf("a lost connection reads as: %v", e)
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("still no connection: %v, %v", err, claimErr)
		}
	}
}

func TestLeasesAreOfTheDatabasesClock(t *testing.T) {
	place := dbtest.NewPostgres(t)
	s := place.Open(t, nil)
	check(t, second(s.Migrate(t.Context())))
	now := time.Now()
	check(t, s.Apply(t.Context(), pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{{ID: pulse.TaskID(pulse.NewUUID(now)), Kind: pulse.TaskIterate, Route: "r", MaxAttempts: 3}}}))
	c, err := s.Claim(t.Context(), "d", []string{"r"}, 40*time.Millisecond)
	check(t, err)
	fence := pulse.Fence{TaskID: c.Task.ID, Token: c.Token}
	deadline := time.Now().Add(15 * time.Second)
	for n := 0; n == 0; {
		if n, _, err = s.Reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the lease does not end")
		}
	}
	if err := s.Finish(t.Context(), fence, pulse.TaskResult{}); !errors.Is(err, pulse.ErrFenced) {
		t.Fatalf("finish after the lease: %v", err)
	}
	c, err = s.Claim(t.Context(), "d", []string{"r"}, time.Minute)
	check(t, err)
	if left := time.Until(c.Task.LeaseUntil); left < 50*time.Second || left > 70*time.Second {
		t.Errorf("lease ends in %s", left)
	}
}

func TestBadAddressesAreNamed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := db.Open(ctx, db.Config{URL: "postgres://user:hidden-word@127.0.0.1:1/none?sslmode=disable"})
	if pulse.CodeOf(err) != pulse.CodeUnavailable || strings.Contains(err.Error(), "hidden-word") {
		t.Errorf("nobody listens: %v", err)
	}
	_, err = db.Open(ctx, db.Config{URL: "postgres://user:hidden-word@[broken/none"})
	if pulse.CodeOf(err) != pulse.CodeInvalid || strings.Contains(err.Error(), "hidden-word") {
		t.Errorf("a broken URL: %v", err)
	}
}
