package clitest

import (
	"context"
	"fmt"
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

// driveTime bounds a run of a real CLI.
const driveTime = 90 * time.Second

// Ride is one run of a real CLI, driven as a daemon does it.
type Ride struct {
	Backend cli.Backend
	Prompt  string
	Model   string
	Dir     string   // a repository; see Repository
	Env     []string // the environment but for what the backend adds
	// StopAt ends the child once an event fits.
	StopAt func(cli.Event) bool
}

// Report is what came of it.
type Report struct {
	Events []cli.Event
	Result *cli.Result
	Err    error
	Exit   proc.Exit
}

// Tools are the names of the calls that ended, "!" before those that failed.
func (r Report) Tools() []string {
	names := map[string]string{}
	var ended []string
	for _, e := range r.Events {
		switch e.Kind {
		case cli.EventToolStart:
			names[e.Tool.ID] = e.Tool.Name
		case cli.EventToolEnd:
			name := names[e.Tool.ID]
			if e.Tool.Failed {
				name = "!" + name
			}
			ended = append(ended, name)
		}
	}
	return ended
}

// Drive runs the CLI to its end.
func Drive(t *testing.T, ride Ride) Report {
	t.Helper()
	in := cli.Input{Prompt: ride.Prompt, Dir: ride.Dir, StateDir: t.TempDir(), Model: ride.Model, Role: pulse.RolePulsing, Iteration: 1}
	c, err := ride.Backend.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start(proc.Spec{
		Path: c.Path, Args: c.Args, Dir: in.Dir, Env: slices.Concat(ride.Env, c.Env), Marker: fmt.Sprintf("%s-%d", t.Name(), os.Getpid()), Grace: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), driveTime)
	defer cancel()
	stopped := make(chan struct{}, 1)
	var r Report
	r.Err = ride.Backend.Converse(ctx, cli.Wire{Stdin: p.Stdin(), Stdout: p.Stdout()}, in, nil, func(e cli.Event) {
		r.Events = append(r.Events, e)
		if ride.StopAt != nil && ride.StopAt(e) {
			ride.StopAt = nil
			go func() { p.Stop(ctx); stopped <- struct{}{} }()
		}
	})
	if ctx.Err() != nil {
		t.Errorf("the CLI did not end within %v", driveTime)
	}
	r.Exit = p.Stop(ctx)
	if r.Err == nil {
		checkOrder(t, r.Events)
		r.Result = heard{events: r.Events}.result()
	}
	if t.Failed() {
		t.Logf("events:\n%s\nexit: %+v", render(heard{events: r.Events, err: r.Err}), r.Exit)
	}
	return r
}

// Repository is a git repository with one commit and the given files.
func Repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	Git(t, dir, "init", "-q", "-b", "main")
	Git(t, dir, "config", "user.name", "agent")
	Git(t, dir, "config", "user.email", "agent@example.invalid")
	Git(t, dir, "add", "-A")
	Git(t, dir, "commit", "-q", "--allow-empty", "-m", "start")
	return dir
}

// Git runs git in dir and gives its output.
func Git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, exit, err := proc.Output(t.Context(), proc.Spec{
		Path: "git", Args: args, Dir: dir, Env: proc.BaseEnv("GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"),
	})
	if err != nil || !exit.OK() {
		t.Fatalf("git %q: %v %+v", args, err, exit)
	}
	return strings.TrimSpace(string(out))
}
