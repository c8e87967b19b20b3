package agent_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pulseloop/agent"
	"pulseloop/agent/agenttest"
	"pulseloop/agent/cli"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

// While nothing can be stored, the agent is held up: what waits stays small.
// The daemon itself is not: it ends in time all the same.
func TestBlackHoleHoldsTheAgentUpAndNotTheDaemon(t *testing.T) {
	t.Parallel()
	const grace = 100 * time.Millisecond
	w := newWorld(t, "exec sleep 600", func(c *agent.Config) { c.ShutdownGrace = grace })
	output := strings.Repeat("x", cli.MaxToolOutput)
	var said atomic.Int64
	w.shell.Talk = func(ctx context.Context, _ cli.Wire, _ cli.Input, emit func(cli.Event)) error {
		for ctx.Err() == nil {
			emit(cli.Event{Kind: cli.EventToolEnd, Tool: &cli.Tool{ID: "1", Name: "cat", Output: output}})
			said.Add(1)
		}
		return ctx.Err()
	}
	w.queue.SetFault(func(ctx context.Context, op agenttest.Op, done bool) error {
		if op != agenttest.OpAppend && op != agenttest.OpRelease || done {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	w.add()
	w.start()
	for last := int64(-1); said.Load() == 0 || said.Load() != last; {
		last = said.Load()
		<-time.After(200 * time.Millisecond)
	}
	if mb := said.Load() * cli.MaxToolOutput >> 20; mb > 5 {
		t.Errorf("%d MB wait to be stored", mb)
	}
	began := time.Now()
	w.end()
	if took := time.Since(began); took > grace+2*time.Second {
		t.Errorf("ended after %v with a grace of %v", took, grace)
	}
}

// What an earlier life of a task left running is ended before the task runs
// again in the same tree.
func TestLeftoversOfAnEarlierLifeAreEnded(t *testing.T) {
	w := newWorld(t, "echo done yes")
	task := w.add()
	left, err := proc.Start(proc.Spec{Path: "sleep", Args: []string{"600"}, Env: proc.BaseEnv(), Marker: string(task.ID)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { left.Stop(context.Background()) })
	w.trees.onEnsure(func(context.Context) error {
		select {
		case <-left.Done():
		case <-time.After(5 * time.Second):
			t.Error("it lives")
		}
		return nil
	})
	w.start()
	if task, _ = w.over(task); task.Status != pulse.TaskComplete {
		t.Errorf("result %+v", task.Result)
	}
}
