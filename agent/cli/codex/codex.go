// Package codex drives the Codex CLI (`codex exec --json`). It owns the argv,
// the environment and the decoding of that one CLI; it decides nothing about
// what a result means. A Backend is safe for concurrent use and keeps nothing
// of a run.
//
// The facts about the CLI come from runs of version 0.169.0, recorded under
// testdata.
package codex

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"pulseloop/agent/cli"
)

const name = "codex"

// The sandboxes Codex puts around the commands of its model.
const (
	SandboxWorkspace = "workspace-write"
	SandboxNone      = "danger-full-access"
	SandboxReadOnly  = "read-only"
)

// Config says how to run the CLI. The zero value takes it from PATH, with its
// own defaults and commands that write to the worktree alone.
type Config struct {
	Path    string        // the program; "" is `codex` on PATH
	Model   string        // used where the run names none
	Sandbox string        // one of the constants; "" is SandboxWorkspace
	Network bool          // let commands reach the network in SandboxWorkspace
	Args    []string      // put after the arguments of ours
	Env     []string      // "K=V", beside what is passed on
	Linger  time.Duration // how long to wait for more after a result; 0 is cli.DefaultLinger
}

// Backend is Codex.
type Backend struct{ cfg Config }

// New makes a Backend; nothing is looked up yet.
func New(cfg Config) *Backend { return &Backend{cfg: cfg} }

// Name is "codex".
func (b *Backend) Name() string { return name }

// Command gives the argv of one run; the prompt is not part of it.
//
// The sandbox of Codex holds .git read-only, which would take the agent's own
// commits away; the tree's is its own, so it is opened. The tree counts as
// untrusted, whatever the person has said of other checkouts of the
// repository: a trusted one starts the servers its own files name.
func (b *Backend) Command(in cli.Input) (cli.Command, error) {
	path, err := cli.Find(b.cfg.Path, name)
	if err != nil {
		return cli.Command{}, err
	}
	sandbox := b.cfg.Sandbox
	switch sandbox {
	case "":
		sandbox = SandboxWorkspace
	case SandboxWorkspace, SandboxNone, SandboxReadOnly:
	default:
		return cli.Command{}, fmt.Errorf("codex knows no sandbox %q: use %s, %s or %s", sandbox, SandboxWorkspace, SandboxNone, SandboxReadOnly)
	}
	if in.Sandboxed && sandbox == SandboxWorkspace {
		sandbox = SandboxNone
	}
	args := []string{"exec", "--json", "--skip-git-repo-check", "-s", sandbox}
	args = append(args, "-c", fmt.Sprintf(`projects={ %s = { trust_level = "untrusted" } }`, tomlString(in.Dir)))
	if sandbox == SandboxWorkspace {
		git := tomlString(filepath.Join(in.Dir, ".git"))
		args = append(args, "-c", fmt.Sprintf("sandbox_workspace_write.writable_roots=[%s]", git),
			"-c", "sandbox_workspace_write.network_access="+strconv.FormatBool(b.cfg.Network))
	}
	model := in.Model
	if model == "" {
		model = b.cfg.Model
	}
	if model != "" {
		args = append(args, "-m", model)
	}
	args = append(args, b.cfg.Args...)
	home := b.home()
	return cli.Command{
		Path: path, Args: append(args, "-"),
		Pass: cli.Set(append(passed(), home.keyNames()...)),
		Env:  append(home.substituteKey(), b.cfg.Env...),
		Home: &cli.Home{Env: "CODEX_HOME", Dir: home.dir, Keep: []string{"auth.json"},
			Share: []string{"AGENTS.md", "AGENTS.override.md", "prompts", "rules", "managed_config.toml"},
			// It writes into these, or beside them.
			Copies: map[string]string{"config.toml": filepath.Join(home.dir, "config.toml")}},
	}, nil
}

func passed() []string {
	return append([]string{"CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"}, cli.NetworkEnv()...)
}

// Converse feeds the prompt and decodes what comes back. Controls are not
// taken: exec reads its prompt and then nothing more.
func (b *Backend) Converse(ctx context.Context, w cli.Wire, in cli.Input, controls <-chan cli.Control, emit func(cli.Event)) error {
	fed := cli.Feed(w.Stdin, in.Prompt)
	d := &decoder{dir: in.Dir, model: in.Model, emit: emit, open: map[string]bool{}}
	if d.model == "" {
		d.model = b.cfg.Model
	}
	err := cli.Talk{
		OnLine:  func(l cli.Line) error { d.line(l); return nil },
		Settled: func() bool { return d.ended },
		Linger:  b.cfg.Linger,
	}.Run(ctx, w.Stdout, controls)
	_ = w.Stdin.Close()
	<-fed
	if err != nil {
		return err
	}
	result := d.outcome()
	if result == nil {
		return errors.New("codex ended without a result")
	}
	emit(cli.Event{Kind: cli.EventResult, Result: result})
	return nil
}
