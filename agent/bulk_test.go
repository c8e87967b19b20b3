package agent_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pulseloop/agent"
	"pulseloop/agent/agenttest"
	"pulseloop/pulse"
)

// TestFreeSlotsAreFilledAtOnce wants one question for as many tasks as there are free slots.
func TestFreeSlotsAreFilledAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `touch "running.$PULSE_TASK_ID"; until [ "$(ls running.* | wc -l)" = 3 ]; do sleep 0.02; done; echo done x`,
		func(c *agent.Config) { c.Slots = 3 })
	var asked atomic.Int32
	w.queue.SetFault(func(_ context.Context, op agenttest.Op, done bool) error {
		if op == agenttest.OpRunning && !done { // the last of them knows how often was asked until now
			asked.Store(int32(w.queue.Calls(agenttest.OpClaim)))
		}
		return nil
	})
	tasks := []pulse.Task{w.add(), w.add(), w.add()}
	w.start()
	for _, task := range tasks {
		if task, _ = w.over(task); task.Status != pulse.TaskComplete {
			t.Errorf("task %+v", task)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the queue was asked %d times for three tasks", n)
	}
}

// TestLastTriesOfOneClaimRunAlone has several last attempts come with one answer.
func TestLastTriesOfOneClaimRunAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `touch "running.$PULSE_TASK_ID"; sleep 0.15; ls running.* >"beside.$PULSE_TASK_ID"; rm "running.$PULSE_TASK_ID"; echo done x`,
		func(c *agent.Config) { c.Slots = 4 })
	add := func(attempt int) pulse.Task {
		return w.queue.Add(pulse.Task{MaxAttempts: 3, Attempt: attempt, Spec: pulse.TaskSpec{Agent: "shell"}})
	}
	last := []pulse.Task{add(2), add(2), add(2)}
	others := []pulse.Task{add(0), add(0), add(0)}
	w.start()
	for _, task := range last {
		task, _ = w.over(task)
		if got := w.file("beside." + string(task.ID)); task.Status != pulse.TaskComplete || got != "running."+string(task.ID) {
			t.Errorf("beside a last attempt, %s, ran %q", task.Status, got)
		}
	}
	for _, task := range others {
		task, _ = w.over(task)
		for _, l := range last {
			if got := w.file("beside." + string(task.ID)); strings.Contains(got, string(l.ID)) {
				t.Errorf("a last attempt ran beside %q", got)
			}
		}
	}
}

// TestATaskOfAKnownProjectDoesNotWaitForTheRoutes looks at what the daemon asks between a task and its claim.
func TestATaskOfAKnownProjectDoesNotWaitForTheRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `echo done x`, func(c *agent.Config) { c.Poll = time.Minute })
	var mu sync.Mutex
	var asked []agenttest.Op // since the task was queued
	straight := 0
	w.queue.SetFault(func(_ context.Context, op agenttest.Op, done bool) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !done && (op == agenttest.OpEnlist || op == agenttest.OpClaim):
			asked = append(asked, op)
		case op == agenttest.OpClaim && len(asked) == 1: // it got a task with the first question
			straight++
		}
		return nil
	})
	w.start()
	for range 5 {
		mu.Lock()
		asked = nil
		mu.Unlock()
		w.over(w.add())
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d of 5 tasks were claimed by the first question", straight)
	if straight == 0 {
		t.Error("the routes are read before every claim")
	}
}
