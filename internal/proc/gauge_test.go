//go:build linux

package proc_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pulseloop/internal/proc"
)

// reads asks the gauge until ok or the deadline.
func reads(t *testing.T, g *proc.Gauge, what string, ok func(proc.Usage) bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		u := g.Read()
		if ok(u) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v", what, u)
		}
	}
}

func shell(t *testing.T, w proc.Walls, script string) *proc.Process {
	t.Helper()
	p, err := proc.Start(proc.Spec{Path: "/bin/sh", Args: []string{"-c", script}, Dir: t.TempDir(), Env: proc.BaseEnv(), Marker: "gauge-" + t.Name(), Walls: w})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(t.Context()); _, _ = io.Copy(io.Discard, p.Stdout()) })
	return p
}

// The family counts, also what left the session or was orphaned, and what the
// dead have written.
func TestGauge(t *testing.T) {
	if !proc.CanConfine {
		t.Skip("not on this system")
	}
	p := shell(t, proc.Walls{}, `for i in 1 2 3; do sleep 100 & done; setsid sleep 100 &
(dd if=/dev/zero of=a bs=64k count=64 2>/dev/null; sync a)
read x; exec dd if=/dev/zero of=/dev/null bs=40M 2>/dev/null`)
	g := p.Gauge()
	reads(t, g, "five processes", func(u proc.Usage) bool { return u.Tasks == 5 })
	if dir, err := os.MkdirTemp("", "gauge-"); err == nil && onDisk(dir) {
		reads(t, g, "what was written", func(u proc.Usage) bool { return u.Written >= 4<<20 && u.Written < 8<<20 })
	}
	if _, err := io.WriteString(p.Stdin(), "\n"); err != nil {
		t.Fatal(err)
	}
	reads(t, g, "memory", func(u proc.Usage) bool { return u.Memory > 30<<20 })
	u := g.Read()
	if why := u.Beyond(proc.Limits{}); why != "" || u.Near(proc.Limits{}) {
		t.Errorf("without limits: %s", why)
	}
	if why := u.Beyond(proc.Limits{Memory: 1 << 20}); !strings.Contains(why, "of memory, of 1 MiB") {
		t.Errorf("%q", why)
	}
	if !u.Near(proc.Limits{Tasks: u.Tasks * 2}) || u.Near(proc.Limits{Tasks: u.Tasks * 10}) {
		t.Error("what is near")
	}
}

// onDisk reports whether what is written there is counted: memory is not a disk.
func onDisk(dir string) bool {
	defer os.RemoveAll(dir)
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "tmpfs" && (f[1] == "/tmp" || f[1] == filepath.Dir(dir)) {
			return false
		}
	}
	return true
}

// What the kernel keeps holds from the first instruction on.
func TestLimits(t *testing.T) {
	if !proc.CanConfine {
		t.Skip("not on this system")
	}
	p := shell(t, proc.Walls{Limits: proc.Limits{FileSize: 1 << 20, OpenFiles: 100, NoCore: true}},
		`ulimit -n; ulimit -c; ulimit -f; dd if=/dev/zero of=a bs=64k count=64 2>/dev/null; stat -c %s a`)
	out := bufio.NewScanner(p.Stdout())
	var got []string
	for out.Scan() {
		got = append(got, out.Text())
	}
	if strings.Join(got, " ") != "100 0 2048 1048576" {
		t.Errorf("%q", got)
	}
}

// A start that fails says at which step, and leaves no process.
func TestStartBehindWallsThatFails(t *testing.T) {
	if !proc.CanConfine {
		t.Skip("not on this system")
	}
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	wrong, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	limits := proc.Limits{NoCore: true}
	for what, s := range map[string]proc.Spec{
		"execute it":  {Path: "/no/such/program", Walls: proc.Walls{Limits: limits}},
		"enter /no":   {Path: "/bin/true", Dir: "/no", Walls: proc.Walls{Limits: limits}},
		"restrict it": {Path: "/bin/true", Walls: proc.Walls{Ruleset: wrong}},
		"bad file":    {Path: "/bin/true", Walls: proc.Walls{Ruleset: closed}},
		"not found":   {Path: "no-such-program", Walls: proc.Walls{Limits: limits}},
		"invalid":     {Path: "/bin/true", Args: []string{"a\x00b"}, Walls: proc.Walls{Limits: limits}},
	} {
		if p, err := proc.Start(s); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v %v", what, p, err)
		}
	}
	// What a start behind walls leaves as it was: signals that are ignored stay so, others are heard.
	p := shell(t, proc.Walls{Limits: limits}, `grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd | tr '\n' ' '; [ $$ = $(cut -d' ' -f6 /proc/$$/stat) ] && echo leader`)
	b, _ := io.ReadAll(p.Stdout())
	plain := shell(t, proc.Walls{}, `grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd | tr '\n' ' '; [ $$ = $(cut -d' ' -f6 /proc/$$/stat) ] && echo leader`)
	want, _ := io.ReadAll(plain.Stdout())
	if first, second := lines(string(b)), lines(string(want)); len(first) != 4 || !slices.Equal(first, second) {
		t.Errorf("walls:\n%s\nnone:\n%s", b, want)
	}
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

// A program that reads its input before anything was written waits for it,
// and its output waits for who reads slowly.
func TestInputMayComeLate(t *testing.T) {
	for name, walls := range map[string]proc.Walls{"plain": {}, "limits": {Limits: proc.Limits{NoCore: true}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := shell(t, walls, "echo up; read word && head -c 300000 /dev/zero && echo; echo got $word")
			out := bufio.NewReader(p.Stdout())
			if s, err := out.ReadString('\n'); err != nil || s != "up\n" {
				t.Fatalf("%q, %v", s, err)
			}
			stat := fmt.Sprintf("/proc/%d/stat", p.Pid())
			for state := ""; state != "S"; <-time.After(5 * time.Millisecond) { // it waits, or has ended
				b, err := os.ReadFile(stat)
				if _, rest, _ := strings.Cut(string(b), ") "); err == nil {
					state, _, _ = strings.Cut(rest, " ")
				}
				if err != nil || state == "Z" {
					t.Fatal("it did not wait for its input")
				}
			}
			if _, err := p.Stdin().Write([]byte("it\n")); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(out)
			if err != nil || len(rest) != 300_000+len("\ngot it\n") || !bytes.HasSuffix(rest, []byte("\ngot it\n")) {
				t.Errorf("%d bytes, the last %q, %v", len(rest), rest[max(0, len(rest)-20):], err)
			}
		})
	}
}
