// Package scripted is an agent that follows a script: for demonstrations,
// and for tests that need an agent to do one particular thing, misbehaving
// included. It owns the script's form, the program that plays it (Main, a
// hidden subcommand of the product's own binary, so that it is a real child
// process) and the Backend that drives the program. A Backend is safe for
// concurrent use; Main runs once a process.
//
// The program reads the prompt to the end of its standard input and writes
// JSON lines:
//
//	{"type":"session","session_id":"...","model":"scripted"}
//	{"type":"text","text":"..."}            a block of the answer
//	{"type":"text_delta","text":"..."}      a piece of the next block
//	{"type":"thought","text":"..."}
//	{"type":"note","text":"..."}
//	{"type":"tool_call","subtype":"started","name":"...","arguments":{...},"call_id":"..."}
//	{"type":"tool_call","subtype":"ended","name":"...","duration_ms":1,"call_id":"...","output":"...","is_error":false}
//	{"type":"usage","input_tokens":1,"output_tokens":1,"cache_read_tokens":0,"cache_write_tokens":0,"cost_usd":0.1}
//	{"type":"result","text":"...","error":"","hint":"","usage":{...}}
//
// "completed" is read as "ended". Usage is what was used so far. The result is the last answer: what was said since
// the last tool call.
package scripted

import (
	"context"
	"errors"
	"os"
	"time"

	"pulseloop/agent/cli"
)

const name = "scripted"

// EnvScript names the script's file for the program; without it the built-in
// demonstration is played.
const EnvScript = "PULSE_SCRIPT"

// Config says how to run the program. The zero value runs this very binary
// with the subcommand scripted-agent.
type Config struct {
	Self   string        // the program; "" is the running binary
	Args   []string      // its arguments; nil is scripted-agent
	Script string        // path of a script; "" leaves it to PULSE_SCRIPT
	Env    []string      // "K=V"
	Linger time.Duration // how long to wait for more after a result; 0 is cli.DefaultLinger
}

// Backend drives the program.
type Backend struct{ cfg Config }

// New makes a Backend; no script is read yet.
func New(cfg Config) *Backend { return &Backend{cfg: cfg} }

// Name is "scripted".
func (b *Backend) Name() string { return name }

// Probe reads the script and says what is wrong with it.
func (b *Backend) Probe(context.Context) cli.Probe {
	p := cli.Probe{Name: name, Can: cli.Abilities{Cost: true, Tokens: true}}
	path, err := b.self()
	if err != nil {
		p.Problem, p.Fix = err.Error(), "install pulse again"
		return p
	}
	p.Path, p.Installed, p.LoggedIn, p.Version = path, true, true, "1.0"
	file := b.cfg.Script
	if file == "" {
		file = os.Getenv(EnvScript)
	}
	if _, err := load(file); err != nil {
		p.Problem, p.Fix = err.Error(), "correct the script, or unset "+EnvScript+" to play the demonstration"
	}
	return p
}

func (b *Backend) self() (string, error) {
	if b.cfg.Self != "" {
		return cli.Find(b.cfg.Self, name)
	}
	return os.Executable()
}

// Command gives the argv of the program.
func (b *Backend) Command(cli.Input) (cli.Command, error) {
	path, err := b.self()
	if err != nil {
		return cli.Command{}, err
	}
	args := b.cfg.Args
	if args == nil {
		args = []string{"scripted-agent"}
	}
	c := cli.Command{Path: path, Args: args, Pass: cli.Set([]string{EnvScript}), Env: b.cfg.Env}
	if b.cfg.Script != "" {
		c.Env = append([]string{EnvScript + "=" + b.cfg.Script}, c.Env...)
	}
	return c, nil
}

// Converse feeds the prompt and decodes what comes back. Controls are not
// taken.
func (b *Backend) Converse(ctx context.Context, w cli.Wire, in cli.Input, controls <-chan cli.Control, emit func(cli.Event)) error {
	fed := cli.Feed(w.Stdin, in.Prompt)
	d := &decoder{dir: in.Dir, emit: emit}
	err := cli.Talk{
		OnLine:  func(l cli.Line) error { d.line(l); return nil },
		Settled: func() bool { return d.result != nil },
		Linger:  b.cfg.Linger,
	}.Run(ctx, w.Stdout, controls)
	_ = w.Stdin.Close()
	<-fed
	if err != nil {
		return err
	}
	if d.result == nil {
		return errors.New("the scripted agent ended without a result")
	}
	emit(cli.Event{Kind: cli.EventResult, Result: d.result})
	return nil
}
