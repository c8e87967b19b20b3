package agenttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"pulseloop/pulse"
)

// judge is a test that notes complaints instead of failing.
type judge struct {
	testing.TB
	complaints int
}

func (j *judge) Helper()               {}
func (j *judge) Error(...any)          { j.complaints++ }
func (j *judge) Errorf(string, ...any) { j.complaints++ }

type bench struct {
	*Queue
	t   *testing.T
	j   *judge
	now time.Time
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, j: &judge{TB: t}, now: time.Unix(1000, 0)}
	b.Queue = New(b.j, func() time.Time { return b.now })
	return b
}

func (b *bench) claim() (pulse.Claim, pulse.Fence) {
	b.t.Helper()
	c, err := b.Claim(b.t.Context(), "d", []string{"project:test"}, time.Second)
	if err != nil {
		b.t.Fatal(err)
	}
	return c, pulse.Fence{TaskID: c.Task.ID, Token: c.Token}
}

func (b *bench) must(err, want error) {
	b.t.Helper()
	if !errors.Is(err, want) {
		b.t.Errorf("got %v, want %v", err, want)
	}
}

// blames checks that the last steps were misuse, or were not.
func (b *bench) blames(n int) {
	b.t.Helper()
	if b.j.complaints != n {
		b.t.Errorf("%d complaints, want %d", b.j.complaints, n)
	}
	b.j.complaints = 0
}

func TestLife(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.Add(pulse.Task{Content: "low"})
	b.Add(pulse.Task{Content: "high", Priority: 1})
	c, f := b.claim()
	if c.Task.Content != "high" || c.Task.Attempt != 1 {
		t.Errorf("claimed %+v", c.Task)
	}
	b.must(b.Release(ctx, f), nil)
	b.must(b.Finish(ctx, f, pulse.TaskResult{Error: "late"}), pulse.ErrFenced)
	c, f = b.claim()
	if c.Task.Content != "high" || c.Task.Attempt != 1 {
		t.Errorf("after the release %+v", c.Task)
	}
	b.must(b.Running(ctx, f), nil)
	b.must(b.Append(ctx, f, pulse.StreamBatch{Turns: []pulse.Turn{{ID: "t", Status: pulse.TurnCompleted}}, Messages: []pulse.TurnMessage{{TurnID: "t", Seq: 1}}}), nil)
	b.must(b.Finish(ctx, f, pulse.TaskResult{FinalText: "x"}), nil)
	b.must(b.Finish(ctx, f, pulse.TaskResult{FinalText: "x"}), nil)
	b.blames(0)
	b.must(b.Finish(ctx, f, pulse.TaskResult{FinalText: "y"}), nil)
	b.blames(1)
	b.claim()
	if _, err := b.Claim(ctx, "d", []string{"project:test"}, time.Second); !errors.Is(err, pulse.ErrNone) {
		t.Errorf("an empty queue gives %v", err)
	}
}

func TestLeases(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.Add(pulse.Task{})
	_, f := b.claim()
	b.must(b.Running(ctx, f), nil)
	b.now = b.now.Add(900 * time.Millisecond)
	if cancelled, err := b.Heartbeat(ctx, f, time.Second); cancelled || err != nil {
		t.Error(cancelled, err)
	}
	b.now = b.now.Add(900 * time.Millisecond)
	if b.Reap() != 0 {
		t.Error("a renewed lease is reaped")
	}
	b.now = b.now.Add(100 * time.Millisecond)
	b.must(b.Append(ctx, f, pulse.StreamBatch{Sign: b.now}), pulse.ErrFenced)
	if b.Reap() != 1 {
		t.Error("an ended lease is not reaped")
	}
	c, g := b.claim()
	if c.Task.Attempt != 2 {
		t.Errorf("attempt %d", c.Task.Attempt)
	}
	b.Cancel(g.TaskID)
	if cancelled, err := b.Heartbeat(ctx, g, time.Second); !cancelled || err != nil {
		t.Error(cancelled, err)
	}
	b.blames(0)
	b.now = b.now.Add(time.Minute)
	b.must(b.Finish(ctx, g, pulse.TaskResult{Error: "x"}), pulse.ErrFenced)
	b.blames(1)
}

func TestMisuse(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.Add(pulse.Task{SessionID: "s"})
	_, f := b.claim()
	for name, batch := range map[string]pulse.StreamBatch{
		"empty":         {},
		"unknown turn":  {Tools: []pulse.TurnTool{{TurnID: "never", Seq: 1}}},
		"gap":           {Deltas: []pulse.StreamDelta{{N: 7, Text: "x"}}},
		"other session": {Events: []pulse.Event{{SessionID: "other"}}},
	} {
		b.must(b.Running(ctx, f), nil)
		b.must(b.Append(ctx, f, batch), nil)
		if b.j.complaints != 1 {
			t.Errorf("%s: %d complaints", name, b.j.complaints)
		}
		b.j.complaints = 0
	}
	b.must(b.Finish(ctx, pulse.Fence{}, pulse.TaskResult{}), pulse.ErrFenced)
	b.blames(1)
}

func TestFault(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.Add(pulse.Task{})
	_, f := b.claim()
	broken := errors.New("broken")
	for _, after := range []bool{false, true} {
		b.SetFault(func(_ context.Context, op Op, done bool) error {
			if op == OpRunning && done == after {
				return broken
			}
			return nil
		})
		b.must(b.Running(ctx, f), broken)
		if took := b.Task(f.TaskID).Status == pulse.TaskRunning; took != after {
			t.Errorf("took effect: %v, want %v", took, after)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	b.SetFault(nil)
	b.must(b.Running(gone, f), context.Canceled)
}
