package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pulseloop/agent"
	"pulseloop/agent/cli"
	"pulseloop/internal/secret"
	"pulseloop/pulse"
)

func TestRunStoresWhatTheAgentDoes(t *testing.T) {
	w := newWorld(t, `read prompt
		echo "think let us see"
		echo 'start 1 read {"path":"a.go"}'
		echo "end 1 the file"
		echo "say you said: $prompt"
		echo 'start 2 bash {"command":"make"}'
		echo "fail 2 no makefile"
		echo "start 3 never {}"
		echo "done SIGNAL"`)
	w.shell.Talk = nil
	task, s := w.run()
	if task.Status != pulse.TaskComplete {
		t.Fatalf("%+v", task.Result)
	}
	if len(s.Turns) != 1 || s.Turns[0].Status != pulse.TurnCompleted || s.Turns[0].EndedAt.IsZero() || s.Turns[0].ProjectID != "p1" ||
		s.Turns[0].IterationID != task.IterationID || s.Turns[0].Role != pulse.TurnAssistant {
		t.Errorf("turns %+v", s.Turns)
	}
	if len(s.Messages) != 1 || s.Messages[0].Text != "you said: the prompt" || s.Messages[0].Seq != 3 {
		t.Errorf("messages %+v", s.Messages)
	}
	if len(s.Thoughts) != 1 || s.Thoughts[0].Text != "let us see" || s.Thoughts[0].Seq != 1 {
		t.Errorf("thoughts %+v", s.Thoughts)
	}
	var tools []string
	for _, x := range s.Tools {
		tools = append(tools, fmt.Sprintf("%d %s %s %s %s", x.Seq, x.CallID, x.Name, x.Status, x.Output))
	}
	want := []string{"2 1 read completed the file", "4 2 bash failed no makefile", "5 3 never failed "}
	if !slices.Equal(tools, want) {
		t.Errorf("tools %q, want %q", tools, want)
	}
	var events []string
	for _, e := range s.Events {
		events = append(events, string(e.Type))
	}
	wantEvents := []string{"turn:started", "turn:tool_started", "turn:tool_completed", "turn:tool_started", "turn:tool_completed", "turn:tool_started", "turn:completed"}
	if !slices.Equal(events, wantEvents) {
		t.Errorf("events %q", events)
	}
	var deltas []string
	for _, d := range s.Deltas {
		deltas = append(deltas, fmt.Sprintf("%d %s %s", d.N, d.Type, d.Text))
	}
	if !slices.Equal(deltas, []string{"1 turn:thought_delta let us see", "2 turn:message_delta you said: the prompt"}) {
		t.Errorf("deltas %q", deltas)
	}
	r := task.Result
	if r.FinalText != "SIGNAL" || r.TurnID != s.Turns[0].ID || r.Commit != "c0ffee" || r.Commits != 1 || !r.Published || r.ExitCode != 0 ||
		r.Conversation != "conversation-1" || r.Daemon != "d1" || !slices.Equal(r.FilesChanged, []string{"a.txt"}) || !slices.Equal(r.Notes, []string{"a note"}) {
		t.Errorf("result %+v", r)
	}
	save := w.trees.saved()[0]
	if save.Subject != "feat: add a thing" || !strings.Contains(save.Body, "Pulse-Session: "+string(task.SessionID)+"\nPulse-Iteration: 2") {
		t.Errorf("save %+v", save)
	}
	if task.LastSign.IsZero() {
		t.Error("no sign of life was stored")
	}
}

func TestBlockThatComesInPieces(t *testing.T) {
	w := newWorld(t, `for i in 1 2 3 4 5 6 7 8 9; do echo "delta word$i "; done; echo "say whole"; echo "delta again"; echo "done x"`,
		func(c *agent.Config) { c.Flush = time.Hour; c.Redactor = secret.New("unlikely") })
	_, s := w.run()
	var text strings.Builder
	for _, d := range s.Deltas {
		text.WriteString(d.Text)
	}
	if want := "word1 word2 word3 word4 word5 word6 word7 word8 word9 again"; text.String() != want {
		t.Errorf("deltas give %q", text.String())
	}
	if len(s.Deltas) != 2 || len(s.Messages) != 1 || s.Messages[0].Text != "whole" {
		t.Errorf("deltas %+v, messages %+v", s.Deltas, s.Messages)
	}
}

func TestEndings(t *testing.T) {
	errTalk := errors.New("the line broke")
	result := func(_ context.Context, w cli.Wire, _ cli.Input, emit func(cli.Event)) error {
		emit(cli.Event{Kind: cli.EventResult, Result: &cli.Result{FinalText: "good"}})
		return errTalk
	}
	for _, tt := range []struct {
		name, script string
		talk         func(context.Context, cli.Wire, cli.Input, func(cli.Event)) error
		errors       []string // in the result's error; none: the run is good
		code         int
	}{
		{name: "good", script: "echo done yes"},
		{name: "exit code and reason", script: "echo out of cheese >&2; exit 3", errors: []string{"exit code 3", "out of cheese"}, code: 3},
		{name: "result and exit code", script: "echo done yes; exit 4", errors: []string{"exit code 4"}, code: 4},
		{name: "signal", script: "echo done yes; kill -9 $$", errors: []string{"SIGKILL"}, code: -1},
		{name: "signal, and what it left lingers", script: `{ setsid sh -c 'trap "" TERM; echo up; exec >/dev/null 2>&1; sleep 600' & } | read -r up; echo done yes; kill -9 $$`,
			errors: []string{"SIGKILL"}, code: -1},
		{name: "passes on a signal", script: `sh -c 'kill -9 $$'; exit $?`, errors: []string{"exit code 137", "SIGKILL"}, code: 137},
		{name: "no result", script: "echo hello; echo why >&2", errors: []string{"without a result", "why"}},
		{name: "says it failed", script: "echo failed no credit; exit 1", errors: []string{"no credit"}, code: 1},
		{name: "says it failed and not why", script: "echo 'failed '", errors: []string{"not why"}},
		{name: "conversation breaks", script: "exit 0", talk: func(context.Context, cli.Wire, cli.Input, func(cli.Event)) error { return errTalk },
			errors: []string{"the line broke"}},
		{name: "conversation breaks after the result", script: "exit 0", talk: result},
		{name: "lingers after the result", script: "echo done yes; exec >&-; exec sleep 600"},
		{name: "lingers without output or result", script: "exec >&- 2>&-; exec sleep 600", errors: []string{"without a result"}, code: -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.script, func(c *agent.Config) { c.ExitGrace = 200 * time.Millisecond })
			if !strings.Contains(tt.name, "lingers") {
				w.cfg.ExitGrace = 20 * time.Second
			}
			w.shell.Talk = tt.talk
			task, s := w.run()
			r := *task.Result
			if (r.Error == "") != (tt.errors == nil) || (r.Hint == "") != (r.Error == "") {
				t.Errorf("error %q, hint %q", r.Error, r.Hint)
			}
			for _, part := range tt.errors {
				if !strings.Contains(r.Error, part) {
					t.Errorf("error %q does not say %q", r.Error, part)
				}
			}
			if r.ExitCode != tt.code {
				t.Errorf("exit code %d, want %d", r.ExitCode, tt.code)
			}
			if len(w.trees.saved()) != 1 || r.Commit == "" {
				t.Errorf("what was left in the tree was not saved: %+v", r)
			}
			if failed := s.Turns[0].Status == pulse.TurnFailed; failed != (tt.errors != nil) {
				t.Errorf("turn is %s", s.Turns[0].Status)
			}
		})
	}
}

func TestWhatCannotBeRun(t *testing.T) {
	for _, tt := range []struct {
		name   string
		adjust func(*world, *pulse.Task)
		error  string
	}{
		{"unknown kind", func(_ *world, t *pulse.Task) { t.Kind = "juggle" }, "juggle"},
		{"unknown agent", func(_ *world, t *pulse.Task) { t.Spec.Agent = "hal" }, `"hal"`},
		{"no command", func(w *world, _ *pulse.Task) { w.shell.Script = "" }, "there is no script"},
		{"no tree", func(w *world, _ *pulse.Task) {
			w.trees.ensure = func(context.Context) error {
				return &pulse.Error{Code: pulse.CodeConflict, Message: "the repository is shallow", Hint: "unshallow it"}
			}
		}, "the repository is shallow"},
		{"tree panics", func(w *world, _ *pulse.Task) { w.trees.ensure = func(context.Context) error { panic("oak") } }, "oak"},
		{"not saved", func(w *world, _ *pulse.Task) { w.trees.checkpoint = func() error { return errors.New("disk full") } }, "save the work: disk full"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "echo done yes")
			task := pulse.Task{Spec: pulse.TaskSpec{Agent: "shell"}}
			tt.adjust(w, &task)
			task = w.queue.Add(task)
			w.start()
			task, s := w.over(task)
			if r := task.Result; !strings.Contains(r.Error, tt.error) || r.Hint == "" {
				t.Errorf("error %q, hint %q", r.Error, r.Hint)
			}
			for _, turn := range s.Turns {
				if turn.Status == pulse.TurnStreaming {
					t.Error("the turn goes on")
				}
			}
		})
	}
}

func TestPanicInBackendEndsTheAgent(t *testing.T) {
	w := newWorld(t, "echo $$ >pid; exec sleep 600")
	var calls atomic.Int32
	w.shell.Talk = func(_ context.Context, _ cli.Wire, _ cli.Input, emit func(cli.Event)) error {
		if calls.Add(1) > 1 {
			emit(cli.Event{Kind: cli.EventResult, Result: &cli.Result{FinalText: "yes"}})
			return nil
		}
		w.file("pid")
		panic("boom")
	}
	w.trees.checkpoint = func() error {
		if w.alive("pid") {
			t.Error("the tree is saved while the agent lives")
		}
		return nil
	}
	task, s := w.run()
	if !strings.Contains(task.Result.Error, "boom") || s.Turns[0].Status != pulse.TurnFailed || w.alive("pid") {
		t.Errorf("result %+v, turns %+v", task.Result, s.Turns)
	}
	w.shell.Change("echo done yes")
	if next, _ := w.over(w.add()); next.Status != pulse.TaskComplete {
		t.Errorf("the next task: %+v", next.Result)
	}
}

func TestSecretsAreStoredNowhere(t *testing.T) {
	const key = "hunter2hunter2"
	w := newWorld(t, `echo "think $S"; echo "say $S"; echo "delta hunter2"; echo "delta hunter2 and"; echo "say x"
		echo "start 1 bash {\"command\":\"login $S\"}"; echo "end 1 $S"; echo "start 2 $S {}"
		echo "start 3 w {\"k\":\"-----BEGIN RSA PRIVATE KEY-----\"}"
		echo "failed $S"; echo "$S" >&2; exit 1`,
		func(c *agent.Config) { c.Redactor = secret.New(key) })
	w.shell.Env = []string{"S=" + key}
	w.trees.checkpoint = func() error { return errors.New("push to https://me:" + key + "@host failed") }
	watch := &watcher{}
	w.cfg.Observers = func(pulse.Task) agent.ProgressObserver { return watch }
	task := w.queue.Add(pulse.Task{Spec: pulse.TaskSpec{Agent: "shell", Subject: "fix: " + key}})
	w.start()
	task, s := w.over(task)
	w.end()
	if text := fmt.Sprintf("%+v %+v %+v %+v", *task.Result, s, watch.calls, w.trees.saved()); strings.Contains(text, key) || strings.Contains(text, "hunter2hun") {
		t.Errorf("the secret is in %s", text)
	}
	if !strings.Contains(task.Result.Error, secret.Mask) || !strings.Contains(strings.Join(task.Result.Notes, ""), secret.Mask) {
		t.Errorf("result %+v", task.Result)
	}
	if in := s.Tools[2].Input; !strings.HasPrefix(in, `"`) {
		t.Errorf("input is no JSON any more: %s", in)
	}
	if strings.Contains(w.logs.String(), key) {
		t.Error("the secret is in the log")
	}
}

func TestEnvironmentIsWhatIsAllowed(t *testing.T) {
	for _, name := range []string{"PULSE_TELEGRAM_TOKEN", "PULSE_DATABASE_URL", "DATABASE_URL", "PULSE_HTTP_TOKEN", "PULSE_TWILIO_ACCOUNT_SID", "LD_PRELOAD_X", "GIT_DIR"} {
		t.Setenv(name, "never")
	}
	t.Setenv("WANTED", "yes")
	w := newWorld(t, `env | cut -d= -f1 | sort >env.txt; echo "$PULSE_ROLE|$PULSE_SESSION_ID|$PULSE_ITERATION|$PULSE_TASK_ID|$WANTED|$OWN" >ids.txt; echo done yes`)
	w.shell.Pass = []string{"WANTED", "ABSENT", "PULSE_TELEGRAM_TOKEN", "PULSE_DATABASE_URL", "DATABASE_URL", "PULSE_HTTP_TOKEN", "PULSE_TWILIO_ACCOUNT_SID"}
	w.shell.Env = []string{"OWN=mine", "PULSE_ROLE=forged"}
	task, _ := w.run()
	if got, want := w.file("ids.txt"), fmt.Sprintf("pulsing|%s|2|%s|yes|mine", task.SessionID, task.ID); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	allowed := []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "TERM", "SHELL", "TZ", "PULSE_ROLE", "PULSE_SESSION_ID",
		"PULSE_ITERATION", "PULSE_TASK_ID", "PULSE_RUN", "WANTED", "OWN", "PWD", "OLDPWD", "SHLVL", "_"} // the last four are the shell's own
	for _, name := range strings.Fields(w.file("env.txt")) {
		if !slices.Contains(allowed, name) {
			t.Errorf("the agent got %s", name)
		}
	}
}

func TestStateDirIsPrivateAndRemoved(t *testing.T) {
	w := newWorld(t, "echo done yes")
	var dir atomic.Value
	w.shell.Talk = func(_ context.Context, wire cli.Wire, in cli.Input, emit func(cli.Event)) error {
		info, err := os.Stat(in.StateDir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v %v", info, err)
		}
		if left, _ := os.ReadDir(in.StateDir); len(left) > 0 {
			t.Errorf("of an earlier life: %v", left)
		}
		dir.Store(in.StateDir)
		emit(cli.Event{Kind: cli.EventResult, Result: &cli.Result{FinalText: "x"}})
		return nil
	}
	task := w.add()
	old := filepath.Join(w.state, string(task.ID))
	if err := os.MkdirAll(filepath.Join(old, "old"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.over(task)
	if _, err := os.Stat(dir.Load().(string)); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

func TestToolEventsInPlainOutput(t *testing.T) {
	w := newWorld(t, `echo 'Which port?'; echo '{"type":"tool_call","subtype":"started","name":"read","arguments":{"path":"foo.go"},"call_id":"c1"}'
		printf '{"type":"tool_call","subtype":"ended","name":"read","duration_ms":123,"call_id":"c1"}'`)
	w.shell.Plain = true
	watch := &watcher{}
	w.cfg.Observers = func(pulse.Task) agent.ProgressObserver { return watch }
	_, s := w.run()
	w.end()
	if len(s.Tools) != 1 || s.Tools[0].Status != pulse.ToolCompleted || s.Tools[0].Summary != "foo.go" {
		t.Errorf("tools %+v", s.Tools)
	}
	want := []string{"loop ", "bead feat: add a thing", "start read map[file_path:foo.go]", "end read map[duration_ms:123]", "done question 0 ", "end 0 0 1 0"}
	if !slices.Equal(watch.calls, want) {
		t.Errorf("observed %q", watch.calls)
	}
}

func TestObserversThatPanicHurtNobody(t *testing.T) {
	for name, observers := range map[string]func(pulse.Task) agent.ProgressObserver{
		"constructor": func(pulse.Task) agent.ProgressObserver { panic("no") },
		"nil":         func(pulse.Task) agent.ProgressObserver { return nil },
		"typed nil":   func(pulse.Task) agent.ProgressObserver { var w *watcher; return w },
		"methods":     func(pulse.Task) agent.ProgressObserver { return angry{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, `echo "start 1 x {}"; echo "end 1"; echo done yes`, func(c *agent.Config) { c.Observers = observers })
			if task, s := w.run(); task.Status != pulse.TaskComplete || len(s.Tools) != 1 {
				t.Errorf("%+v", task.Result)
			}
		})
	}
}

type angry struct{}

func (angry) OnLoopStart(string)              { panic(1) }
func (angry) OnBeadStart(agent.Bead)          { panic(2) }
func (angry) OnBeadComplete(agent.BeadResult) { panic(3) }
func (angry) OnLoopEnd(*agent.CoreResult)     { panic(4) }
func (angry) OnToolStart(agent.ToolEvent)     { panic(5) }
func (angry) OnToolEnd(agent.ToolEvent)       { panic(6) }

// watcher writes down what it is told. It has no lock: what an observer may
// rely on is that it needs none.
type watcher struct{ calls []string }

func (w *watcher) add(format string, args ...any) {
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}
func (w *watcher) OnLoopStart(root string)       { w.add("loop %s", root) }
func (w *watcher) OnBeadStart(b agent.Bead)      { w.add("bead %s", b.Title) }
func (w *watcher) OnToolStart(e agent.ToolEvent) { w.add("start %s %v", e.Name, e.Attributes) }
func (w *watcher) OnToolEnd(e agent.ToolEvent)   { w.add("end %s %v", e.Name, e.Attributes) }
func (w *watcher) OnBeadComplete(r agent.BeadResult) {
	w.add("done %s %d %s", r.Outcome, r.ExitCode, r.Error)
}
func (w *watcher) OnLoopEnd(r *agent.CoreResult) {
	w.add("end %d %d %d %d", r.Succeeded, r.Failed, r.Questions, r.TimedOut)
}

func TestSlotsRunAtOnce(t *testing.T) {
	w := newWorld(t, `touch "$PULSE_TASK_ID"; while [ $(ls | wc -l) -lt 2 ]; do read -t 0.01 x </dev/null || :; done; echo done yes`)
	a, b := w.add(), w.add()
	w.start()
	w.over(a)
	w.over(b)
	if d := w.queue.Daemons(); len(d) != 1 || d[0].Slots != 2 || !slices.Equal(d[0].Agents, []string{"shell"}) || d[0].SeenAt.IsZero() {
		t.Errorf("daemons %+v", d)
	}
}
