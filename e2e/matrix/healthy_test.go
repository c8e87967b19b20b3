package matrix

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

var (
	runsFlag = flag.Int("matrix.healthy", 20, "how many healthy runs there are")
	seedFlag = flag.Uint64("matrix.seed", 0, "repeat the runs of an earlier test (0: new ones)")
)

// atOnce is how many healthy agents run beside each other.
const atOnce = 20

// behaviour is a healthy agent that looks as if it were not: it says nothing
// for longer than the limit, but works; its tool does nothing for longer than
// the agent itself might, but not for longer than a tool may.
func behaviour(r *rand.Rand, n int) string {
	between := func(from, to time.Duration) time.Duration {
		return (from + time.Duration(r.Int64N(int64(to-from)))).Round(time.Millisecond)
	}
	long, longTool := between(silence+time.Second, silence+4*time.Second), 1+between(tool+time.Second, tool+4*time.Second)/time.Second
	steps := []string{"say: begin"}
	switch n % 6 {
	case 0: // it works and says nothing
		steps = append(steps, "spin: "+long.String())
	case 1: // its tool works and says nothing
		steps = append(steps, fmt.Sprintf(`run: "timeout %d sh -c 'while :; do i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 0.05; done'; true"`, longTool))
	case 2: // its tool only waits
		steps = append(steps, fmt.Sprintf("tool: {name: shell, wait: %s}", between(silence+time.Second, tool/2)))
	case 3: // it waits for its model, again and again
		for range 4 {
			steps = append(steps, "sleep: "+between(0, silence/3).String(), "say: and then")
		}
	case 4: // it talks all the time
		steps = append(steps, fmt.Sprintf("flood: {lines: %d}", 100+r.IntN(2000)))
	case 5: // its tool copies
		steps = append(steps, fmt.Sprintf(`run: "timeout %d sh -c 'while :; do head -c 400000 /dev/zero >/dev/null; sleep 0.02; done'; true"`, longTool))
	}
	steps = append(steps, "say: all done", "signal: COMPLETE")
	return "      - - " + strings.Join(steps, "\n        - ") + "\n"
}

// No healthy run is ended, however much it looks like one that hangs. The
// long version has 500 (-matrix.healthy=500).
func TestHealthyRunsAreLeftAlone(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -matrix.seed=%d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	var script strings.Builder
	script.WriteString("sessions:\n")
	for i := range *runsFlag {
		fmt.Fprintf(&script, "  goal number %d.:\n    iterations:\n%s", i, behaviour(dice, i))
	}
	p := program(t, script.String(), fmt.Sprintf("PULSE_DAEMON_SLOTS=%d", atOnce))
	var ids []string
	for i := range *runsFlag {
		ids = append(ids, begin(t, p, "", fmt.Sprintf("goal number %d.", i)))
	}
	killed := 0
	for i, id := range ids {
		for limit := time.Now().Add(10 * time.Minute); ; <-time.After(100 * time.Millisecond) {
			d, err := p.Client().Get(t.Context(), id)
			if s := d.Session.Status; err == nil && s != pulse.SessionPending && s != pulse.SessionRunning {
				if s != pulse.SessionComplete || len(d.Iterations) != 1 || d.Iterations[0].Status != pulse.IterationComplete {
					killed++
					t.Errorf("run %d is %s (%s), iterations %v", i, s, d.Session.StatusReason, statuses(d))
				}
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("run %d does not end: %s", i, d.Session.Status)
			}
		}
	}
	e2etest.Await(t, "the end of the agents' processes", func() bool { return agents(p) == 0 })
	t.Logf("%d of %d healthy runs were ended", killed, len(ids))
}
