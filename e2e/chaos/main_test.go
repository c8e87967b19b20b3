package chaos

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"pulseloop/e2e/e2etest"
)

var (
	seedFlag  = flag.Uint64("chaos.seed", 0, "repeat the decisions of an earlier run (0: new ones)")
	killsFlag = flag.Int("chaos.kills", 50, "how often programs are ended, over all set-ups together")
	timeFlag  = flag.Duration("chaos.time", 100*time.Second, "stop ending programs after this time, however often it was")
	longFlag  = flag.Bool("chaos.long", false, "run the tests that take minutes")
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "40") // unless the command line says more: with the race detector a sequence takes its time
	e2etest.Main(m)
}

// newSeed is the seed of one test; it is printed, so that the run can be repeated.
func newSeed(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -chaos.seed=%d", seed)
	return seed
}

// dice gives each actor decisions of its own, so that they do not depend on who comes first.
func dice(seed uint64, actor uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, actor)) }

// between is a random time.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}
