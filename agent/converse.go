package agent

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

// ending is what is known of a run when its conversation is over.
type ending struct {
	result       *cli.Result
	usage        pulse.Usage
	conversation string
	model        string
	err          error // of the conversation itself
	ctxErr       bool
}

// converse speaks with the child by way of the backend, and records what it
// says. It returns when the conversation is over or ctx has ended.
func (d *Daemon) converse(ctx context.Context, b cli.Backend, in cli.Input, child *proc.Process, rec *recorder) ending {
	var end ending
	var mu sync.Mutex // emit may be called from a goroutine of the backend
	events := NewMultiObserver(d.cfg.Observer)
	tools := newToolWatch(events, d.cfg.Clock)
	stdout := io.Reader(child.Stdout())
	stdout = &alive{r: stdout, sign: rec.sign}
	if p, ok := b.(plainOutput); ok && p.PlainOutput() {
		stdout = io.TeeReader(stdout, NewToolEventWriter(&toolRecorder{NoopObserver{}, events, rec}, d.cfg.Clock))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		rec.flushing(ctx)
	}()
	// A backend that ignores ctx must not hold the run: when ctx ends the
	// child is stopped, which ends its output.
	unhook := context.AfterFunc(ctx, func() {
		rec.abandon()
		stop, done := context.WithTimeout(context.Background(), 30*time.Second)
		defer done()
		child.Stop(stop)
	})
	end.err = b.Converse(ctx, cli.Wire{Stdin: child.Stdin(), Stdout: stdout}, in, nil, func(e cli.Event) {
		mu.Lock()
		defer mu.Unlock()
		end.take(e)
		tools.take(e)
		rec.take(e)
	})
	end.ctxErr = ctx.Err() != nil
	unhook()
	cancel()
	<-flushed
	return end
}

// plainOutput is an optional ability of a backend: its CLI prints text, in
// which tool events may stand as JSON lines.
type plainOutput interface{ PlainOutput() bool }

func (e *ending) take(ev cli.Event) {
	switch ev.Kind {
	case cli.EventStarted:
		e.conversation, e.model = ev.Conversation, ev.Model
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

// facts puts together what conversation and exit say about the run.
func (e ending) facts(x exitState, name string) pulse.TaskResult {
	r := pulse.TaskResult{Usage: e.usage, ExitCode: x.exit.Code, Conversation: e.conversation, Model: e.model}
	if e.result != nil {
		r.FinalText, r.Error, r.Hint = e.result.FinalText, "", e.result.Hint
		if e.result.Usage != (pulse.Usage{}) {
			r.Usage = e.result.Usage
		}
	}
	switch {
	case e.result != nil && e.result.Failed:
		r.Error = firstLine(e.result.Error, name+" said that it failed, and not why")
	case x.byItself && x.exit.Signal != "":
		r.Error = fmt.Sprintf("%s was ended by signal %s%s", name, x.exit.Signal, because(x.exit.Stderr))
	case x.byItself && x.exit.Code != 0:
		r.Error = fmt.Sprintf("%s ended with exit code %d%s", name, x.exit.Code, because(x.exit.Stderr))
	case e.result == nil && e.err != nil:
		r.Error = fmt.Sprintf("%s: %v%s", name, e.err, because(x.exit.Stderr))
	case e.result == nil:
		r.Error = name + " ended without a result" + because(x.exit.Stderr)
	}
	if r.Error != "" && r.Hint == "" {
		r.Hint = "`pulse doctor` checks the agent; `pulse logs` shows what it did"
	}
	return r
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
