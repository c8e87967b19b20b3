package loop_test

import (
	"context"
	"testing"
	"time"

	"pulseloop/loop"
	"pulseloop/loop/looptest"
	"pulseloop/loop/recall"
	"pulseloop/pulse"
)

// flaky is a store whose database goes away during a write, with or without the effect, and comes back a few looks later.
type flaky struct {
	*looptest.Store
	effect bool
	away   int // calls that still fail
	failed bool
}

func (f *flaky) Apply(ctx context.Context, g pulse.Guard, c pulse.Change) error {
	if !f.failed {
		f.failed = true
		if f.effect {
			if err := f.Store.Apply(ctx, g, c); err != nil {
				return err
			}
		}
		return &pulse.Error{Code: pulse.CodeUnavailable, Message: "the database is away"}
	}
	return f.Store.Apply(ctx, g, c)
}

func (f *flaky) Session(ctx context.Context, id pulse.SessionID) (pulse.Session, error) {
	if f.failed && f.away > 0 {
		f.away--
		return pulse.Session{}, &pulse.Error{Code: pulse.CodeUnavailable, Message: "the database is away"}
	}
	return f.Store.Session(ctx, id)
}

// TestDatabaseGoesAwayDuringAStep wants the step done as soon as the database is back, once, and not after the hold has ended.
func TestDatabaseGoesAwayDuringAStep(t *testing.T) {
	for name, effect := range map[string]bool{"before the commit": false, "with the answer": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.start()
			f := &flaky{Store: w.store, effect: effect, away: 2}
			clock := loop.Config{Clock: func() time.Time { return w.now }}
			runner := loop.NewRunner(loop.RunnerConfig{Config: clock, Store: f, Reaper: w.store, Words: looptest.Words{}, Prompts: recall.New(w.store, recall.Config{Clock: clock.Clock})})
			if did, err := runner.RunOnce(t.Context()); !did || err != nil {
				t.Fatalf("did %v: %v", did, err)
			}
			if n := len(w.store.Iterations(id)); n != 1 || f.away != 0 {
				t.Errorf("%d iterations were sent out, want one; %d looks were left", n, f.away)
			}
			if s := w.session(id); s.StepToken != "" {
				t.Error("the session is still held")
			}
		})
	}
}
