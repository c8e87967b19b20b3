//go:build linux

package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pulseloop/internal/proc"
)

// start starts a script behind the walls, with a marker.
func (w world) start(t *testing.T, script string) *proc.Process {
	t.Helper()
	c, release, err := newSandbox(t).Wrap(w.policy, Command{Path: "sh", Args: []string{"-c", script}, Dir: w.tree, Env: proc.BaseEnv()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	c.Marker, c.Grace = w.marker(), 500*time.Millisecond
	p, err := proc.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(t.Context()); _, _ = io.Copy(io.Discard, p.Stdout()) })
	return p
}

func (w world) marker() string { return "sandbox-" + filepath.Base(filepath.Dir(w.data)) + w.tree }

// left counts the processes that carry the marker.
func left(marker string) int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	n := 0
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains("\x00"+string(b), "\x00"+proc.MarkerName+"="+marker+"\x00") {
			n++
		}
	}
	return n
}

func within5s(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestExitCode(t *testing.T) {
	each(t, func(t *testing.T, l Level) {
		w := newWorld(t, l)
		for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 143} {
			_, exit := w.run(t, script)
			if exit.Code != want && !(want == 143 && exit.Signal == "SIGTERM") {
				t.Errorf("%s: %+v", script, exit)
			}
		}
	})
}

// An interrupted agent ends in order: it says so and gives its own exit code.
func TestInterrupt(t *testing.T) {
	each(t, func(t *testing.T, l Level) {
		w := newWorld(t, l)
		p := w.start(t, `trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done`)
		out := bufio.NewReader(p.Stdout())
		if line, err := out.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q %v", line, err)
		}
		if n := left(w.marker()); n == 0 {
			t.Error("no process carries the marker")
		}
		exit := p.Stop(t.Context())
		if line, _ := out.ReadString('\n'); line != "interrupted\n" || exit.Code != 3 {
			t.Errorf("%q %+v", line, exit)
		}
	})
}

// One that does not want to end is ended, with what it left in other sessions.
func TestStubborn(t *testing.T) {
	each(t, func(t *testing.T, l Level) {
		w := newWorld(t, l)
		p := w.start(t, `trap '' INT TERM; setsid sleep 1000 & setsid sh -c 'trap "" TERM; sleep 1000' & echo ready; while :; do sleep 0.1; done`)
		out := bufio.NewReader(p.Stdout())
		if line, err := out.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q %v", line, err)
		}
		if exit := p.Stop(t.Context()); exit.OK() {
			t.Errorf("%+v", exit)
		}
		within5s(t, "all are gone", func() bool { return left(w.marker()) == 0 })
	})
}

// The end of its output is seen while the command lives, and its own files are
// all that it has.
func TestClosedOutput(t *testing.T) {
	both(t, func(t *testing.T, l Level) {
		w := newWorld(t, l)
		p := w.start(t, `[ -e /proc/self/fd/4 ] || echo ready; exec sleep 1000 >&-`)
		read := make(chan string)
		go func() {
			b, _ := io.ReadAll(p.Stdout())
			read <- string(b)
		}()
		select {
		case got := <-read:
			if got != "ready\n" {
				t.Errorf("%q", got)
			}
		case <-time.After(20 * time.Second):
			t.Error("its end is not seen")
		}
		select {
		case <-p.Gone():
			t.Error("the command has ended")
		default:
		}
		p.Stop(t.Context())
	})
}

// parent is a daemon that has started an agent: ARGUMENTS are the level, the
// marker, the tree.
func parent(args []string) int {
	self, _ := os.Executable()
	c, _, err := New(Config{Self: []string{self, playSelf}}).Wrap(Policy{Level: Level(args[0]), Write: []string{args[2]}, Temp: args[2]},
		Command{Path: "sh", Args: []string{"-c", "setsid sleep 1000 & echo ready; sleep 1000"}, Dir: args[2], Env: proc.BaseEnv()})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c.Marker = args[1]
	p, err := proc.Start(c)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = io.Copy(os.Stdout, p.Stdout())
	return 0
}

// No agent outlives a daemon that is killed.
func TestParentKilled(t *testing.T) {
	both(t, func(t *testing.T, l Level) {
		w := newWorld(t, l)
		cmd := exec.Command(testBinary(t), playParent, string(l), w.marker(), w.tree)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		n := left(w.marker())
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if line != "ready\n" || n < 2 {
			t.Fatalf("%q %v, %d processes", line, err, n)
		}
		within5s(t, "all are gone", func() bool { return left(w.marker()) == 0 })
	})
}
