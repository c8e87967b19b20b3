package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"pulseloop/agent"
	"pulseloop/pulse"
)

// lively adds a task whose agent is looked at ten times a second.
func (w *world) lively() pulse.Task {
	return w.queue.Add(pulse.Task{Spec: pulse.TaskSpec{Agent: "shell", SilenceLimit: 2 * time.Second, ToolSilenceLimit: 20 * time.Second}})
}

func (w *world) release(name string) {
	w.t.Helper()
	if err := os.WriteFile(w.trees.path+"/"+name, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// An agent that prints nothing is alive as long as its processes work,
// wherever in its family that is.
func TestWorkIsASignOfLife(t *testing.T) {
	for name, script := range map[string]string{
		"the agent itself":     `until [ -e go ]; do :; done; echo done yes`,
		"its tool":             `echo start 1 shell; (until [ -e go ]; do :; done); echo end 1; echo done yes`,
		"one that left it":     `setsid sh -c 'until [ -e go ]; do :; done' & until [ -e go ]; do sleep 0.2; done; echo done yes`,
		"copying, hardly work": `until [ -e go ]; do head -c 300000 /dev/zero >/dev/null; sleep 0.05; done; echo done yes`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, script)
			task := w.lively()
			w.start()
			var signs []time.Time
			w.queue.Await(task.ID, "signs of life", func(t pulse.Task, _ pulse.StreamBatch) bool {
				if n := len(signs); t.Status == pulse.TaskRunning && !t.LastSign.IsZero() && (n == 0 || t.LastSign.After(signs[n-1])) {
					signs = append(signs, t.LastSign)
				}
				return len(signs) >= 6
			})
			w.release("go")
			if task, _ = w.over(task); task.Status != pulse.TaskComplete {
				t.Errorf("%+v", task.Result)
			}
		})
	}
}

// One that sleeps gives none: it is loop's to say for how long.
func TestSleepIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `sleep 600 & echo $$ >pid; exec sleep 600`)
	task := w.lively()
	w.start()
	w.file("pid")
	last, quiet := time.Time{}, time.Now()
	for began := time.Now(); time.Since(quiet) < 2*time.Second; <-time.After(20 * time.Millisecond) {
		if at := w.queue.Task(task.ID).LastSign; at.After(last) { // starting is some work
			last, quiet = at, time.Now()
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("signs of life without end")
		}
	}
	if p := w.queue.Task(task.ID).Phase; p != pulse.PhaseStarting {
		t.Errorf("phase %q", p)
	}
	w.queue.Cancel(task.ID)
	w.queue.Await(task.ID, "its end", func(pulse.Task, pulse.StreamBatch) bool { return !w.alive("pid") })
}

func TestPhasesOfARun(t *testing.T) {
	t.Parallel()
	wait := func(name string) string { return "until [ -e " + name + " ]; do sleep 0.02; done; " }
	w := newWorld(t, wait("a")+`echo note limited; echo "starting up"; `+wait("b")+`echo start 1 shell; echo start 2 shell; `+wait("c")+
		`echo end 1; `+wait("d")+`echo fail 2; `+wait("e")+`echo done yes; `+wait("f"))
	task := w.lively()
	w.start()
	for _, step := range []struct {
		phase pulse.Phase
		then  string
	}{{pulse.PhaseStarting, "a"}, {pulse.PhaseThinking, "b"}, {pulse.PhaseTool, "c"}, {pulse.PhaseTool, "d"}, {pulse.PhaseThinking, "e"}, {pulse.PhaseEnding, "f"}} {
		w.queue.Await(task.ID, "phase "+string(step.phase)+" before "+step.then, func(t pulse.Task, _ pulse.StreamBatch) bool { return t.Phase == step.phase })
		w.release(step.then)
	}
	if task, _ = w.over(task); task.Status != pulse.TaskComplete || task.Phase != pulse.PhaseEnding {
		t.Errorf("phase %q, %+v", task.Phase, task.Result)
	}
}

// An agent that talks without end does not fill the disk; how it ends is
// known all the same.
func TestWhatIsKeptIsBounded(t *testing.T) {
	w := newWorld(t, `text=$(head -c 2000 /dev/zero | tr '\0' x); i=0
		echo start first shell
		while [ $i -lt 100 ]; do echo say $text; echo delta $text; echo start $i shell; echo end $i $text; i=$((i+1)); done; echo end first; echo start z shell; echo done yes`,
		func(c *agent.Config) { c.MaxKept = 100_000 })
	task, s := w.run()
	kept, told := 0, 0
	for _, m := range s.Messages {
		kept += len(m.Text)
	}
	for _, c := range s.Tools {
		kept += len(c.Output)
		if c.Status != pulse.ToolCompleted {
			t.Errorf("call %s is %s", c.CallID, c.Status)
		}
	}
	streamed := 0
	for _, d := range s.Deltas {
		streamed += len(d.Text)
	}
	for _, e := range s.Events {
		if e.Type == pulse.EventTurnNote && strings.Contains(fmt.Sprint(e.Data), "is not kept") {
			told++
		}
	}
	if kept < 20_000 || kept > 110_000 || streamed < 20_000 || streamed > 40_000 || told != 1 {
		t.Errorf("kept %d, streamed %d bytes, told %d times", kept, streamed, told)
	}
	if task.Status != pulse.TaskComplete || task.Result.FinalText != "yes" || s.Turns[0].Status != pulse.TurnCompleted {
		t.Errorf("%+v", task.Result)
	}
}
