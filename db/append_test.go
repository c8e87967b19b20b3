package db

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"pulseloop/pulse"
)

// TestABatchThatComesAgainIsStoredOnce loses the answer to a batch that was committed; the daemon sends it again, together with what has
// gathered since.
func TestABatchThatComesAgainIsStoredOnce(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *Store{
		"sqlite": func(t *testing.T) *Store {
			s := openAt(t, filepath.Join(t.TempDir(), "pulse.db"))
			must(t, second(s.Migrate(t.Context())))
			return s
		},
		"postgres": func(t *testing.T) *Store { s, _ := openSchema(t); return s },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			now := time.Now().UTC()
			session := pulse.Session{ID: pulse.SessionID(pulse.NewUUID(now)), ProjectName: "p", Goal: "g", Status: pulse.SessionRunning, Run: 1, MaxIterations: 10, CreatedBy: pulse.OriginCLI}
			task := pulse.Task{ID: pulse.TaskID(pulse.NewUUID(now)), Kind: pulse.TaskIterate, Route: "r", SessionID: session.ID, MaxAttempts: 3}
			must(t, s.Apply(t.Context(), pulse.Guard{}, pulse.Change{NewSession: &session, Tasks: []pulse.Task{task}}))
			c, err := s.Claim(t.Context(), "d", []string{"r"}, time.Minute)
			must(t, err)
			fence := pulse.Fence{TaskID: c.Task.ID, Token: c.Token}
			turn := pulse.Turn{ID: pulse.TurnID(pulse.NewUUID(now)), SessionID: session.ID, Role: pulse.TurnAssistant, Status: pulse.TurnStreaming, CreatedAt: now}
			said := func(typ pulse.EventType, call string, at time.Time) pulse.Event {
				return pulse.Event{SessionID: session.ID, Type: typ, TurnID: turn.ID, At: at, Data: map[string]any{"callId": call, "durationMs": int64(1234), "odd": "a\x00b\xff<"}}
			}
			batch := pulse.StreamBatch{Turns: []pulse.Turn{turn}, Events: []pulse.Event{said(pulse.EventToolStarted, "1", now.Add(time.Nanosecond)), said(pulse.EventToolCompleted, "1", now)},
				Messages: []pulse.TurnMessage{{TurnID: turn.ID, Seq: 1, Text: "hello", At: now}}}
			must(t, s.Append(t.Context(), fence, batch))
			s.doubts.settle(fence.Token, errors.New("the connection is gone, and the answer with it"))
			more := batch
			more.Events = append(append([]pulse.Event{}, batch.Events...), said(pulse.EventToolStarted, "2", now), said(pulse.EventToolStarted, "1", now.Add(time.Millisecond)))
			must(t, s.Append(t.Context(), fence, more))
			got, err := s.Events(t.Context(), session.ID, 0, 100)
			must(t, err)
			var calls []string
			for i, e := range got {
				if e.Seq != int64(i+1) {
					t.Errorf("event %d has the number %d", i, e.Seq)
				}
				calls = append(calls, string(e.Type)+e.Data["callId"].(string))
			}
			if len(calls) != 4 {
				t.Errorf("stored: %q, want two of the first batch and two of the second", calls)
			}
			if s.doubts.about(fence.Token) {
				t.Error("the doubt outlives the answer")
			}
			must(t, s.Append(t.Context(), fence, pulse.StreamBatch{Events: []pulse.Event{said(pulse.EventToolStarted, "2", now)}}))
			if got, err = s.Events(t.Context(), session.ID, 0, 100); err != nil || len(got) != 5 {
				t.Errorf("%d events, %v: without a doubt nothing is left out", len(got), err)
			}
		})
	}
}

// TestWhatIsDoubtful: an answer that never came leaves a doubt, one that says no does not.
func TestWhatIsDoubtful(t *testing.T) {
	var d doubts
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {pulse.ErrFenced, false}, {pulse.Invalid("bad", ""), false}, {context.DeadlineExceeded, true},
		{&pulse.Error{Code: pulse.CodeUnavailable, Message: "the database cannot be reached"}, true}, {errors.New("anything else"), true},
	} {
		d.settle("claim", c.err)
		if got := d.about("claim"); got != c.want {
			t.Errorf("after %v a doubt: %v, want %v", c.err, got, c.want)
		}
		d.settle("claim", nil)
	}
	d.settle("old", context.Canceled)
	d.claims["old"] = time.Now().Add(-2 * doubtFor)
	d.settle("new", context.Canceled)
	if d.about("old") || !d.about("new") {
		t.Error("claims that write no more are remembered for ever")
	}
}
