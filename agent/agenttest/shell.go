package agenttest

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"sync"

	"pulseloop/agent/cli"
)

// Shell is a Backend whose agent is a script of /bin/sh. The script gets the
// prompt on standard input and prints lines:
//
//	say TEXT    think TEXT    delta TEXT    start ID NAME JSON    end ID OUTPUT
//	fail ID OUTPUT    note TEXT    done TEXT    failed TEXT
//
// "done" and "failed" are results. Any other line is a block of text.
type Shell struct {
	Script string
	Pass   []string
	Env    []string
	Plain  bool // what is printed is text, with tool events in it; all of it is the result

	// Talk, where set, is the conversation instead.
	Talk func(ctx context.Context, w cli.Wire, in cli.Input, emit func(cli.Event)) error

	mu sync.Mutex
}

// Change replaces the script for runs that begin later.
func (s *Shell) Change(script string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Script = script
}

// Name is "shell".
func (s *Shell) Name() string { return "shell" }

// PlainOutput reports whether tool events are to be looked for in the text.
func (s *Shell) PlainOutput() bool { return s.Plain }

// Probe finds the shell.
func (s *Shell) Probe(context.Context) cli.Probe {
	return cli.Probe{Name: "shell", Path: "/bin/sh", Installed: true, LoggedIn: true}
}

// Command runs the script.
func (s *Shell) Command(cli.Input) (cli.Command, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Script == "" {
		return cli.Command{}, errors.New("there is no script")
	}
	return cli.Command{Path: "/bin/sh", Args: []string{"-c", s.Script}, Pass: s.Pass, Env: s.Env}, nil
}

// Converse feeds the prompt and reads lines to the end of the output. It
// looks at ctx only between lines.
func (s *Shell) Converse(ctx context.Context, w cli.Wire, in cli.Input, _ <-chan cli.Control, emit func(cli.Event)) error {
	if s.Talk != nil {
		return s.Talk(ctx, w, in, emit)
	}
	fed := cli.Feed(w.Stdin, in.Prompt)
	defer func() { _ = w.Stdin.Close(); <-fed }()
	emit(cli.Event{Kind: cli.EventStarted, Conversation: "conversation-1", Model: in.Model})
	lines := bufio.NewScanner(w.Stdout)
	lines.Buffer(nil, 4<<20)
	var whole strings.Builder
	for lines.Scan() && ctx.Err() == nil {
		if s.Plain {
			whole.WriteString(lines.Text() + "\n")
			continue
		}
		emit(event(lines.Text()))
	}
	if s.Plain {
		emit(cli.Event{Kind: cli.EventText, Text: whole.String()})
		emit(cli.Event{Kind: cli.EventResult, Result: &cli.Result{FinalText: whole.String()}})
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return lines.Err()
}

func event(line string) cli.Event {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "say":
		return cli.Event{Kind: cli.EventText, Text: rest}
	case "think":
		return cli.Event{Kind: cli.EventThought, Text: rest}
	case "note":
		return cli.Event{Kind: cli.EventNote, Text: rest}
	case "delta":
		return cli.Event{Kind: cli.EventTextDelta, Text: rest}
	case "done":
		return cli.Event{Kind: cli.EventResult, Result: &cli.Result{FinalText: rest}}
	case "failed":
		return cli.Event{Kind: cli.EventResult, Result: &cli.Result{Failed: true, Error: rest}}
	case "start":
		words := append(strings.SplitN(rest, " ", 3), "", "")
		return cli.Event{Kind: cli.EventToolStart, Tool: &cli.Tool{ID: words[0], Name: words[1], Input: []byte(words[2]), Summary: words[1]}}
	case "end", "fail":
		id, output, _ := strings.Cut(rest, " ")
		return cli.Event{Kind: cli.EventToolEnd, Tool: &cli.Tool{ID: id, Output: output, Failed: verb == "fail"}}
	}
	return cli.Event{Kind: cli.EventText, Text: line}
}
