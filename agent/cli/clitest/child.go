package clitest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

func (s suite) probe(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	p := s.d.New(filepath.Join(t.TempDir(), "absent"), 0).Probe(t.Context())
	if p.Installed || p.Ready() || p.Problem == "" || p.Fix == "" || p.Name == "" {
		t.Errorf("absent: %+v", p)
	}
	p = s.d.New(StandIn(t), 0).Probe(t.Context())
	if !p.Installed || p.Path != StandIn(t) || p.LoggedIn == s.d.NeedsLogin {
		t.Errorf("stand-in: %+v", p)
	}
	if p.LoggedIn != (p.Problem == "") || (p.Problem == "") != (p.Fix == "") {
		t.Errorf("problem and fix do not match: %+v", p)
	}
	if s.d.NeedsLogin && p.Version != "1.2.3" {
		t.Errorf("version %q", p.Version)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("not a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := s.d.New(broken, 0).Probe(t.Context()); p.Ready() || p.Fix == "" {
		t.Errorf("not executable: %+v", p)
	}
}

func (s suite) command(t *testing.T) {
	t.Setenv("CLAUDECODE", "1")
	const prompt = "a secret prompt that is nobody's business"
	dir := t.TempDir()
	in := cli.Input{
		Prompt: prompt, Dir: dir, StateDir: t.TempDir(), Role: pulse.RolePulsing, SessionID: "s", TaskID: "t", Iteration: 2,
	}
	b := s.d.New(StandIn(t), 0)
	c, err := b.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(c.Path) {
		t.Errorf("path %q", c.Path)
	}
	for _, word := range slices.Concat(c.Args, c.Env, c.Pass) {
		if strings.Contains(word, "secret prompt") {
			t.Errorf("the prompt shows in %q", word)
		}
	}
	for _, kv := range c.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" || k == "CLAUDECODE" {
			t.Errorf("environment has %q", kv)
		}
	}
	for _, name := range c.Pass {
		if name == "" || name == "CLAUDECODE" || strings.ContainsAny(name, "= ") || strings.HasPrefix(name, "PULSE_T") {
			t.Errorf("passes %q on", name)
		}
	}
	again, err := b.Command(in)
	if err != nil || !slices.Equal(again.Args, c.Args) || !slices.Equal(again.Env, c.Env) {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left in the worktree: %v %v", entries, err)
	}
	if _, err := s.d.New(filepath.Join(dir, "absent"), 0).Command(in); err == nil {
		t.Error("a program that is not there can be started")
	}
}

// startChild runs the stand-in for a backend's command.
func (s suite) startChild(t *testing.T, in cli.Input, stream string, env ...string) (cli.Backend, *proc.Process, string) {
	t.Helper()
	dir := t.TempDir()
	streamFile, promptFile := filepath.Join(dir, "stream"), filepath.Join(dir, "prompt")
	if err := os.WriteFile(streamFile, []byte(stream), 0o600); err != nil {
		t.Fatal(err)
	}
	b := s.d.New(StandIn(t), time.Minute)
	c, err := b.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	env = append(env, "STANDIN_STREAM="+streamFile, "STANDIN_PROMPT="+promptFile)
	p, err := proc.Start(proc.Spec{
		Path: c.Path, Args: c.Args, Dir: in.Dir, Env: proc.BaseEnv(append(c.Env, env...)...), Grace: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.Stop(ctx)
	})
	return b, p, promptFile
}

func (s suite) talk(t *testing.T, b cli.Backend, p *proc.Process, in cli.Input) heard {
	t.Helper()
	var h heard
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h.err = b.Converse(ctx, cli.Wire{Stdin: p.Stdin(), Stdout: p.Stdout()}, in, nil, func(e cli.Event) { h.events = append(h.events, e) })
	if h.err != nil {
		t.Fatalf("converse: %v", h.err)
	}
	checkOrder(t, h.events)
	return h
}

// The prompt reaches a real child whole, whatever is in it, and is then ended.
func (s suite) prompt(t *testing.T) {
	for name, prompt := range map[string]string{
		"plain":   "add a health endpoint",
		"quoting": "-p --help\n'\"$(rm -rf /)`\\\x1b[0m\tä\U0001F600\n\n{\"type\":\"result\"}",
		"large":   strings.Repeat("0123456789abcdef", 256<<10/16),
		"empty":   "",
	} {
		t.Run(name, func(t *testing.T) {
			in := cli.Input{Prompt: prompt, Dir: t.TempDir(), StateDir: t.TempDir()}
			b, p, promptFile := s.startChild(t, in, s.whole())
			h := s.talk(t, b, p, in)
			<-p.Done()
			got, err := os.ReadFile(promptFile)
			if err != nil || string(got) != prompt {
				t.Errorf("the child read %.80q, %v", got, err)
			}
			if r := h.result(); strings.TrimSpace(r.FinalText) != final || !p.Exit().OK() {
				t.Errorf("%+v %+v", *r, p.Exit())
			}
		})
	}
}

// A child that never reads its prompt still gets to say what it has to say.
func (s suite) deafChild(t *testing.T) {
	in := cli.Input{Prompt: strings.Repeat("x", 4<<20), Dir: t.TempDir(), StateDir: t.TempDir()}
	b, p, _ := s.startChild(t, in, s.whole(), "STANDIN_DEAF=1")
	if r := s.talk(t, b, p, in).result(); strings.TrimSpace(r.FinalText) != final {
		t.Errorf("%+v", *r)
	}
}
