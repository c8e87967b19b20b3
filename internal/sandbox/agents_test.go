//go:build linux

package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pulseloop/agent/cli"
	"pulseloop/agent/cli/claude"
	"pulseloop/agent/cli/codex"
	"pulseloop/internal/modeltest"
	"pulseloop/internal/proc"
)

// agentRun is a real CLI that does as a scripted model says.
type agentRun struct {
	cmd cli.Command
	env []string
	srv *modeltest.Server
}

// what the model has its agent do: work, and look where it may not.
const agentWork = `echo made >by-command.txt && git add -A && git commit -q -m 'feat: a greeting' && f=$(mktemp) && echo x >$f; ` +
	`cat "$DATA/token" >stolen.txt; echo x >"$OUTSIDE/new"; cat /proc/$OUTSIDER/environ >>stolen.txt; true`

func claudeRun(t *testing.T, w world) agentRun {
	srv := modeltest.Anthropic(modeltest.Turns(
		[]modeltest.Step{modeltest.Tool("Write", map[string]string{"file_path": filepath.Join(w.tree, "by-tool.txt"), "content": "made\n"})},
		[]modeltest.Step{modeltest.Tool("Bash", map[string]string{"command": agentWork, "description": "Do it"})},
		[]modeltest.Step{modeltest.Say("It is done.")})...)
	cmd, err := claude.New(claude.Config{Path: modeltest.CLI(t, "claude")}).Command(cli.Input{Dir: w.tree})
	if err != nil {
		t.Fatal(err)
	}
	return agentRun{cmd: cmd, srv: srv, env: modeltest.ClaudeEnv(t, srv)}
}

func codexRun(t *testing.T, w world) agentRun {
	srv := modeltest.Responses(modeltest.Turns(
		[]modeltest.Step{modeltest.Tool("exec_command", map[string]any{"cmd": "echo made >by-tool.txt"})},
		[]modeltest.Step{modeltest.Tool("exec_command", map[string]any{"cmd": agentWork})},
		[]modeltest.Step{modeltest.Say("It is done.")})...)
	// Its own sandbox makes namespaces and mounts, which ours does not let it.
	cmd, err := codex.New(codex.Config{Path: modeltest.CLI(t, "codex"), Sandbox: codex.SandboxNone}).Command(cli.Input{Dir: w.tree})
	if err != nil {
		t.Fatal(err)
	}
	return agentRun{cmd: cmd, srv: srv, env: modeltest.CodexEnv(t, srv)}
}

func TestRealAgents(t *testing.T) {
	for name, make := range map[string]func(*testing.T, world) agentRun{"claude": claudeRun, "codex": codexRun} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, l Level) {
				w := newWorld(t, l)
				w.withGit(t)
				r := make(t, w)
				t.Cleanup(r.srv.Close)
				r.check(t, w)
			})
		})
	}
}

func (r agentRun) check(t *testing.T, w world) {
	env := slices.Concat(gitEnv(), r.env, r.cmd.Env, []string{"DATA=" + w.data, "OUTSIDE=" + w.outside, "OUTSIDER=" + strconv.Itoa(w.outsider)})
	for _, kv := range r.env {
		if home, ok := strings.CutPrefix(kv, "HOME="); ok {
			w.policy.Read = append(w.policy.Read, home) // claude needs no more
		}
		if home, ok := strings.CutPrefix(kv, "CODEX_HOME="); ok {
			w.policy.Write = append(w.policy.Write, home)
		}
	}
	c, release, err := newSandbox(t).Wrap(w.policy, Command{Path: r.cmd.Path, Args: r.cmd.Args, Dir: w.tree, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	p, err := proc.Start(proc.Spec{Path: c.Path, Args: c.Args, Dir: c.Dir, Env: c.Env, Marker: w.marker(), Stdin: []byte("Make a greeting.")})
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(p.Stdout())
	<-p.Done()
	if exit := p.Exit(); !exit.OK() || !strings.Contains(string(out), "It is done.") {
		t.Fatalf("%+v\n%s", exit, out)
	}
	for _, v := range r.srv.Violations() {
		t.Error(v)
	}
	if log := git(t, w.tree, "log", "--format=%s"); log != "feat: a greeting\nstart\n" {
		t.Errorf("log %q\n%s", log, out)
	}
	for _, name := range []string{"by-tool.txt", "by-command.txt"} {
		if b, err := os.ReadFile(filepath.Join(w.tree, name)); string(b) != "made\n" {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(w.tree, "stolen.txt")); len(b) > 0 {
		t.Errorf("stolen: %q", b)
	}
	w.untouched(t)
}
