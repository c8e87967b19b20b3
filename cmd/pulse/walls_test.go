package main

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pulseloop/configs"
	"pulseloop/internal/sandbox"
	"pulseloop/pulse"
)

// A sandbox that would have to start itself and cannot has no level that works.
func noWalls() *sandbox.Sandbox {
	return sandbox.New(sandbox.Config{Self: []string{"/bin/false"}, SecondStart: true})
}

func TestSandboxFindings(t *testing.T) {
	cfg := configs.Config{DataDir: t.TempDir()}
	works := sandbox.Report{Best: sandbox.None, Why: map[sandbox.Level]string{sandbox.Landlock: "too old", sandbox.Bubblewrap: "not there"}}
	for configured, want := range map[string]struct {
		state  state
		detail string
	}{
		"none":       {stateWarn, "one could read " + tokenFile(cfg)},
		"auto":       {stateWarn, "too old"},
		"landlock":   {stateFail, "the sandbox landlock cannot be had"},
		"bubblewrap": {stateFail, "the sandbox bubblewrap cannot be had"},
	} {
		f := sandboxFinding(t.Context(), cfg, noWalls(), works, configured, "agents")
		if f.State != want.state || !strings.Contains(f.Detail, want.detail) || f.Fix == "" {
			t.Errorf("%s: %+v", configured, f)
		}
	}
}

// At the start it is said which agents cannot run, why, and what to do.
func TestSandboxesAreTriedAtTheStart(t *testing.T) {
	var said bytes.Buffer
	w := walls{cfg: configs.Config{Sandbox: "none", Projects: map[string]configs.Project{"strict": {Sandbox: "bubblewrap"}, "same": {}}},
		box: sandbox.New(sandbox.Config{Self: []string{"/bin/false"}, SecondStart: true, Bubblewrap: "/no/such/bwrap"})}
	if err := w.tryOut(t.Context(), slog.New(slog.NewTextHandler(&said, nil))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"run without a sandbox", `who="agents of strict"`, "bwrap is not installed", "the package bubblewrap", "fix="} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is not in %s", want, said.String())
		}
	}
}

func TestWhatIsHiddenFromAnAgent(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	cfg := configs.Config{DataDir: "/data", File: "/etc/pulse.yaml", Sandbox: "none", Projects: map[string]configs.Project{"strict": {Sandbox: "landlock"}},
		Agents: map[string]configs.Agent{"command": {Command: []string{"agent", "/opt/agent.py"}}}}
	projects := []pulse.Project{{Path: "/src/mine"}, {Path: "/src/theirs"}, {Path: "/home/ann"}, {Path: "/src"}}
	w := walls{cfg: cfg, box: noWalls(), projects: func(context.Context) ([]pulse.Project, error) { return projects, nil }}
	if p, err := w.confine(t.Context(), pulse.Task{Spec: pulse.TaskSpec{ProjectName: "mine"}}); err != nil || p.Level != sandbox.None {
		t.Errorf("as everywhere: %+v %v", p, err)
	}
	if _, err := w.confine(t.Context(), pulse.Task{Spec: pulse.TaskSpec{ProjectName: "strict"}}); pulse.CodeOf(err) != pulse.CodeUnavailable {
		t.Errorf("a level that does not work: %v", err)
	}
	p := w.policy(sandbox.Landlock, "/src/mine", projects)
	for _, path := range []string{"/data", "/etc/pulse.yaml", "/src/theirs", "/home/ann/.ssh", "/home/ann/.claude", "/home/ann/.codex"} {
		if !slices.Contains(p.Hidden, path) {
			t.Errorf("%s is not hidden", path)
		}
	}
	for _, path := range []string{"/src/mine", "/home/ann", "/src"} {
		if slices.Contains(p.Hidden, path) {
			t.Errorf("%s is hidden", path)
		}
	}
	if !slices.Contains(p.Read, "/src/mine") || !slices.Contains(p.Read, "/opt/agent.py") || len(p.Write) != 0 {
		t.Errorf("%+v", p)
	}
}
