package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pulseloop/agent"
	"pulseloop/agent/agenttest"
	"pulseloop/agent/cli"
	"pulseloop/pulse"
)

// stubborn ignores every signal that can be ignored, and so does the child it
// starts in a session of its own.
const stubborn = `trap '' INT TERM HUP; setsid sh -c 'trap "" INT TERM HUP; echo $$ >grandchild; while :; do sleep 1; done' & echo $$ >pid; while :; do sleep 1; done`

func (w *world) dead(when string) {
	w.t.Helper()
	for _, who := range []string{"pid", "grandchild"} {
		if w.alive(who) {
			w.t.Errorf("%s: the %s lives", when, who)
		}
	}
}

func TestCancelEndsTheAgentAndStoresNothingMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stubborn)
	watch := &watcher{}
	w.cfg.Observers = func(t pulse.Task) agent.ProgressObserver {
		if t.Content == "" {
			return nil // the next task's
		}
		return watch
	}
	task := w.add()
	w.start()
	w.file("grandchild")
	w.shell.Change("echo done next")
	w.queue.Cancel(task.ID)
	// The session's next task must not begin while the agent of the first is
	// being ended in the same tree.
	w.trees.onEnsure(func(context.Context) error { w.dead("when the next task begins"); return nil })
	next := w.queue.Add(pulse.Task{SessionID: task.SessionID, Spec: pulse.TaskSpec{Agent: "shell"}})
	w.over(next)
	w.end()
	task = w.queue.Task(task.ID)
	if task.Status != pulse.TaskCancelled || task.Result != nil || len(w.trees.saved()) != 1 || w.queue.Calls(agenttest.OpRelease) != 0 || w.queue.Calls(agenttest.OpFinish) != 1 {
		t.Errorf("task %+v, saved %+v", task, w.trees.saved())
	}
	if got := strings.Join(watch.calls, "; "); !strings.Contains(got, "done failure -1 the task was cancelled; end 0 1 0 0") {
		t.Errorf("observed %s", got)
	}
}

func TestCancelAfterSilenceIsSeenAsTimeout(t *testing.T) {
	w := newWorld(t, "echo $$ >pid; exec sleep 600")
	watch := &watcher{}
	w.cfg.Observers = func(pulse.Task) agent.ProgressObserver { return watch }
	task := w.queue.Add(pulse.Task{Spec: pulse.TaskSpec{Agent: "shell", SilenceLimit: time.Nanosecond}})
	w.start()
	w.file("pid")
	w.queue.Cancel(task.ID)
	w.queue.Await(task.ID, "the end of the heartbeats", func(pulse.Task, pulse.StreamBatch) bool { return !w.alive("pid") })
	w.end()
	if got := strings.Join(watch.calls, "; "); !strings.Contains(got, "done timeout") || !strings.HasSuffix(got, "end 0 0 0 1") {
		t.Errorf("observed %s", got)
	}
}

func TestLostClaimWritesNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stubborn, func(c *agent.Config) { c.Slots = 1 })
	task := w.add()
	w.start()
	w.file("grandchild")
	w.shell.Change("echo done second") // for whoever claims it next, this daemon included
	w.queue.Steal(task.ID)
	task, _ = w.over(task)
	w.dead("when the successor is done")
	if task.Result.FinalText != "second" || task.Attempt != 2 || len(w.trees.saved()) != 1 || w.queue.Calls(agenttest.OpFinish) != 1 || w.queue.Calls(agenttest.OpRelease) != 0 {
		t.Errorf("task %+v", task)
	}
}

// A claim that is refused while the agent speaks ends the run at once, not at
// the next heartbeat.
func TestFencedAppendEndsTheRun(t *testing.T) {
	w := newWorld(t, `echo $$ >pid; while :; do echo say on; sleep 0.02; done`, func(c *agent.Config) { c.Lease, c.Slots = time.Hour, 1 })
	var once sync.Once
	w.queue.SetFault(func(_ context.Context, op agenttest.Op, done bool) (err error) {
		if op == agenttest.OpAppend && !done {
			once.Do(func() {
				w.file("pid")
				w.shell.Change("echo done next")
				err = pulse.ErrFenced
			})
		}
		return err
	})
	first := w.add()
	w.start()
	second := w.add()
	w.over(second)
	if w.alive("pid") || w.queue.Task(first.ID).Status != pulse.TaskRunning || w.queue.Calls(agenttest.OpFinish) != 1 {
		t.Errorf("first task %+v", w.queue.Task(first.ID))
	}
}

func TestAgentIsDeadBeforeTheLeaseEnds(t *testing.T) {
	for name, fault := range map[string]func(context.Context) error{
		"refused":    func(context.Context) error { return errors.New("connection refused") },
		"black hole": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, stubborn, func(c *agent.Config) { c.Lease, c.Slots = 6*time.Second, 1 })
			task := w.add()
			w.start()
			w.file("grandchild")
			w.queue.SetFault(func(ctx context.Context, op agenttest.Op, done bool) error {
				if done {
					return nil
				}
				return fault(ctx)
			})
			for w.alive("pid") || w.alive("grandchild") {
				<-time.After(10 * time.Millisecond)
				if time.Now().After(w.queue.Task(task.ID).LeaseUntil) {
					t.Fatal("the lease has ended and the agent lives")
				}
			}
			w.end()
		})
	}
}

// heartbeats is a fault of heartbeats alone, by how long the claim has been
// held.
func heartbeats(fault func(ctx context.Context, at time.Duration) error) agenttest.Fault {
	var claimed time.Time
	return func(ctx context.Context, op agenttest.Op, done bool) error {
		switch {
		case op == agenttest.OpClaim && !done && claimed.IsZero():
			claimed = time.Now()
		case op == agenttest.OpHeartbeat && !done:
			return fault(ctx, time.Since(claimed))
		}
		return nil
	}
}

// The arithmetic of leases on a clock of its own.
func TestLease(t *testing.T) {
	type outcome struct{ begun, ended time.Duration }
	run := func(t *testing.T, fault agenttest.Fault, until time.Duration) (o outcome, beats int) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			w := newWorld(t, "echo done yes")
			w.trees.ensure = func(ctx context.Context) error {
				o.begun = time.Since(start)
				select {
				case <-ctx.Done():
				case <-time.After(until):
				}
				o.ended = time.Since(start)
				return errors.New("enough")
			}
			w.queue.SetFault(func(ctx context.Context, op agenttest.Op, done bool) error {
				if op == agenttest.OpHeartbeat && !done {
					beats++
				}
				if fault == nil {
					return nil
				}
				return fault(ctx, op, done)
			})
			w.add()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- agent.New(w.cfg).Run(ctx) }()
			<-time.After(2 * time.Minute)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return o, beats
	}
	t.Run("kept", func(t *testing.T) {
		o, beats := run(t, nil, 65*time.Second)
		if o.ended != 65*time.Second || beats < 6 || beats > 7 { // one may follow the result's wake-up
			t.Errorf("%+v, %d heartbeats", o, beats)
		}
	})
	refused := errors.New("refused")
	t.Run("database away", func(t *testing.T) {
		o, _ := run(t, heartbeats(func(context.Context, time.Duration) error { return refused }), time.Hour)
		if o.ended < 15*time.Second || o.ended > 23*time.Second {
			t.Errorf("given up after %v of a lease of 30 s", o.ended)
		}
	})
	t.Run("black hole", func(t *testing.T) {
		o, _ := run(t, heartbeats(func(ctx context.Context, at time.Duration) error {
			if at < 12*time.Second { // the lease is renewed at 10 s
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}), time.Hour)
		if o.ended < 25*time.Second || o.ended > 33*time.Second {
			t.Errorf("given up after %v of a lease that ends at 40 s", o.ended)
		}
	})
	t.Run("away for a moment", func(t *testing.T) {
		o, _ := run(t, heartbeats(func(_ context.Context, at time.Duration) error {
			if at > 9*time.Second && at < 17*time.Second {
				return refused
			}
			return nil
		}), 90*time.Second)
		if o.ended != 90*time.Second {
			t.Errorf("given up after %v", o.ended)
		}
	})
	t.Run("slow claim", func(t *testing.T) {
		// The lease counts from when the claim was asked for, not answered.
		o, _ := run(t, func(_ context.Context, op agenttest.Op, done bool) error {
			switch {
			case op == agenttest.OpClaim && done:
				<-time.After(9 * time.Second)
			case op == agenttest.OpHeartbeat:
				return refused
			}
			return nil
		}, time.Hour)
		if o.begun != 9*time.Second || o.ended > 23*time.Second {
			t.Errorf("begun at %v, given up after %v", o.begun, o.ended)
		}
	})
}

func TestShutdownLetsTheAgentFinish(t *testing.T) {
	w := newWorld(t, "echo $$ >pid; until [ -e go ]; do sleep 0.02; done; echo done yes")
	task := w.add()
	w.start()
	w.file("pid")
	w.stop()
	late := w.add()
	if err := os.WriteFile(w.trees.path+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.end()
	if task = w.queue.Task(task.ID); task.Status != pulse.TaskComplete {
		t.Errorf("task %+v", task)
	}
	if late = w.queue.Task(late.ID); late.Status != pulse.TaskQueued {
		t.Errorf("claimed at shutdown: %+v", late)
	}
}

func TestShutdownHandsTheTaskBack(t *testing.T) {
	const grace = 300 * time.Millisecond
	w := newWorld(t, stubborn, func(c *agent.Config) { c.ShutdownGrace = grace })
	task := w.add()
	w.start()
	w.file("grandchild")
	began := time.Now()
	w.end()
	if took := time.Since(began); took > grace+2*time.Second || took < grace {
		t.Errorf("ended after %v with a grace of %v", took, grace)
	}
	w.dead("after the shutdown")
	if task = w.queue.Task(task.ID); task.Status != pulse.TaskQueued || task.Attempt != 0 || task.Result != nil {
		t.Errorf("task %+v", task)
	}
	if s := w.queue.Stream(task.ID); len(s.Turns) != 1 || s.Turns[0].Status != pulse.TurnFailed {
		t.Errorf("turns %+v", s.Turns)
	}
}

// A claim whose answer comes when the daemon is to end costs no attempt.
func TestShutdownDuringClaim(t *testing.T) {
	w := newWorld(t, "echo done yes")
	claiming := make(chan struct{})
	w.queue.SetFault(func(ctx context.Context, op agenttest.Op, done bool) error {
		if op != agenttest.OpClaim || !done {
			return nil
		}
		close(claiming)
		w.stop()
		select { // the answer takes a little longer
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
			return nil
		}
	})
	task := w.add()
	w.start()
	<-claiming
	w.end()
	if task = w.queue.Task(task.ID); task.Status != pulse.TaskQueued || task.Attempt != 0 {
		t.Errorf("task %+v", task)
	}
}

func TestDatabaseAwayWhileTheAgentSpeaks(t *testing.T) {
	w := newWorld(t, "for i in 1 2 3 4 5 6 7 8 9; do echo say $i; sleep 0.03; done; echo start 1 x; echo end 1; echo done yes")
	var mu sync.Mutex
	calls := map[agenttest.Op]int{}
	w.queue.SetFault(func(_ context.Context, op agenttest.Op, done bool) error {
		mu.Lock()
		defer mu.Unlock()
		if calls[op]++; calls[op] > 3 && op != agenttest.OpAppend || calls[op] > 12 || op == agenttest.OpClaim || op == agenttest.OpHeartbeat || op == agenttest.OpEnlist {
			return nil
		}
		// Before: it never happened. After: it did, and nobody heard.
		return fmt.Errorf("reset by peer (%v)", done)
	})
	task, s := w.run()
	var said []string
	for _, m := range s.Messages {
		said = append(said, m.Text)
	}
	if strings.Join(said, "") != "123456789" || len(s.Deltas) != 9 || len(s.Tools) != 1 || s.Turns[0].Status != pulse.TurnCompleted || task.Status != pulse.TaskComplete {
		t.Errorf("messages %q, %d deltas, tools %+v, turns %+v, task %+v", said, len(s.Deltas), s.Tools, s.Turns, task.Result)
	}
}

func TestBatchThatIsRefusedIsLeftOut(t *testing.T) {
	w := newWorld(t, `echo say one; echo >said; until [ -e go ]; do sleep 0.02; done; echo say two; echo done yes`)
	var said atomic.Bool
	w.queue.SetFault(func(_ context.Context, op agenttest.Op, done bool) error {
		if op != agenttest.OpAppend || done || said.Load() {
			return nil
		}
		w.file("said")
		if w.queue.Calls(op) > 3 {
			said.Store(true)
			if err := os.WriteFile(w.trees.path+"/go", nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		return pulse.Invalid("a byte that cannot be stored", "")
	})
	task, s := w.run()
	if len(s.Turns) != 1 || s.Turns[0].Status != pulse.TurnCompleted || len(s.Messages) != 1 || s.Messages[0].Text != "two" || task.Status != pulse.TaskComplete {
		t.Errorf("turns %+v, messages %+v", s.Turns, s.Messages)
	}
}

// What is said last is not lost because the database was away just then.
func TestLastWordsAreStoredInTheEnd(t *testing.T) {
	w := newWorld(t, "echo say last; echo done yes", func(c *agent.Config) { c.Flush = time.Hour })
	w.queue.SetFault(func(_ context.Context, op agenttest.Op, done bool) error {
		if n := w.queue.Calls(op); op == agenttest.OpAppend && !done && n > 1 && n < 4 {
			return errors.New("refused")
		}
		return nil
	})
	if _, s := w.run(); len(s.Messages) != 1 || s.Turns[0].Status != pulse.TurnCompleted {
		t.Errorf("messages %+v, turns %+v", s.Messages, s.Turns)
	}
}

func TestFloodIsHeldUp(t *testing.T) {
	w := newWorld(t, `i=0; while [ $i -lt 3000 ]; do echo "say $i"; i=$((i+1)); done; echo $i >written; echo done yes`)
	open := make(chan struct{})
	w.queue.SetFault(func(_ context.Context, op agenttest.Op, done bool) error {
		if op == agenttest.OpAppend && !done {
			<-open
		}
		return nil
	})
	release := sync.OnceFunc(func() { close(open) })
	task := w.add()
	w.start()
	defer release()
	w.file("written") // 3,000 short lines fit into the pipe: the agent itself is not held up
	release()
	_, s := w.over(task)
	if len(s.Messages) != 3000 {
		t.Errorf("%d messages", len(s.Messages))
	}
	for i, m := range s.Messages {
		if m.Text != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m.Text)
		}
	}
}

func TestEventsAfterTheConversationAreDropped(t *testing.T) {
	w := newWorld(t, "exit 0")
	watch := &watcher{}
	w.cfg.Observers = func(pulse.Task) agent.ProgressObserver { return watch }
	var late func(cli.Event)
	w.shell.Talk = func(_ context.Context, _ cli.Wire, _ cli.Input, emit func(cli.Event)) error {
		late = emit
		emit(cli.Event{Kind: cli.EventResult, Result: &cli.Result{FinalText: "x"}})
		return nil
	}
	w.trees.checkpoint = func() error {
		late(cli.Event{Kind: cli.EventText, Text: "late"})
		late(cli.Event{Kind: cli.EventToolStart, Tool: &cli.Tool{ID: "1", Name: "late"}})
		return nil
	}
	_, s := w.run()
	w.end()
	if len(s.Messages) != 0 || strings.Contains(fmt.Sprint(watch.calls), "late") {
		t.Errorf("messages %+v, observed %q", s.Messages, watch.calls)
	}
}

// The hint that a stored result gives to everybody is none to its own daemon:
// asking for more of a claim that has ended looks like a claim that was lost.
func TestAStoredResultIsNotAskedAfter(t *testing.T) {
	var after atomic.Int32
	var observed endings
	w := newWorld(t, `echo done yes`, func(c *agent.Config) {
		c.Observers = func(pulse.Task) agent.ProgressObserver { return &observed }
	})
	var stored atomic.Bool
	w.queue.SetFault(func(ctx context.Context, op agenttest.Op, done bool) error {
		switch {
		case op == agenttest.OpFinish && done: // the answer takes its time
			stored.Store(true)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		case op == agenttest.OpHeartbeat && stored.Load():
			after.Add(1)
		}
		return nil
	})
	if task, _ := w.run(); task.Status != pulse.TaskComplete {
		t.Errorf("%+v", task.Result)
	}
	w.end()
	if n := after.Load(); n != 0 {
		t.Errorf("%d heartbeats for a claim that had ended", n)
	}
	if got := observed.all(); len(got) != 1 || got[0] != agent.OutcomeQuestion { // it gave no signal
		t.Errorf("observed %v", got)
	}
}

// endings notes how runs were said to end.
type endings struct {
	agent.NoopObserver
	mu   sync.Mutex
	seen []agent.Outcome
}

func (e *endings) OnBeadComplete(r agent.BeadResult) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, r.Outcome)
}

func (e *endings) all() []agent.Outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}
