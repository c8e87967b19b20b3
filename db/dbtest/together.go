package dbtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pulseloop/pulse"
)

func testTogether(t *testing.T, open func(testing.TB) Place) {
	cases(t, open, map[string]func(*fixture){
		"runners, daemons and people at once": everybody,
	})
}

// everybody lets all kinds of writers work on the same few sessions, with
// leases that end under them, until every session is complete. Whatever the
// order: no error but those of control flow (a deadlock would be one), each
// result recorded once, and the books balance.
func everybody(f *fixture) {
	const sessions, iterations = 6, 3
	ids := each(sessions, func(int) pulse.SessionID { return f.addSession().ID })
	ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	done := func() bool {
		counts, err := f.Counts(ctx)
		return err != nil || counts["sessions_complete"] == sessions
	}
	until := func(step func() error) func() error {
		return func() error {
			for !done() {
				if err := step(); err != nil && !is(err, pulse.ErrStale) && !is(err, pulse.ErrFenced) && !is(err, pulse.ErrNone) {
					return err
				}
			}
			return nil
		}
	}
	people := 0
	roles := []func() error{
		until(func() error { return f.runnerStep(ctx, "r1", iterations) }),
		until(func() error { return f.runnerStep(ctx, "r2", iterations) }),
		until(func() error { return f.daemonStep(ctx, "d1") }),
		until(func() error { return f.daemonStep(ctx, "d2") }),
		until(func() error { _, _, err := f.Reap(ctx); return err }),
		until(func() error {
			people++
			f.clock.Advance(time.Second)
			return f.guidance(ctx, ids[people%sessions], people)
		}),
	}
	noErrors(f.t, together(len(roles), func(i int) error { return roles[i]() }))
	for _, id := range ids {
		f.balanced(id, iterations)
	}
}

// runnerStep does one step as the loop does, on the least of rules.
func (f *fixture) runnerStep(ctx context.Context, token string, iterations int) error {
	s, _, err := f.Take(ctx, token, lease)
	if err != nil {
		return err
	}
	now := f.clock.Now()
	g := pulse.Guard{SessionID: s.ID, Version: s.Version, StepToken: token}
	s.StepToken, s.DueAt = "", now.Add(time.Hour)
	event := pulse.Event{SessionID: s.ID, Type: pulse.EventSessionChanged}
	it, task, err := f.CurrentIteration(ctx, s.ID)
	switch {
	case is(err, pulse.ErrNone), err == nil && it.Status == pulse.IterationComplete:
		if s.CurrentIteration == iterations {
			s.Status, s.DueAt = pulse.SessionComplete, time.Time{}
			return f.Apply(ctx, g, pulse.Change{Session: &s, Events: []pulse.Event{event}})
		}
		s.Status, s.CurrentIteration = pulse.SessionRunning, s.CurrentIteration+1
		next := pulse.Task{ID: pulse.TaskID(f.id()), Kind: pulse.TaskIterate, Route: "r", SessionID: s.ID, MaxAttempts: 1000, CreatedAt: now}
		it = pulse.Iteration{ID: pulse.IterationID(f.id()), SessionID: s.ID, Number: s.CurrentIteration, Attempt: 1, Run: 1, TaskID: next.ID, Status: pulse.IterationDispatched}
		next.IterationID = it.ID
		return f.Apply(ctx, g, pulse.Change{Session: &s, Iterations: []pulse.Iteration{it}, Tasks: []pulse.Task{next}, Events: []pulse.Event{event}})
	case err != nil:
		return err
	case task.Status == pulse.TaskComplete:
		it.Status, s.DueAt, s.TotalCommits = pulse.IterationComplete, now, s.TotalCommits+1
		return f.Apply(ctx, g, pulse.Change{Session: &s, Iterations: []pulse.Iteration{it}, Events: []pulse.Event{event},
			Notices: []pulse.Notice{{Address: chat, Slot: "it:" + string(it.ID), Kind: pulse.NoticeInfo, SessionID: s.ID, Message: pulse.Text("done")}}})
	}
	return f.Apply(ctx, g, pulse.Change{Session: &s})
}

func (f *fixture) daemonStep(ctx context.Context, daemon pulse.DaemonID) error {
	c, err := f.Claim(ctx, daemon, []string{"r", "x"}, lease)
	if err != nil {
		return err
	}
	fence := pulse.Fence{TaskID: c.Task.ID, Token: c.Token}
	turn := pulse.Turn{ID: pulse.TurnID(f.id()), Role: pulse.TurnAssistant, Status: pulse.TurnStreaming}
	for _, step := range []func() error{
		func() error { return f.Running(ctx, fence) },
		func() error {
			return f.Append(ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{turn}, Messages: []pulse.TurnMessage{{TurnID: turn.ID, Seq: 1, Text: "work"}},
				Events: []pulse.Event{{Type: pulse.EventTurnStarted}}, Deltas: []pulse.StreamDelta{{N: 1, TurnID: turn.ID, Text: "w"}}, Sign: f.clock.Now()})
		},
		func() error { _, err := f.Heartbeat(ctx, fence, lease); return err },
		func() error {
			if c.Task.Attempt == 1 && turn.ID[35] < '4' {
				return f.Release(ctx, fence)
			}
			return f.Finish(ctx, fence, pulse.TaskResult{FinalText: string(daemon), TurnID: turn.ID})
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// guidance is what a person says meanwhile.
func (f *fixture) guidance(ctx context.Context, id pulse.SessionID, n int) error {
	s, err := f.Session(ctx, id)
	if err != nil || s.Status == pulse.SessionComplete {
		return err
	}
	turn := pulse.Turn{ID: pulse.TurnID(f.id()), SessionID: id, ProjectID: f.project.ID, Role: pulse.TurnUser, Status: pulse.TurnCompleted}
	s.Inputs = append(s.Inputs, pulse.Input{Kind: pulse.InputGuidance, Text: label(n)})
	return f.Apply(ctx, pulse.Guard{SessionID: id, Version: s.Version}, pulse.Change{Session: &s, Events: []pulse.Event{{SessionID: id, Type: pulse.EventSessionChanged}},
		Turns: []pulse.TurnDetail{{Turn: turn, Messages: []pulse.TurnMessage{{TurnID: turn.ID, Seq: 1, Text: label(n)}}}},
		Audit: []pulse.AuditEntry{{Action: "say", Subject: string(id)}}})
}

func (f *fixture) balanced(id pulse.SessionID, iterations int) {
	f.t.Helper()
	s := f.session(id)
	its, err := f.Iterations(f.ctx, id)
	mustBe(f.t, err, nil, "iterations")
	equal(f.t, len(its), iterations, "iterations")
	equal(f.t, s.TotalCommits, int64(iterations), "results recorded")
	for _, it := range its {
		equal(f.t, it.Status, pulse.IterationComplete, fmt.Sprintf("iteration %d", it.Number))
	}
	events, err := f.Events(f.ctx, id, 0, 1_000_000)
	mustBe(f.t, err, nil, "events")
	equal(f.t, int64(len(events)), s.EventSeq, "events")
	for i, e := range events {
		equal(f.t, e.Seq, int64(i+1), "number")
	}
	if _, err := f.VerifyAudit(f.ctx); err != nil {
		f.t.Fatalf("verify audit: %v", err)
	}
}
