package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"

	"pulseloop/agent/cli"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

// converse speaks with the child by way of the backend, and records what it
// says. It returns when the conversation is over or ctx has ended.
func (r *run) converse(ctx context.Context, b cli.Backend, in cli.Input, child *proc.Process) ending {
	t := &tap{r: r, tools: toolWatch{r.observer, r.d.cfg.Clock}}
	defer t.close()
	defer r.watch(ctx, child)()
	stdout := io.Reader(&alive{r: child.Stdout(), sign: r.rec.sign})
	if p, ok := b.(plainOutput); ok && p.PlainOutput() {
		stdout = &overheard{r: stdout, w: NewToolEventWriter(&toolEvents{take: t.take}, r.d.cfg.Clock)}
	}
	// A backend that ignores ctx must not hold the run: when ctx ends the
	// child is stopped, which ends its output.
	unhook := context.AfterFunc(ctx, func() { r.stop(ctx, child) })
	defer unhook()
	err := b.Converse(ctx, cli.Wire{Stdin: child.Stdin(), Stdout: stdout}, in, nil, t.take)
	end := t.close()
	end.err = err
	return end
}

// plainOutput is an optional ability of a backend: its CLI prints text, in
// which tool events may stand as JSON lines.
type plainOutput interface{ PlainOutput() bool }

// tap is where everything passes that the agent says: one event at a time, to
// the record and to the observer, and none after the conversation's end. What
// an agent says may be read on a goroutine of the backend; a panic there must
// not end the daemon.
type tap struct {
	r     *run
	tools toolWatch

	mu     sync.Mutex
	closed bool
	end    ending
}

func (t *tap) take(e cli.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			t.r.log.Error("an event of the agent was dropped", "kind", string(e.Kind), "panic", p, "stack", string(debug.Stack()))
		}
	}()
	t.end.take(e)
	e.Tool = cleanTool(t.r.d.cfg.Redactor, e.Tool)
	t.r.rec.take(e)
	t.tools.take(e)
}

// close lets nothing more through and gives what is known.
func (t *tap) close() ending {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.end
}

// ending is what is known of a run when its conversation is over.
type ending struct {
	result       *cli.Result
	usage        pulse.Usage
	conversation string
	model        string
	err          error // of the conversation itself
}

func (e *ending) take(ev cli.Event) {
	switch ev.Kind {
	case cli.EventStarted:
		e.conversation, e.model = cmp.Or(ev.Conversation, e.conversation), cmp.Or(ev.Model, e.model)
	case cli.EventUsage:
		if ev.Usage != nil {
			e.usage = *ev.Usage
		}
	case cli.EventResult:
		if ev.Result != nil {
			e.result = ev.Result
		}
	}
}

// facts puts together what conversation and exit say about the run. A result
// that the CLI gave counts for more than how its conversation broke off; that
// it failed by itself counts for more than its result.
func (e ending) facts(x exitState, name string) pulse.TaskResult {
	r := pulse.TaskResult{Usage: e.usage, ExitCode: x.exit.Code, Conversation: e.conversation, Model: e.model}
	if e.result != nil {
		r.FinalText, r.Hint = e.result.FinalText, e.result.Hint
		if e.result.Usage != (pulse.Usage{}) {
			r.Usage = e.result.Usage
		}
	}
	switch {
	case e.result != nil && e.result.Failed:
		r.Error = firstLine(e.result.Error, name+" said that it failed, and not why")
	case !x.byItself && x.exit.Err != nil:
		r.Error = fmt.Sprintf("%s could not be ended: %v", name, x.exit.Err)
	case x.byItself && x.exit.Signal != "":
		r.Error = fmt.Sprintf("%s was ended by signal %s%s", name, x.exit.Signal, because(x.exit.Stderr))
	case x.byItself && x.exit.Code != 0:
		r.Error = fmt.Sprintf("%s ended with exit code %d%s%s", name, x.exit.Code, signalled(x.exit.Code), because(x.exit.Stderr))
	case e.result == nil && e.err != nil:
		r.Error = fmt.Sprintf("%s: %v%s", name, e.err, because(x.exit.Stderr))
	case e.result == nil:
		r.Error = name + " ended without a result" + because(x.exit.Stderr)
	case !x.byItself:
		r.ExitCode = 0 // the code says how we ended a CLI that had done its work
	}
	if r.Error != "" && x.byItself && (x.exit.Signal == "SIGKILL" || x.exit.Code == killed) && r.Hint == "" {
		r.Hint = "if nobody ended it, the machine ran out of memory: the system's log tells; fewer daemon.slots need less of it"
	}
	if r.Error != "" && r.Hint == "" {
		r.Hint = "`pulse doctor` checks the agent; `pulse logs` shows what it did"
	}
	return r
}

// killed is how shells, and the walls around an agent, pass on a SIGKILL.
const killed = 128 + 9

func signalled(code int) string {
	if code == killed {
		return ", as after SIGKILL"
	}
	return ""
}

func firstLine(s, otherwise string) string {
	if s = strings.TrimSpace(s); s == "" {
		return otherwise
	}
	return s
}

// because gives the last lines of standard error as the reason.
func because(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if from := len(lines) - 5; from > 0 {
		lines = lines[from:]
	}
	text := strings.TrimSpace(strings.Join(lines, "\n"))
	if text == "" {
		return ""
	}
	if len(text) > 1000 {
		text = "…" + strings.ToValidUTF8(text[len(text)-1000:], "")
	}
	return ": " + text
}

// alive notes every byte of output as a sign of life, also those that make
// no event of their own.
type alive struct {
	r    io.Reader
	sign func()
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.sign()
	}
	return n, err
}

// overheard gives a writer what is read; the end of the one closes the other.
type overheard struct {
	r io.Reader
	w io.WriteCloser
}

func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.r.Read(p)
	_, _ = o.w.Write(p[:n]) // a ToolEventWriter takes everything
	if err != nil {
		_ = o.w.Close()
	}
	return n, err
}
