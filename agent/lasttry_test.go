package agent_test

import (
	"path/filepath"
	"strings"
	"testing"

	"pulseloop/agent"
	"pulseloop/pulse"
)

// TestLastTryRunsAlone wants nothing beside the last attempt of a task, whether it began before or comes after.
func TestLastTryRunsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `touch "running.$PULSE_TASK_ID"; sleep 0.15; ls running.* >"beside.$PULSE_TASK_ID"; rm "running.$PULSE_TASK_ID"; echo done x`,
		func(c *agent.Config) { c.Slots = 3 })
	add := func(attempt int) pulse.Task {
		return w.queue.Add(pulse.Task{MaxAttempts: 3, Attempt: attempt, Spec: pulse.TaskSpec{Agent: "shell"}})
	}
	before := []pulse.Task{add(0), add(1)}
	last := add(2)
	after := []pulse.Task{add(0), add(0), add(0)}
	w.start()
	beside := func(task pulse.Task) string {
		task, _ = w.over(task)
		if task.Status != pulse.TaskComplete {
			t.Errorf("task %+v", task)
		}
		return w.file("beside." + string(task.ID))
	}
	if got := beside(last); got != "running."+string(last.ID) {
		t.Errorf("beside the last attempt ran %q", got)
	}
	together := false
	for _, other := range append(before, after...) {
		got := beside(other)
		if strings.Contains(got, string(last.ID)) {
			t.Errorf("the last attempt ran beside %q", got)
		}
		together = together || len(strings.Fields(got)) > 1
	}
	if !together {
		t.Error("no tasks ran beside each other at all")
	}
}

// TestLastTryThatWaitsIsHandedBack ends the daemon while a last attempt waits for the others to end.
func TestLastTryThatWaitsIsHandedBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `echo $$ >pid; exec sleep 600`, func(c *agent.Config) { c.ShutdownGrace = 1 })
	w.add()
	w.start()
	w.file("pid")
	last := w.queue.Add(pulse.Task{MaxAttempts: 3, Attempt: 2, Spec: pulse.TaskSpec{Agent: "shell"}})
	w.queue.AwaitStatus(last.ID, pulse.TaskClaimed)
	w.end()
	if got := w.queue.Task(last.ID); got.Status != pulse.TaskQueued || got.Attempt != 2 {
		t.Errorf("task %+v", got)
	}
	if found, _ := filepath.Glob(filepath.Join(w.trees.path, "pid*")); len(found) != 1 {
		t.Errorf("files %q", found)
	}
}
