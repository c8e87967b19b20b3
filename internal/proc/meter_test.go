package proc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// worked asks the meter until what was done is enough.
func worked(t *testing.T, m *Meter, what string, enough func(Work) bool) {
	t.Helper()
	var sum Work
	m.Work()
	for deadline := time.Now().Add(20 * time.Second); !enough(sum); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: only %+v", what, sum)
		}
		<-time.After(20 * time.Millisecond)
		w, ok := m.Work()
		if !ok {
			t.Fatal("nothing to compare with")
		}
		sum.CPU, sum.Bytes = sum.CPU+w.CPU, sum.Bytes+w.Bytes
	}
}

func TestMeterSeesTheWholeFamilyWork(t *testing.T) {
	cpu := func(w Work) bool { return w.CPU >= 100*time.Millisecond }
	for name, c := range map[string]struct {
		script string
		enough func(Work) bool
	}{
		"the child":            {"echo up; while :; do :; done", cpu},
		"a child of its own":   {"echo up; (while :; do :; done) & wait", cpu},
		"one that left":        {"setsid sh -c 'while :; do :; done' & echo up; sleep 600", cpu},
		"many that soon end":   {"echo up; while :; do /bin/true; done", cpu},
		"one that only copies": {"echo up; while :; do head -c 1000000 /dev/zero >/dev/null; sleep 0.01; done", func(w Work) bool { return w.Bytes > 10_000_000 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := mustStart(t, marked(t, c.script))
			line(t, p)
			worked(t, p.Meter(), name, c.enough)
		})
	}
}

func TestMeterSeesThatNothingIsDone(t *testing.T) {
	p := mustStart(t, marked(t, "setsid sleep 600 & sleep 600 & echo up; exec sleep 600"))
	line(t, p)
	m := p.Meter()
	if w, ok := m.Work(); ok {
		t.Errorf("the first answer is %+v", w)
	}
	within(t, 10*time.Second, "a family that sleeps", func() bool { // it may still be starting
		<-time.After(300 * time.Millisecond)
		w, ok := m.Work()
		return ok && w.CPU == 0 && w.Bytes == 0
	})
	m.Forget()
	if w, ok := m.Work(); ok {
		t.Errorf("after Forget: %+v", w)
	}
	p.Stop(t.Context())
	if w, ok := m.Work(); !ok || w != (Work{}) {
		t.Errorf("of the dead: %+v", w)
	}
}

func TestParseCounters(t *testing.T) {
	stat := "12 (a) b) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 70 800 20 0 1 0 100 0 0"
	if n := parseTicks([]byte(stat)); n != 881 {
		t.Errorf("ticks: %d", n)
	}
	if n := parseTicks([]byte("12 (a) S 1 x")); n != 0 {
		t.Errorf("ticks of a short line: %d", n)
	}
	if d := parseWait([]byte("516638942 1044791565 140\n")); d != 1044791565 {
		t.Errorf("waited %v", d)
	}
	if d := parseWait([]byte("1 2\n")); d != 0 {
		t.Errorf("of a short line: %v", d)
	}
	if n := parseIO([]byte("rchar: 5\nwchar: 70\nsyscr: 9\nread_bytes: 4096\nwrite_bytes: x\n")); n != 75 {
		t.Errorf("bytes: %d", n)
	}
}

// Who cannot work because others do is told from who does not want to.
func TestMeterSeesWhoIsKeptFromRunning(t *testing.T) {
	spin := "while :; do :; done"
	crowd := mustStart(t, marked(t, fmt.Sprintf("for i in $(seq %d); do (%s) & done; echo up; wait", 3*runtime.NumCPU(), spin)))
	line(t, crowd)
	p := mustStart(t, marked(t, "echo up; "+spin))
	line(t, p)
	idle := mustStart(t, marked(t, "echo up; exec sleep 600"))
	line(t, idle)
	var starved, bored time.Duration
	m, other := p.Meter(), idle.Meter()
	m.Work()
	other.Work()
	within(t, 60*time.Second, "one that waits for a processor", func() bool {
		<-time.After(100 * time.Millisecond)
		w, _ := m.Work()
		v, _ := other.Work()
		starved, bored = starved+w.Starved, bored+v.Starved
		return starved >= 500*time.Millisecond
	})
	if bored > starved/2 {
		t.Errorf("one that sleeps wanted to run for %v, one that works for %v", bored, starved)
	}
}

// When memory runs out, agents go before the daemon.
func TestAgentsGoBeforeTheDaemon(t *testing.T) {
	adjust := func(pid string) int {
		b, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		return atoi(t, string(b))
	}
	p := mustStart(t, marked(t, "read x; sh -c 'echo $$; sleep 600'"))
	if _, err := p.Stdin().Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if pid := line(t, p); adjust(pid) < 500 || adjust(pid) <= adjust("self") {
		t.Errorf("the agent's child has %d, this process %d", adjust(pid), adjust("self"))
	}
}

// BenchmarkFirstByte is from the start of a child to the first byte of its
// output, by this package and by os/exec alone.
func BenchmarkFirstByte(b *testing.B) {
	var buf [16]byte
	b.Run("exec", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command("/bin/echo", "x")
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			if _, err := out.Read(buf[:]); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			_ = cmd.Wait()
			b.StartTimer()
		}
	})
	for _, marker := range []string{"", "bench-" + strconv.Itoa(os.Getpid())} {
		b.Run("proc"+strings.Repeat(" marked", min(1, len(marker))), func(b *testing.B) {
			for b.Loop() {
				p, err := Start(Spec{Path: "/bin/echo", Args: []string{"x"}, Env: BaseEnv(), Marker: marker})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := p.Stdout().Read(buf[:]); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				<-p.Done()
				b.StartTimer()
			}
		})
	}
}
