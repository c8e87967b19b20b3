//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pulseloop/internal/proc"
)

// The first argument makes the test binary play another part.
const (
	playSelf   = "play-self"   // the program that calls Main
	playTrace  = "play-trace"  // an agent that attaches itself to a process
	playDial   = "play-dial"   // an agent that connects to a socket
	playParent = "play-parent" // a daemon that starts an agent and is killed
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case playSelf:
			os.Exit(Main(os.Args[2:], os.Stderr))
		case playTrace:
			os.Exit(trace(os.Args[2]))
		case playDial:
			os.Exit(dial(os.Args[2]))
		case playParent:
			os.Exit(parent(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

func trace(pid string) int {
	var n int
	_, _ = fmt.Sscan(pid, &n)
	if err := syscall.PtraceAttach(n); err == nil {
		_ = syscall.PtraceDetach(n)
		return 0
	}
	// Reading its memory needs the same right; nobody has anything at address
	// 0, so a process that may be read answers "bad address".
	var b [1]byte
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	_, err := unix.ProcessVMReadv(n, local, []unix.RemoteIovec{{Base: 0, Len: 1}}, 0)
	if err == nil || err == unix.EFAULT {
		return 0
	}
	return 1
}

func dial(address string) int {
	c, err := net.DialTimeout("unix", address, time.Second)
	if err != nil {
		return 1
	}
	_ = c.Close()
	return 0
}

// both are the levels that make walls. A machine on which one of them cannot
// be had skips it, except in CI.
func both(t *testing.T, f func(t *testing.T, l Level)) {
	r, err := tried()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []Level{Landlock, Bubblewrap} {
		t.Run(string(l), func(t *testing.T) {
			if !r.Works(l) {
				if os.Getenv("CI") == "true" {
					t.Fatal(r.Why[l])
				}
				t.Skip(r.Why[l])
			}
			f(t, l)
		})
	}
}

// twice is how the name of a subtest says that it makes walls by a second
// start of our program, as they are made where a child cannot make its own.
const twice = "by-a-second-start"

// each is both, in each of the ways in which a level is made.
func each(t *testing.T, f func(t *testing.T, l Level)) {
	both(t, func(t *testing.T, l Level) {
		if proc.CanConfine {
			t.Run("at-once", func(t *testing.T) { f(t, l) })
		}
		t.Run(twice, func(t *testing.T) { f(t, l) })
	})
}

// tried is what works on this machine, asked once.
var tried = sync.OnceValues(func() (Report, error) {
	self, err := os.Executable()
	if err != nil {
		return Report{}, err
	}
	return New(Config{Self: []string{self, playSelf}}).Probe(context.Background())
})

func testBinary(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

func newSandbox(t *testing.T) *Sandbox {
	t.Helper()
	return New(Config{Self: []string{testBinary(t), playSelf}, SecondStart: strings.Contains(t.Name(), "/"+twice)})
}

const topSecret = "TOP-SECRET"

// world is a daemon's data and the agent's place in it.
type world struct {
	data     string // hidden: the token, the database, trees, stores
	tree     string // the agent's
	store    string // readable objects
	other    string // hidden: another project
	outside  string // readable
	state    string // the CLI's own
	outsider int    // a process with a secret in its environment, in data
	policy   Policy
}

func newWorld(t *testing.T, l Level) world {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	w := world{data: at("data"), tree: at("data", "worktrees", "mine"), store: at("data", "repos", "r", "store.git"),
		other: at("src", "other"), outside: at("src", "readable"), state: at("home", ".cli")}
	for name, text := range map[string]string{
		"data/token": topSecret, "data/pulse.db": topSecret, "data/worktrees/theirs/file": topSecret, "data/repos/s/store.git/x": topSecret,
		"src/other/file": topSecret, "src/readable/file": "plain", "home/.cli/state": "old", "data/worktrees/mine/file": "mine",
		"data/repos/r/store.git/config": topSecret,
	} {
		write1(t, at(name), text)
	}
	write1(t, filepath.Join(w.store, "objects", "x"), "object")
	w.policy = Policy{Level: l, Write: []string{w.tree, w.state}, Hidden: []string{w.data, w.other},
		Read: []string{filepath.Join(w.store, "objects"), w.outside, testBinary(t)}}
	cmd := exec.Command("sleep", "1000")
	cmd.Dir, cmd.Env = w.data, []string{"TOKEN=" + topSecret}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	w.outsider = cmd.Process.Pid
	return w
}

// withGit makes the readable place a repository, and the tree one that borrows
// its objects from the store.
func (w world) withGit(t *testing.T) {
	t.Helper()
	git(t, w.outside, "init", "-q", "-b", "main")
	git(t, w.outside, "add", "file")
	git(t, w.outside, "commit", "-q", "-m", "start")
	if out, err := exec.Command("cp", "-r", filepath.Join(w.outside, ".git", "objects"), w.store).CombinedOutput(); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	git(t, w.tree, "init", "-q", "-b", "main")
	write1(t, filepath.Join(w.tree, ".git", "objects", "info", "alternates"), filepath.Join(w.store, "objects")+"\n")
	git(t, w.tree, "update-ref", "refs/heads/main", strings.TrimSpace(git(t, w.outside, "rev-parse", "HEAD")))
	git(t, w.tree, "reset", "-q")
}

func write1(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func gitEnv() []string {
	return proc.BaseEnv("GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.invalid",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.invalid")
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, exit, err := proc.Output(t.Context(), proc.Spec{Path: "git", Args: args, Dir: dir, Env: gitEnv()})
	if err != nil || !exit.OK() {
		t.Fatalf("git %q: %v %+v", args, err, exit)
	}
	return string(out)
}

// run runs a shell script behind the walls and gives what it printed, stderr
// included.
func (w world) run(t *testing.T, script string) (string, proc.Exit) {
	t.Helper()
	return w.runIn(t, newSandbox(t), script)
}

func (w world) runIn(t *testing.T, s *Sandbox, script string) (string, proc.Exit) {
	t.Helper()
	env := append(gitEnv(), "DATA="+w.data, "OTHER="+w.other, "OUTSIDE="+w.outside, "STATE="+w.state, "STORE="+w.store, "TREE="+w.tree,
		fmt.Sprintf("OUTSIDER=%d", w.outsider), "ME="+testBinary(t))
	c, release, err := s.Wrap(w.policy, Command{Path: "sh", Args: []string{"-c", "exec 2>&1\n" + script}, Dir: w.tree, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	c.Marker = "sandbox-" + filepath.Base(w.tree)
	out, exit, err := proc.Output(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + exit.Stderr, exit
}
