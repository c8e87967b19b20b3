// Package command drives any program that takes a prompt on standard input
// and answers with text on standard output. It owns the way that text is
// cleaned and bounded; it knows nothing about the program. A Backend is safe
// for concurrent use and keeps nothing of a run.
//
// The whole output is the final text, so that whatever the program prints
// counts as its answer. The program's exit status is the daemon's matter.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"pulseloop/agent/cli"
	"pulseloop/pulse"
)

// MaxText bounds the final text: its last 256 KiB are kept. It goes through
// many hands, each with a copy of its own for a moment, and a run has 16 MiB
// for everything.
const MaxText = 256 << 10

const name = "command"

// Config names the program.
type Config struct {
	Command []string // the program and its arguments; no shell is put around it
	Model   string   // given to the program as PULSE_MODEL where the run names none
	Pass    []string // names of variables the program gets beside the base
	Env     []string // "K=V"
}

// Backend is a program.
type Backend struct{ cfg Config }

// New makes a Backend; nothing is looked up yet.
func New(cfg Config) *Backend { return &Backend{cfg: cfg} }

// Name is "command".
func (b *Backend) Name() string { return name }

var errNoCommand = pulse.Invalid("no command is configured", "set agents.command.command (PULSE_COMMAND) to the program and its arguments")

// PlainOutput tells the daemon that the output is text, in which lines of
// tool events may stand.
func (b *Backend) PlainOutput() bool { return true }

// Probe looks whether the program is there. What it is, or whether it needs a
// login, is not known.
func (b *Backend) Probe(context.Context) cli.Probe {
	p := cli.Probe{Name: name}
	path, err := b.find()
	if err != nil {
		p.Problem, p.Fix = err.Error(), "set agents.command.command (PULSE_COMMAND) to a program that can be run"
		if e := (*pulse.Error)(nil); errors.As(err, &e) {
			p.Problem = e.Message
		}
		return p
	}
	p.Path, p.Installed, p.LoggedIn = path, true, true
	return p
}

func (b *Backend) find() (string, error) {
	if len(b.cfg.Command) == 0 || b.cfg.Command[0] == "" {
		return "", errNoCommand
	}
	return cli.Find(b.cfg.Command[0], "")
}

// Command gives the configured argv.
func (b *Backend) Command(in cli.Input) (cli.Command, error) {
	path, err := b.find()
	if err != nil {
		return cli.Command{}, err
	}
	model := in.Model
	if model == "" {
		model = b.cfg.Model
	}
	env := append([]string{}, b.cfg.Env...)
	if model != "" {
		env = append(env, "PULSE_MODEL="+model)
	}
	return cli.Command{Path: path, Args: b.cfg.Command[1:], Pass: cli.Set(append(cli.NetworkEnv(), b.cfg.Pass...)), Env: env}, nil
}

// Converse feeds the prompt, passes on text as it comes, and gives all of it
// as one block and as the result when the output ends.
func (b *Backend) Converse(ctx context.Context, w cli.Wire, in cli.Input, controls <-chan cli.Control, emit func(cli.Event)) error {
	fed := cli.Feed(w.Stdin, in.Prompt)
	emit(cli.Event{Kind: cli.EventStarted, Model: in.Model})
	var text keeper
	err := listen(ctx, w.Stdout, controls, func(piece string) {
		text.add(piece)
		emit(cli.Event{Kind: cli.EventTextDelta, Text: piece})
	})
	_ = w.Stdin.Close()
	<-fed
	if err != nil {
		return err
	}
	final := text.String()
	if final != "" {
		emit(cli.Event{Kind: cli.EventText, Text: final})
	}
	emit(cli.Event{Kind: cli.EventResult, Result: &cli.Result{FinalText: final}})
	return nil
}

// listen passes cleaned pieces of r on until it ends or ctx does.
func listen(ctx context.Context, r io.Reader, controls <-chan cli.Control, piece func(string)) error {
	left := make(chan struct{})
	defer close(left)
	pieces, ended := make(chan string), make(chan error, 1)
	go read(r, pieces, ended, left)
	for {
		select {
		case p := <-pieces:
			piece(p)
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read the program's output: %w", err)
		case _, ok := <-controls:
			if !ok {
				controls = nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func read(r io.Reader, pieces chan<- string, ended chan<- error, left <-chan struct{}) {
	var clean cli.Cleaner
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		text := clean.Write(buf[:n])
		if err != nil {
			text += clean.Close()
		}
		if text != "" {
			select {
			case pieces <- text:
			case <-left:
				return
			}
		}
		if err != nil {
			ended <- err
			return
		}
	}
}
