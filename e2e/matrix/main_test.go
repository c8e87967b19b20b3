package matrix

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// The tests mostly wait for limits to pass, so many of them run at once.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16")
	e2etest.Main(m)
}

// quick are the limits of these tests: as short as they can be on a machine
// that does so much besides that a healthy program stands still for seconds.
var quick = []string{"PULSE_LOOP_SILENCE_LIMIT=" + silence.String(), "PULSE_LOOP_TOOL_SILENCE_LIMIT=" + tool.String(),
	"PULSE_DAEMON_LINGER=1s", "PULSE_DAEMON_LEASE=20s", "PULSE_LOG_LEVEL=info"}

const (
	silence = 9 * time.Second
	tool    = 24 * time.Second
)

// program is one in a state of having worked already, so that what it takes
// for the next run is what that run costs.
func program(t *testing.T, script string, env ...string) *e2etest.Pulse {
	t.Helper()
	p := e2etest.Start(t, e2etest.Options{Script: script, Projects: map[string]*e2etest.Repository{"my-app": e2etest.Repo(t)},
		Env: append(append([]string{}, quick...), env...)})
	return p
}

const healthy = `
iterations:
  - - say: all done
    - signal: COMPLETE
repeat_last: true
`

// warm makes every session whose goal says "warm up" a healthy one. Much of
// it fills what the database keeps in memory, once for all runs.
const warm = `
sessions:
  warm up much:
    iterations:
      - - flood: {lines: 20000}
        - say: all done
        - signal: COMPLETE
  warm up:
    iterations:
      - - tool: {name: shell, input: {command: ls}, output: main.go}
        - say: all done
        - signal: COMPLETE
repeat_last: true
iterations:
`

func begin(t *testing.T, p *e2etest.Pulse, agent, goal string) string {
	t.Helper()
	s, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: goal, Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	return string(s.ID)
}

// over waits until the session is in one of the states, for longer than any
// limit of these tests takes to pass.
func over(t *testing.T, p *e2etest.Pulse, id string, states ...pulse.SessionStatus) wire.SessionDetail {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; <-time.After(50 * time.Millisecond) {
		d, err := p.Client().Get(t.Context(), id)
		if err == nil && slices.Contains(states, d.Session.Status) {
			return d
		}
		rests := err == nil && d.Session.Status != pulse.SessionPending && d.Session.Status != pulse.SessionRunning
		if rests || time.Now().After(end) {
			t.Fatalf("session %s is %q (%s), waited for %v (%v)", id, d.Session.Status, d.Session.StatusReason, states, err)
		}
	}
}

// statuses are those of the iterations, attempts included.
func statuses(d wire.SessionDetail) (out []pulse.IterationStatus) {
	for _, it := range d.Iterations {
		out = append(out, it.Status)
	}
	return out
}

// resident is a figure of /proc/PID/status in KiB.
func resident(t *testing.T, pid int, name string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in the status of %d", name, pid)
	return 0
}

// mark forgets the highest memory so far and gives the present one, in KiB.
func mark(t *testing.T, pid int) int {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return resident(t, pid, "VmRSS")
}

// agents are the processes of the program that are not the program.
func agents(p *e2etest.Pulse) int {
	n := 0
	for _, line := range p.Processes() {
		if id, _, _ := strings.Cut(line, " "); id != strconv.Itoa(p.Pid()) {
			n++
		}
	}
	return n
}
