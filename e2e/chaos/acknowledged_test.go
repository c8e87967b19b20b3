package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
)

// ledger is what was asked for over the API, and what of it was acknowledged.
type ledger struct {
	mu    sync.Mutex
	asked []string
	acked map[string]bool
}

func (l *ledger) ask(at string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	tag := fmt.Sprintf("%s tag%05dq", at, len(l.asked))
	l.asked = append(l.asked, tag)
	return tag
}

func (l *ledger) ack(tag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[tag] = true
}

// pour starts goals over the API, four callers at once, until the program refuses or end is called. enough is closed when so
// many are acknowledged.
func (l *ledger) pour(node *e2etest.Pulse, at, padding string, many int) (enough <-chan struct{}, end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c, done := node.Client(), make(chan struct{})
	var callers sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(many))
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				tag := l.ask(at)
				if _, err := c.Start(ctx, wire.Start{ProjectName: "my-app", Goal: tag + padding}); err != nil {
					return
				}
				l.ack(tag)
				if left.Add(-1) == 0 {
					close(done)
				}
			}
		})
	}
	return done, func() { cancel(); callers.Wait() }
}

// check wants every acknowledged goal once, no other more than once, and a database in order. The program must not run.
func (l *ledger) check(t *testing.T, node *e2etest.Pulse) {
	t.Helper()
	raw := node.DB()
	rows, err := raw.QueryContext(t.Context(), "SELECT goal FROM pulse_sessions")
	must(t, err)
	defer rows.Close()
	found := map[string]int{}
	for rows.Next() {
		var goal string
		must(t, rows.Scan(&goal))
		tag, _, _ := strings.Cut(goal, "q")
		found[tag+"q"]++
	}
	must(t, rows.Err())
	lost, doubled := 0, 0
	for _, tag := range l.asked {
		switch n := found[tag]; {
		case n == 0 && l.acked[tag]:
			lost++
			t.Errorf("acknowledged and lost: %q", tag)
		case n > 1:
			doubled++
			t.Errorf("%q is there %d times", tag, n)
		}
	}
	t.Logf("%d goals asked for, %d acknowledged, %d on record; %d lost, %d doubled", len(l.asked), len(l.acked), len(found), lost, doubled)
	var verdict string
	must(t, raw.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&verdict))
	if verdict != "ok" {
		t.Errorf("integrity_check: %s", verdict)
	}
	if err := raw.QueryRowContext(t.Context(), "PRAGMA foreign_key_check").Scan(&verdict); err == nil {
		t.Errorf("a row of %s has lost its parent", verdict)
	}
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-e2etest.Context(t).Done():
		t.Fatalf("waited in vain for %s", what)
	}
}

// lite is a server on SQLite without agents: what is asked for stays where it is.
func lite(t *testing.T) *e2etest.Pulse {
	return e2etest.New(t, e2etest.Options{Command: []string{"serve"}, Projects: map[string]*e2etest.Repository{"my-app": e2etest.Repo(t)},
		Env: []string{"PULSE_LOG_LEVEL=warn"}})
}

// TestAcknowledgedIsKept is R4: goals are asked for over REST, and the program is killed the moment that one of them is
// acknowledged, again and again.
func TestAcknowledgedIsKept(t *testing.T) {
	t.Parallel()
	kills := 20
	if *longFlag {
		kills = *killsFlag
	}
	seed := newSeed(t)
	r := dice(seed, 3)
	node := lite(t)
	l := &ledger{acked: map[string]bool{}}
	began := time.Now()
	for n := range kills {
		node.Up()
		enough, end := l.pour(node, fmt.Sprintf("life %d", n), "", 1+r.IntN(8))
		await(t, "goals to be acknowledged", enough)
		node.Kill()
		end()
		node.Forget(1)
	}
	t.Logf("killed %d times in %s", kills, time.Since(began).Round(time.Second))
	node.Up()
	node.Stop()
	l.check(t, node)
}
