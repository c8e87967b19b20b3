package loop_test

import (
	"strings"
	"testing"
	"time"

	"pulseloop/loop"
	"pulseloop/loop/looptest"
	"pulseloop/loop/recall"
	"pulseloop/pulse"
)

// running is a session whose task runs, at the first look.
func (w *world) running() pulse.SessionID {
	w.Helper()
	id := w.start()
	w.step()
	w.store.Begin(id)
	w.step()
	return id
}

// pass lets time go by; the Runner looks whenever the session is due.
func (w *world) pass(id pulse.SessionID, d time.Duration) pulse.Iteration {
	w.Helper()
	end := w.now.Add(d)
	for {
		due := w.session(id).DueAt
		if due.IsZero() || due.After(end) {
			break
		}
		if due.After(w.now) {
			w.now = due
		}
		w.step()
		if w.store.Iterations(id)[0].Status == pulse.IterationTimeout {
			return w.store.Iterations(id)[0]
		}
	}
	w.now = end
	return w.store.Iterations(id)[0]
}

func TestHowLongSilenceMayBeDependsOnThePhase(t *testing.T) {
	for phase, c := range map[pulse.Phase]struct {
		limit  time.Duration
		reason string
	}{
		pulse.PhaseStarting:  {5 * time.Minute, "no sign of life from the agent for 5m0s: it has printed nothing since its start"},
		pulse.PhaseThinking:  {5 * time.Minute, "no sign of life from the agent for 5m0s"},
		pulse.PhaseTool:      {30 * time.Minute, "no sign of life from the agent for 30m0s while it ran a tool"},
		pulse.PhasePreparing: {30 * time.Minute, "no sign of life from the agent for 30m0s"},
		pulse.PhaseEnding:    {30 * time.Minute, "no sign of life from the agent for 30m0s"},
	} {
		w := newWorld(t)
		id := w.running()
		w.now = w.now.Add(time.Minute)
		w.store.Sign(id, phase)
		began := w.now
		it := w.pass(id, 2*time.Hour)
		if took := it.EndedAt.Sub(began); it.Status != pulse.IterationTimeout || took != c.limit || it.Error != c.reason {
			t.Errorf("%q: %s after %s: %s", phase, it.Status, took, it.Error)
		}
	}
}

// A tool that is silent and busy for hours gives signs of life; so is the
// iteration of an agent that thinks for hours, and says so.
func TestBusyIsNotSilent(t *testing.T) {
	for _, phase := range []pulse.Phase{pulse.PhaseTool, pulse.PhaseThinking, pulse.PhaseStarting} {
		w := newWorld(t)
		id := w.running()
		for range 4 * 60 / 4 {
			w.store.Sign(id, phase)
			if it := w.pass(id, 4*time.Minute); it.Status != pulse.IterationRunning {
				t.Fatalf("%s: %s: %s", phase, it.Status, it.Error)
			}
		}
	}
}

// The Runner looks seldom while a tool runs. An agent that hangs after it is
// found in time all the same.
func TestHangAfterAToolIsFoundInTime(t *testing.T) {
	w := newWorld(t)
	id := w.running()
	w.store.Sign(id, pulse.PhaseTool)
	w.pass(id, 12*time.Minute)
	w.store.Sign(id, pulse.PhaseThinking)
	began := w.now
	if it := w.pass(id, time.Hour); it.Status != pulse.IterationTimeout || it.EndedAt.Sub(began) != 5*time.Minute {
		t.Errorf("%s after %s", it.Status, it.EndedAt.Sub(began))
	}
}

// A task may wait for long before somebody claims it. That is not silence of
// the agent, which has not begun.
func TestAClaimAfterALongWaitIsNotSilent(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	w.now = w.now.Add(3 * time.Hour)
	w.store.Alter(id, func(t *pulse.Task) { t.Status, t.LeaseUntil = pulse.TaskClaimed, w.now.Add(30*time.Second) })
	if it := w.pass(id, 20*time.Second); it.Status != pulse.IterationDispatched {
		t.Errorf("claimed a moment ago, and %s: %s", it.Status, it.Error)
	}
}

// A task whose lease has ended is taken back, not timed out: its daemon is
// gone, or the machine was asleep.
func TestAnEndedLeaseIsNotSilence(t *testing.T) {
	w := newWorld(t)
	id := w.running()
	w.store.Alter(id, func(t *pulse.Task) { t.LeaseUntil = w.now.Add(30 * time.Second) })
	if it := w.pass(id, time.Hour); it.Status != pulse.IterationRunning {
		t.Errorf("%s: %s", it.Status, it.Error)
	}
}

// The signs are stored by the database's clock; this host's may be an hour
// off.
func TestSilenceIsCountedOnTheClockOfTheSigns(t *testing.T) {
	w := newWorld(t)
	id := w.running()
	stored := w.now.Add(-time.Hour)
	w.store.Alter(id, func(t *pulse.Task) {
		t.StartedAt, t.LastSign, t.ReadAt, t.Phase = stored, stored.Add(time.Minute), stored.Add(2*time.Minute), pulse.PhaseThinking
	})
	w.now = w.session(id).DueAt
	if _, err := w.runner.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if it := w.store.Iterations(id)[0]; it.Status != pulse.IterationRunning {
		t.Errorf("%s: %s", it.Status, it.Error)
	}
	if due := w.session(id).DueAt; !due.Equal(stored.Add(6 * time.Minute)) {
		t.Errorf("looked at again %s after the start", due.Sub(stored))
	}
}

func TestIterationLimitAltogether(t *testing.T) {
	w := newWorld(t)
	cfg := loop.Config{Clock: func() time.Time { return w.now }, MaxIterations: 3, DefaultAgent: "scripted", IterationLimit: time.Hour}
	w.runner = loop.NewRunner(loop.RunnerConfig{Config: cfg, Store: w.store, Reaper: w.store, Words: looptest.Words{},
		Prompts: recall.New(w.store, recall.Config{Clock: cfg.Clock})})
	id := w.running()
	began := w.now
	var it pulse.Iteration
	for range 40 {
		w.store.Sign(id, pulse.PhaseTool)
		if it = w.pass(id, 2*time.Minute); it.Status == pulse.IterationTimeout {
			break
		}
	}
	if it.Status != pulse.IterationTimeout || it.EndedAt.Sub(began) != time.Hour || !strings.Contains(it.Error, "1h0m0s, which is the limit") {
		t.Fatalf("%s after %s: %s", it.Status, it.EndedAt.Sub(began), it.Error)
	}
	// It was no hang: to do the same again needs a person's word.
	if s := w.is(id, pulse.SessionBlocked); len(w.store.Iterations(id)) != 1 || !strings.Contains(s.StatusReason, "limit of an iteration") {
		t.Errorf("%d iterations, %s", len(w.store.Iterations(id)), s.StatusReason)
	}
}
