package agent_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pulseloop/agent"
	"pulseloop/agent/agenttest"
	"pulseloop/agent/cli"
	"pulseloop/agent/cli/scripted"
	"pulseloop/agent/worktree"
	"pulseloop/pulse"
)

var (
	_ agent.Queue    = (*agenttest.Queue)(nil)
	_ agent.Registry = (*agenttest.Queue)(nil)
	_ agent.Waker    = (*agenttest.Queue)(nil)
	_ cli.Backend    = (*agenttest.Shell)(nil)
)

// playScripted makes the test's own binary the scripted agent.
const playScripted = "AGENT_TEST_PLAY_SCRIPTED"

func TestMain(m *testing.M) {
	if os.Getenv(playScripted) != "" {
		os.Exit(scripted.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	goleak.VerifyTestMain(m)
}

// world is a daemon with all it needs, in memory but for the agent's process.
type world struct {
	t     *testing.T
	queue *agenttest.Queue
	shell *agenttest.Shell
	trees *trees
	state string
	logs  *logs
	cfg   agent.Config

	stop func() // ends Run's ctx
	done chan struct{}
}

func newWorld(t *testing.T, script string, adjust ...func(*agent.Config)) *world {
	w := &world{t: t, queue: agenttest.New(t, nil), shell: &agenttest.Shell{Script: script}, trees: &trees{path: t.TempDir()},
		state: filepath.Join(t.TempDir(), "run"), logs: &logs{t: t}, done: make(chan struct{})}
	w.cfg = agent.Config{ID: "d1", Queue: w.queue, Registry: w.queue, Waker: w.queue, Trees: w.trees, StateDir: w.state,
		Backends: map[string]cli.Backend{"shell": w.shell}, Log: slog.New(slog.NewTextHandler(w.logs, nil)),
		Flush: 10 * time.Millisecond, Poll: 50 * time.Millisecond, Slots: 2}
	for _, a := range adjust {
		a(&w.cfg)
	}
	return w
}

// start runs the daemon until the test ends or stop is called.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() {
		defer close(w.done)
		if err := agent.New(w.cfg).Run(ctx); err != nil {
			w.t.Errorf("run: %v", err)
		}
	}()
	w.t.Cleanup(func() {
		w.end()
		if n := w.queue.Waiting(); n > 0 {
			w.t.Errorf("%d waiters are left", n)
		}
		if left, _ := os.ReadDir(w.state); len(left) > 0 {
			w.t.Errorf("left in the state directory: %v", left)
		}
	})
}

// end stops the daemon and waits for it.
func (w *world) end() {
	w.t.Helper()
	w.stop()
	select {
	case <-w.done:
	case <-time.After(40 * time.Second):
		w.t.Fatal("the daemon does not end")
	}
}

func (w *world) add() pulse.Task {
	return w.queue.Add(pulse.Task{Content: "the prompt", MaxAttempts: 3, MediaContext: pulse.MediaContext{ProjectID: "p1", IterationNumber: 2},
		Spec: pulse.TaskSpec{Role: pulse.RolePulsing, Agent: "shell", RepoPath: "/repo", Branch: "pulse/x", Subject: "feat: add a thing"}})
}

// run starts the daemon and gives one task and its stream when it is over.
func (w *world) run() (pulse.Task, pulse.StreamBatch) {
	w.t.Helper()
	t := w.add()
	w.start()
	return w.over(t)
}

func (w *world) over(t pulse.Task) (pulse.Task, pulse.StreamBatch) {
	w.t.Helper()
	t = w.queue.Await(t.ID, "an end", func(t pulse.Task, _ pulse.StreamBatch) bool { return t.Status.Over() })
	return t, w.queue.Stream(t.ID)
}

// file waits for a file in the tree and gives its text.
func (w *world) file(name string) string {
	w.t.Helper()
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
		if b, err := os.ReadFile(filepath.Join(w.trees.path, name)); err == nil && strings.HasSuffix(string(b), "\n") {
			return strings.TrimSpace(string(b))
		}
		<-time.After(2 * time.Millisecond)
	}
	w.t.Fatalf("the agent never wrote %s", name)
	return ""
}

// alive reports whether the process whose id stands in a file lives.
func (w *world) alive(name string) bool {
	w.t.Helper()
	pid, err := strconv.Atoi(w.file(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return syscall.Kill(pid, 0) == nil
}

// trees gives one directory for all sessions and notes what is asked of it.
type trees struct {
	path       string
	ensure     func(context.Context) error
	checkpoint func() error

	mu    sync.Mutex
	wants []worktree.Want
	saves []worktree.Save
}

func (f *trees) Ensure(ctx context.Context, w worktree.Want) (worktree.Tree, error) {
	f.mu.Lock()
	f.wants = append(f.wants, w)
	ensure := f.ensure
	f.mu.Unlock()
	if ensure != nil {
		if err := ensure(ctx); err != nil {
			return worktree.Tree{}, err
		}
	}
	return worktree.Tree{Path: f.path, Repo: w.Repo, Key: w.Key, Branch: w.Branch}, nil
}

// onEnsure sets what happens when a tree is made from now on.
func (f *trees) onEnsure(ensure func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ensure = ensure
}

func (f *trees) Checkpoint(_ context.Context, _ worktree.Tree, s worktree.Save) (worktree.Checkpoint, error) {
	f.mu.Lock()
	f.saves = append(f.saves, s)
	f.mu.Unlock()
	if f.checkpoint != nil {
		if err := f.checkpoint(); err != nil {
			return worktree.Checkpoint{}, err
		}
	}
	return worktree.Checkpoint{Commit: "c0ffee", Commits: 1, Files: []string{"a.txt"}, Published: true, Notes: []string{"a note"}}, nil
}

func (f *trees) saved() []worktree.Save {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saves
}

// logs shows the daemon's log when a test fails.
type logs struct {
	t  *testing.T
	mu sync.Mutex
	b  strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() == 0 {
		l.t.Cleanup(func() {
			if l.t.Failed() {
				l.t.Log(l.String())
			}
		})
	}
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
