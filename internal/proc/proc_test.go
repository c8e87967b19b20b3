//go:build linux

package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays a parent that is killed: see TestParentKilled.
func TestMain(m *testing.M) {
	if os.Getenv("PROC_TEST_PARENT") == "1" {
		playParent()
		return
	}
	goleak.VerifyTestMain(m)
}

func sh(script string) Spec {
	return Spec{Path: "sh", Args: []string{"-c", script}, Env: BaseEnv(), Grace: 150 * time.Millisecond}
}

func marked(t *testing.T, script string) Spec {
	s := sh(script)
	s.Marker = fmt.Sprintf("test-%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid())
	return s
}

func mustStart(t *testing.T, s Spec) *Process {
	t.Helper()
	p, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.Stop(ctx)
		_, _ = io.Copy(io.Discard, p.Stdout())
	})
	return p
}

// line reads one line of the child's output.
func line(t *testing.T, p *Process) string {
	t.Helper()
	s, err := bufio.NewReaderSize(p.Stdout(), 16).ReadString('\n')
	if err != nil {
		t.Fatalf("read a line: %v", err)
	}
	return strings.TrimSpace(s)
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

// exists is true for zombies too: those must not stay either.
func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

func awaitDone(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the process does not end")
	}
	return p.Exit()
}

func TestOutput(t *testing.T) {
	s := sh(`cat; echo "err" >&2; exit 3`)
	s.Stdin = []byte("fed\n")
	out, exit, err := Output(t.Context(), s)
	if err != nil || string(out) != "fed\n" || exit.Code != 3 || exit.Stderr != "err\n" || exit.OK() {
		t.Fatalf("out=%q exit=%+v err=%v", out, exit, err)
	}
}

func TestOutputWithoutStdinReadsNothing(t *testing.T) {
	out, exit, err := Output(t.Context(), sh(`cat; echo end`))
	if err != nil || string(out) != "end\n" || !exit.OK() {
		t.Fatalf("out=%q exit=%+v err=%v", out, exit, err)
	}
}

func TestEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("PULSE_SECRET_FOR_TEST", "leak")
	for _, env := range [][]string{nil, {}, BaseEnv("A=1")} {
		s := sh("/usr/bin/env")
		s.Path, s.Env = "/bin/sh", env
		out, _, err := Output(t.Context(), s)
		if err != nil || bytes.Contains(out, []byte("leak")) {
			t.Fatalf("env %v: %q %v", env, out, err)
		}
	}
	t.Setenv("HOME", "/before")
	env := BaseEnv("HOME=/after", "X=y=z")
	got := strings.Join(env, "\n")
	if strings.Contains(got, "/before") || !strings.Contains(got, "HOME=/after") || !strings.Contains(got, "X=y=z") {
		t.Fatalf("BaseEnv: %v", env)
	}
}

func TestStartFails(t *testing.T) {
	for _, s := range []Spec{{}, {Path: "/no/such/program"}, {Path: "no-such-program-anywhere"}, {Path: "sh", Dir: "/no/such/dir"}} {
		if p, err := Start(s); err == nil || p != nil {
			t.Errorf("%+v: started", s)
		}
	}
	fds := openFiles(t)
	for range 20 {
		_, _ = Start(Spec{Path: "/no/such/program"})
	}
	if got := openFiles(t); got > fds+2 {
		t.Errorf("%d files open, %d before", got, fds)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestOutputBounded(t *testing.T) {
	s := sh("exec yes")
	s.MaxOutput = 1 << 20
	out, _, err := Output(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") || len(out) != 1<<20 {
		t.Fatalf("%d bytes, %v", len(out), err)
	}
}

func TestStderrFloodKeepsTail(t *testing.T) {
	_, exit, err := Output(t.Context(), sh(`head -c 20000000 /dev/zero | tr '\0' 'x' >&2; echo last >&2`))
	if err != nil || len(exit.Stderr) != stderrTail || !strings.HasSuffix(exit.Stderr, "xlast\n") {
		t.Fatalf("%d bytes, %v", len(exit.Stderr), err)
	}
}

func TestOutputContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, exit, err := Output(ctx, sh(`trap '' INT TERM; while :; do sleep 1; done`))
	if !errors.Is(err, context.DeadlineExceeded) || exit.Signal != "SIGKILL" || exit.Code != -1 {
		t.Fatalf("exit=%+v err=%v", exit, err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Fatalf("took %v", d)
	}
	if _, _, err := Output(ctx, sh("echo never")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("started under an ended context: %v", err)
	}
}

func TestOutputContextAfterClosedStdout(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, exit, err := Output(ctx, sh(`exec 1>&-; exec sleep 60`))
	if !errors.Is(err, context.DeadlineExceeded) || exit.Signal != "SIGINT" {
		t.Fatalf("exit=%+v err=%v", exit, err)
	}
}

// Each step of the escalation is what ends a child that ignores the others.
func TestEscalation(t *testing.T) {
	tests := []struct{ name, script, signal, said string }{
		{"interrupt", `trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.02; done`, "", "int"},
		{"closed input", `trap '' INT; echo ready; cat; echo eof`, "", "eof"},
		{"terminate", `trap '' INT; trap 'echo term; exit 6' TERM; echo ready; while :; do sleep 0.02; done`, "", "term"},
		{"kill", `trap '' INT TERM; echo ready; while :; do sleep 0.02; done`, "SIGKILL", ""},
		{"stopped", `echo ready; kill -STOP $$`, "SIGINT", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := mustStart(t, marked(t, tt.script))
			if got := line(t, p); got != "ready" {
				t.Fatalf("said %q", got)
			}
			exit := p.Stop(t.Context())
			rest, _ := io.ReadAll(p.Stdout())
			if tt.signal != "" && tt.name != "stopped" && exit.Signal != tt.signal || !strings.Contains(string(rest), tt.said) {
				t.Fatalf("exit=%+v said %q", exit, rest)
			}
			if exit.Err != nil || exists(p.Pid()) {
				t.Fatalf("still there: %+v", exit)
			}
			if again := p.Stop(t.Context()); again != exit {
				t.Errorf("second stop: %+v, first %+v", again, exit)
			}
		})
	}
}

func TestStopInAHurry(t *testing.T) {
	s := marked(t, `trap '' INT TERM; echo ready; while :; do sleep 1; done`)
	s.Grace = time.Minute
	p := mustStart(t, s)
	line(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if exit := p.Stop(ctx); exit.Signal != "SIGKILL" || time.Since(begin) > 5*time.Second {
		t.Fatalf("exit=%+v after %v", exit, time.Since(begin))
	}
}

// A stray in a session of its own, its parent dead, output pipe still open,
// signals ignored: gone when the child is done, and the pipe has ended.
func TestSetsidStrayEnds(t *testing.T) {
	tests := map[string]string{
		"child ends by itself": `setsid sh -c 'trap "" INT TERM HUP; echo $$; while :; do sleep 0.05; done' & sleep 0.2; exit 0`,
		"child is stopped":     `setsid sh -c 'trap "" INT TERM HUP; echo $$; while :; do sleep 0.05; done' & sleep 60`,
		"two steps away":       `setsid sh -c 'setsid sh -c "trap \"\" TERM; echo \$\$; while :; do sleep 0.05; done" & exit 0' ; sleep 60`,
	}
	for name, script := range tests {
		t.Run(name, func(t *testing.T) {
			p := mustStart(t, marked(t, script))
			stray := atoi(t, line(t, p))
			if !strings.HasPrefix(name, "child ends") {
				p.Stop(t.Context())
			}
			if exit := awaitDone(t, p); exit.Err != nil {
				t.Fatalf("%+v", exit)
			}
			if exists(stray) {
				t.Fatalf("stray %d lives", stray)
			}
			if _, err := io.ReadAll(p.Stdout()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A stray that drops the marker too is known by its ancestry.
func TestStrayWithoutEnvironment(t *testing.T) {
	p := mustStart(t, marked(t, `env -i PATH="$PATH" setsid sh -c 'echo $$; while :; do sleep 0.05; done' & sleep 60`))
	stray := atoi(t, line(t, p))
	p.Stop(t.Context())
	if exists(stray) {
		t.Fatalf("stray %d lives", stray)
	}
}

// A daemon that its child disowned before ending: adopted, seen by the
// household's round, ended with the child.
func TestRoundSeesOrphans(t *testing.T) {
	p := mustStart(t, marked(t, `sh -c 'setsid sh -c "echo \$\$; exec sleep 300" & exit 0'; cat`))
	stray := atoi(t, line(t, p))
	household.round(time.Now())
	known := false
	for _, id := range p.acquainted() {
		known = known || id.pid == stray
	}
	if !known {
		t.Fatalf("stray %d unknown", stray)
	}
	if err := syscall.Kill(stray, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "reap a dead orphan while its child lives", func() bool {
		household.round(time.Now())
		return !exists(stray)
	})
	_ = p.Stdin().Close()
	if exit := awaitDone(t, p); !exit.OK() {
		t.Fatalf("%+v", exit)
	}
}

// What a sibling for the same task runs is not a stray.
func TestSiblingWithSameMarkerSurvives(t *testing.T) {
	long := mustStart(t, marked(t, `echo up; cat; echo fine`))
	line(t, long)
	if _, exit, err := Output(t.Context(), marked(t, `sleep 0.01`)); err != nil || !exit.OK() {
		t.Fatal(exit, err)
	}
	_ = long.Stdin().Close()
	rest, _ := io.ReadAll(long.Stdout())
	if exit := awaitDone(t, long); !exit.OK() || string(rest) != "fine\n" {
		t.Fatalf("%+v %q", exit, rest)
	}
}

// Zombies of children that others wait for are not touched.
func TestForeignChildIsLeftToItsWaiter(t *testing.T) {
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, exit, err := Output(t.Context(), marked(t, "sleep 0.1")); err != nil || !exit.OK() {
		t.Fatal(exit, err)
	}
	household.round(time.Now())
	if err := cmd.Wait(); err != nil {
		t.Fatalf("its wait was stolen: %v", err)
	}
}

func TestStdoutClosedButAlive(t *testing.T) {
	p := mustStart(t, marked(t, `exec 1>&-; exec sleep 60`))
	if out, err := io.ReadAll(p.Stdout()); len(out) != 0 || err != nil {
		t.Fatalf("%q %v", out, err)
	}
	select {
	case <-p.Done():
		t.Fatal("ended too early")
	default:
	}
	if exit := p.Stop(t.Context()); exit.Signal != "SIGINT" {
		t.Fatalf("%+v", exit)
	}
}

func TestStdinNeverRead(t *testing.T) {
	s := marked(t, `echo up; exec sleep 60`)
	s.Stdin = bytes.Repeat([]byte("x"), 8<<20)
	p := mustStart(t, s)
	line(t, p)
	if exit := p.Stop(t.Context()); exit.Signal != "SIGINT" {
		t.Fatalf("%+v", exit)
	}
	q := mustStart(t, marked(t, `echo up; exec sleep 60`))
	line(t, q)
	failed := make(chan error, 1)
	go func() {
		_, err := q.Stdin().Write(make([]byte, 8<<20))
		failed <- err
	}()
	q.Stop(t.Context())
	if err := <-failed; err == nil {
		t.Fatal("a write to a dead child succeeded")
	}
	if err := q.Stdin().Close(); err != nil {
		t.Logf("close again: %v", err)
	}
}

// A writer that no search finds cannot keep the reader: here it is another
// child of the test, without marker, that was handed the pipe.
func TestStdoutEndsWithEscapedWriter(t *testing.T) {
	p := mustStart(t, marked(t, `echo up; cat`))
	line(t, p)
	w, err := os.OpenFile("/proc/"+strconv.Itoa(p.Pid())+"/fd/1", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("late\n"); err != nil {
		t.Fatal(err)
	}
	_ = p.Stdin().Close()
	awaitDone(t, p)
	begin := time.Now()
	out, err := io.ReadAll(p.Stdout())
	if err != nil || string(out) != "late\n" || time.Since(begin) > 3*time.Second {
		t.Fatalf("%q %v after %v", out, err, time.Since(begin))
	}
}

// A reader that comes late still gets what is in the pipe.
func TestLateReader(t *testing.T) {
	p := mustStart(t, marked(t, `echo all of it`))
	awaitDone(t, p)
	<-time.After(lateWait + 50*time.Millisecond)
	if out, err := io.ReadAll(p.Stdout()); err != nil || string(out) != "all of it\n" {
		t.Fatalf("%q %v", out, err)
	}
}

func TestFloodIsBoundedMemory(t *testing.T) {
	p := mustStart(t, marked(t, `exec yes | head -c 300000000`))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := io.Copy(io.Discard, p.Stdout())
	runtime.ReadMemStats(&after)
	if err != nil || n != 300000000 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Fatalf("heap grew by %d", grown)
	}
	if exit := awaitDone(t, p); !exit.OK() {
		t.Fatalf("%+v", exit)
	}
}

func TestKillMarked(t *testing.T) {
	marker := fmt.Sprintf("left-%d", os.Getpid())
	p := mustStart(t, Spec{Path: "sh", Env: BaseEnv(MarkerName + "=" + marker), Args: []string{"-c",
		`for i in 1 2 3; do setsid sh -c 'trap "" INT; echo $$; exec sleep 300' & done; wait`}})
	rd := bufio.NewReader(p.Stdout())
	var pids []int
	for range 3 {
		s, err := rd.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, atoi(t, s))
	}
	if n := KillMarked(marker); n != 4 {
		t.Errorf("ended %d, want the shell and three strays", n)
	}
	awaitDone(t, p)
	for _, pid := range pids {
		if exists(pid) {
			t.Errorf("%d lives", pid)
		}
	}
	if n := KillMarked(marker); n != 0 {
		t.Errorf("a second time: %d", n)
	}
	if n := KillMarked(""); n != 0 {
		t.Errorf("no marker: %d", n)
	}
}

// playParent starts a child by Start, tells what lives, and waits to be killed.
func playParent() {
	s := Spec{Path: "sh", Env: BaseEnv(), Marker: os.Getenv("PROC_TEST_MARKER"), Args: []string{"-c",
		`trap '' INT TERM HUP; sleep 300 & a=$!; setsid sleep 300 & b=$!
		until grep -qz "PULSE_TASK_ID" /proc/$b/environ; do :; done
		echo $$ $a $b; while :; do sleep 0.05; done`}}
	// One that came and went before is no longer the guard's business.
	if _, exit, err := Output(context.Background(), Spec{Path: "true", Env: BaseEnv(), Marker: "gone"}); err != nil || !exit.OK() {
		panic(err)
	}
	p, err := Start(s)
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(os.Stdout, p.Stdout())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop)
	<-stop
}

// SIGKILL of the parent ends the child by the kernel, and what the child had
// started, in its group or out of it, by the guard, with nobody's help.
func TestParentKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := mustStart(t, Spec{Path: self, Dir: filepath.Dir(self),
		Env: BaseEnv("PROC_TEST_PARENT=1", fmt.Sprintf("PROC_TEST_MARKER=orphan-%d", os.Getpid()))})
	var pids []int
	for _, word := range strings.Fields(line(t, parent)) {
		pids = append(pids, atoi(t, word))
		if !alive(pids[len(pids)-1]) {
			t.Fatalf("%s is not there", word)
		}
	}
	if err := syscall.Kill(parent.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i, what := range []string{"the child", "its child", "its stray"} {
		within(t, 10*time.Second, what+" dies", func() bool { return !alive(pids[i]) })
	}
	awaitDone(t, parent)
}

// The guard is there exactly while marked children are, and one that was
// killed is not missed.
func TestGuardComesAndGoes(t *testing.T) {
	current := func() *guard {
		household.mu.Lock()
		defer household.mu.Unlock()
		return household.guard
	}
	if current() != nil {
		t.Fatal("a guard without a child")
	}
	if _, _, err := Output(t.Context(), sh("true")); err != nil || current() != nil {
		t.Fatal("a tool needs no guard", err)
	}
	a, b := mustStart(t, marked(t, "cat")), mustStart(t, marked(t, "cat"))
	g := current()
	if g == nil {
		t.Fatal("no guard")
	}
	a.Stop(t.Context())
	if current() != g {
		t.Error("it left too early, or another came")
	}
	<-g.started
	if err := g.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if exit := b.Stop(t.Context()); exit.Err != nil {
		t.Errorf("%+v", exit)
	}
	if current() != nil || exists(g.cmd.Process.Pid) {
		t.Error("it stays")
	}
}

// alive is false for a zombie, which here may wait for a reaper that is not
// under test.
func alive(pid int) bool {
	var buf [1024]byte
	e, ok := readEntry(pid, buf[:])
	return ok && !e.zombie
}

func TestManyAtOnce(t *testing.T) {
	fds := openFiles(t)
	failed := make(chan error, 40)
	for range 40 {
		go func() {
			out, exit, err := Output(t.Context(), sh("echo x"))
			if err == nil && (string(out) != "x\n" || !exit.OK()) {
				err = fmt.Errorf("%q %+v", out, exit)
			}
			failed <- err
		}()
	}
	for range 40 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if got := openFiles(t); got > fds+2 {
		t.Errorf("%d files open, %d before", got, fds)
	}
}

func TestParseStat(t *testing.T) {
	tests := map[string]struct {
		line string
		want entry
		ok   bool
	}{
		"plain":      {"7 (sh) S 3 7 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2", entry{ident: ident{7, 12345}, parent: 3, session: 9}, true},
		"odd name":   {"7 (a) Z (b) Z 3 7 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2", entry{ident: ident{7, 12345}, parent: 3, session: 9, zombie: true}, true},
		"cut short":  {"7 (sh) S 3 7", entry{}, false},
		"no name":    {"7", entry{}, false},
		"no numbers": {"7 (sh) S x 7 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2", entry{ident: ident{7, 12345}, session: 9}, false},
	}
	for name, tt := range tests {
		if got, ok := parseStat(7, []byte(tt.line)); ok != tt.ok || got != tt.want {
			t.Errorf("%s: %+v %v", name, got, ok)
		}
	}
}

func TestTail(t *testing.T) {
	for _, chunk := range []int{1, 3, 7, 10, 11, 25} {
		tl := tail{max: 10}
		all := strings.Repeat("0123456789abc", 5)
		for rest := all; rest != ""; {
			n := min(chunk, len(rest))
			_, _ = tl.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		if got := tl.String(); got != all[len(all)-10:] {
			t.Errorf("chunks of %d: %q", chunk, got)
		}
	}
}
