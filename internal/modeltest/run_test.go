package modeltest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pulseloop/internal/proc"
)

// scenario is one run of a real CLI: against which scripts, and what must come of it. Its stream is a fixture of the backend.
type scenario struct {
	name    string
	prompt  string
	scripts []Script
	args    []string
	env     []string
	// interrupt sends SIGINT once a line with this text has come and the agent's command has made the file begun.
	interrupt string
	// loose says that timing decides which events come, so that no two streams need look alike.
	loose bool
	// exit is the expected exit code.
	exit int
	// files must be there afterwards, and commits is how many commits the agent made.
	files   []string
	commits int
	check   func(t *testing.T, r recording)
}

// recording is what a run left behind.
type recording struct {
	lines    [][]byte
	exit     proc.Exit
	requests []Request
}

// program is a CLI under test.
type program struct {
	name    string
	version string
	args    []string
	serve   func(...Script) *Server
	env     func(testing.TB, *Server) []string
	// shape reduces an event to what does not change from run to run; empty where an event comes or not as timing has it.
	shape func(event obj) string
}

// play runs the scenarios. With PULSE_RECORD=1 their streams become the fixtures; otherwise they must look like them.
func play(t *testing.T, p program, scenarios []scenario) {
	path := CLI(t, p.name)
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			if testing.Short() && sc.name != "commit" {
				t.Skip("in short mode one run of the CLI is enough")
			}
			t.Parallel()
			srv := start(t, p.serve, sc.scripts...)
			dir := repository(t)
			env := append(p.env(t, srv), sc.env...)
			rec := run(t, p, path, dir, env, sc)
			rec.requests = srv.Requests()
			clean(t, srv)
			verify(t, rec, dir, sc)
			if t.Failed() {
				t.Logf("stream:\n%s\nstderr:\n%s", bytes.Join(rec.lines, []byte("\n")), rec.exit.Stderr)
				return
			}
			fixture(t, p, sc.name, scrub(rec.lines, dir, env, srv.URL), sc.loose)
		})
	}
}

func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "repo")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "config", "user.name", "agent")
	git(t, dir, "config", "user.email", "agent@example.invalid")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "start")
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, exit, err := proc.Output(soon(t), proc.Spec{Path: "git", Args: args, Dir: dir, Env: baseEnv(dir)})
	if err != nil || exit.Code != 0 {
		t.Fatalf("git %q: %v %+v", args, err, exit)
	}
	return strings.TrimSpace(string(out))
}

func run(t *testing.T, p program, path, dir string, env []string, sc scenario) recording {
	t.Helper()
	spec := proc.Spec{
		Path: path, Args: append(slices.Clone(p.args), sc.args...), Dir: dir, Env: env, Stdin: []byte(sc.prompt),
		Marker: t.Name(), // an interrupted CLI can leave a command behind that only the marker finds
	}
	if p.name == "codex" {
		spec.Args = append(spec.Args, "-")
	}
	child, err := proc.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	announced, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-announced:
			appears(ctx, child, filepath.Join(dir, "begun"))
			child.Stop(ctx)
		case <-child.Done():
		case <-ctx.Done():
			child.Stop(ctx)
		}
	}()
	var rec recording
	out := bufio.NewReader(io.LimitReader(child.Stdout(), 32<<20))
	for {
		line, err := out.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			rec.lines = append(rec.lines, line)
			if sc.interrupt != "" && bytes.Contains(line, []byte(sc.interrupt)) {
				close(announced)
				sc.interrupt = ""
			}
		}
		if err != nil {
			break
		}
	}
	<-child.Done()
	<-stopped
	rec.exit = child.Exit()
	return rec
}

// appears waits for a file; it polls, because the agent's command has no other way to say that it has begun.
func appears(ctx context.Context, child *proc.Process, file string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-child.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

func verify(t *testing.T, rec recording, dir string, sc scenario) {
	t.Helper()
	if rec.exit.Code != sc.exit {
		t.Errorf("exit = %+v, want code %d", rec.exit, sc.exit)
	}
	for _, f := range sc.files {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Errorf("the agent left no %s: %v", f, err)
		}
	}
	if n := git(t, dir, "rev-list", "--count", "HEAD"); n != strconv.Itoa(sc.commits+1) {
		t.Errorf("%s commits, want the first and %d by the agent", n, sc.commits)
	}
	if sc.check != nil {
		sc.check(t, rec)
	}
}

// decoded are the stream's events; every line has to be JSON.
func (r recording) decoded(t *testing.T) []obj {
	t.Helper()
	var out []obj
	for _, l := range r.lines {
		var o obj
		if err := json.Unmarshal(l, &o); err != nil {
			t.Errorf("not JSON: %v: %s", err, l)
		}
		out = append(out, o)
	}
	return out
}

// only returns the events of a type.
func only(events []obj, typ string) []obj {
	return slices.DeleteFunc(slices.Clone(events), func(o obj) bool { return o["type"] != typ })
}
