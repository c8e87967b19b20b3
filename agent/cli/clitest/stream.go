package clitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"pulseloop/agent/cli"
)

// patience bounds what should happen at once.
const patience = 20 * time.Second

const final = "All of it is done.\n<signal>COMPLETE</signal>"

// lines joins what a dialect can say.
func lines(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p != "" {
			b.WriteString(p + "\n")
		}
	}
	return b.String()
}

// head is a conversation up to its last answer.
func (s suite) head() []string {
	if s.d.Plain {
		return nil
	}
	return []string{
		s.d.Started(), s.d.Thought("let me look"), s.d.Text("I begin."),
		s.d.ToolStart("call-1", "Read"), s.d.ToolEnd("call-1", "the file", false),
		s.d.ToolStart("call-2", "Bash"), s.d.ToolEnd("call-2", "no such thing", true),
		s.d.Delta("All of it"), s.d.Text(final),
	}
}

func (s suite) whole() string {
	return lines(append(s.head(), s.d.Done(final))...)
}

// input collects what is written to a child and knows whether it was closed.
type input struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	closed bool
}

func (i *input) Write(b []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return 0, io.ErrClosedPipe
	}
	return i.buf.Write(b)
}

func (i *input) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	return nil
}

func (i *input) got() (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.buf.String(), i.closed
}

// heard is the outcome of one conversation.
type heard struct {
	events []cli.Event
	err    error
	stdin  *input
}

func (h heard) result() *cli.Result {
	for _, e := range h.events {
		if e.Kind == cli.EventResult {
			return e.Result
		}
	}
	return nil
}

func (h heard) text(kind cli.EventKind) string {
	var b strings.Builder
	for _, e := range h.events {
		if e.Kind == kind {
			b.WriteString(e.Text)
		}
	}
	return b.String()
}

// story renders the events but for notes and usage, which may come at any
// point, and deltas, whose borders are the reader's.
func (h heard) story() string {
	var b strings.Builder
	for _, e := range h.events {
		switch e.Kind {
		case cli.EventTextDelta, cli.EventNote, cli.EventUsage:
			continue
		case cli.EventToolStart, cli.EventToolEnd:
			fmt.Fprintf(&b, "%s %s failed=%v %q\n", e.Kind, e.Tool.ID, e.Tool.Failed, e.Tool.Output)
		case cli.EventResult:
			fmt.Fprintf(&b, "%s %+v\n", e.Kind, *e.Result)
		default:
			fmt.Fprintf(&b, "%s %q\n", e.Kind, e.Text)
		}
	}
	return b.String()
}

// converse holds a conversation over stdout, within bounds.
func converse(t *testing.T, b cli.Backend, in cli.Input, stdout io.Reader) heard {
	t.Helper()
	h := heard{stdin: &input{}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h.err = b.Converse(ctx, cli.Wire{Stdin: h.stdin, Stdout: stdout}, in, nil, func(e cli.Event) {
		h.events = append(h.events, e)
	})
	if ctx.Err() != nil {
		t.Fatalf("the conversation did not end within %v", patience)
	}
	return h
}

func (s suite) mustFinish(t *testing.T, stdout io.Reader) heard {
	t.Helper()
	h := converse(t, s.backend(), cli.Input{Prompt: "do it", Dir: t.TempDir()}, stdout)
	if h.err != nil {
		t.Fatalf("converse: %v", h.err)
	}
	checkOrder(t, h.events)
	return h
}

// checkOrder holds for every conversation: started at most once and before
// what is said, a tool's end after its start, one result, last.
func checkOrder(t *testing.T, events []cli.Event) {
	t.Helper()
	open := map[string]bool{}
	started, results := 0, 0
	for i, e := range events {
		if results > 0 {
			t.Errorf("event %d (%s) comes after the result", i, e.Kind)
		}
		switch e.Kind {
		case cli.EventStarted:
			started++
		case cli.EventText, cli.EventTextDelta, cli.EventThought, cli.EventNote:
			if e.Text == "" {
				t.Errorf("event %d (%s) has no text", i, e.Kind)
			}
		case cli.EventToolStart:
			if e.Tool == nil || e.Tool.ID == "" || open[e.Tool.ID] {
				t.Errorf("event %d: bad start of a tool: %+v", i, e.Tool)
				continue
			}
			open[e.Tool.ID] = true
		case cli.EventToolEnd:
			if e.Tool == nil || !open[e.Tool.ID] {
				t.Errorf("event %d: end of a tool that was not started: %+v", i, e.Tool)
				continue
			}
			delete(open, e.Tool.ID)
			if len(e.Tool.Output) > cli.MaxToolOutput {
				t.Errorf("event %d: %d bytes of output", i, len(e.Tool.Output))
			}
		case cli.EventUsage:
			if e.Usage == nil {
				t.Errorf("event %d: usage without figures", i)
			}
		case cli.EventResult:
			if results++; e.Result == nil {
				t.Fatalf("event %d: result without content", i)
			}
		default:
			t.Errorf("event %d: unknown kind %q", i, e.Kind)
		}
	}
	if started > 1 || results != 1 {
		t.Errorf("%d starts, %d results", started, results)
	}
}
