package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// mostSilence bounds an answer of the API while the database is away: one operation may take 30 s, the rest is for the machine.
const mostSilence = 30*time.Second + slack

// badAir is how networks are when they are bad.
var badAir = []struct {
	name   string
	toxics []string
	times  time.Duration // as long as the others
}{
	{"answers 500 ms late, more or less", []string{toxic("latency", "downstream", `"latency": 500, "jitter": 250`)}, 1},
	{"everything in small pieces", both("slicer", `"average_size": 24, "size_variation": 12, "delay": 1000`), 1},
	{"1 KB a second", both("bandwidth", `"rate": 1`), 1},
	{"connections reset", []string{toxic("reset_peer", "downstream", `"timeout": 50`)}, 1},
	{"answers swallowed", []string{toxic("timeout", "downstream", `"timeout": 0`)}, 1},
	{"everything swallowed", silence(), 3}, // for longer than a lease
	{"nobody there", nil, 1},
}

// TestBadNetwork is F7 and F27: the network between all programs and the database is bad in every way, one after the other,
// while people talk, goals come in over the API, and agents work.
func TestBadNetwork(t *testing.T) {
	t.Parallel()
	rounds, length := 1, 1200*time.Millisecond
	if *longFlag {
		rounds, length = 5, 5*time.Second
	}
	c := newCluster(t)
	a := newAir(t, fmt.Sprintf("127.0.0.1:%d", c.port))
	st := newStorm(t, setup{name: "bad network", postgres: true, split: true, url: a.through(c.url)}, newSeed(t))
	st.sql = c.open()
	t.Cleanup(func() { _ = st.sql.Close() })
	e2etest.Await(t, "everybody to listen", func() bool { return st.number(listening) == len(st.nodes) })
	l := st.busy()
	asked := st.asking()
	for range rounds {
		for _, bad := range badAir {
			st.await(time.Second)
			st.o.write("the network", bad.name)
			if bad.toxics == nil {
				a.gone()
			} else {
				a.worsen(bad.toxics...)
			}
			st.await(bad.times * length)
			a.clear()
			st.o.write("the network", "good")
		}
	}
	l.stop()
	last := time.Now()
	st.calm(st.limit())
	t.Logf("%d times %s or more of each of %d bad networks; at rest %s after the last; %d of %d goals over the API were acknowledged; the API's slowest of %d answers took %s",
		rounds, length, len(badAir), time.Since(last).Round(time.Millisecond), len(l.acked), len(l.asked), asked.n, asked.end().Round(time.Millisecond))
	e2etest.Await(t, "every program to listen again", func() bool { return st.number(listening) == len(st.nodes) })
	st.afterwards(l)
	st.leaks()
	st.clean()
}

// questions is somebody who reads from the API all the time.
type questions struct {
	n       int
	slowest time.Duration
	end     func() time.Duration
}

// asking reads from the API, again and again, until end is called: each answer is a list, or a clear word that there is none,
// and comes in a bounded time.
func (st *storm) asking() *questions {
	q := &questions{}
	ctx, cancel := context.WithCancel(st.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			took, err := ask(ctx, st.front)
			if ctx.Err() != nil {
				return
			}
			q.n++
			q.slowest = max(q.slowest, took)
			if took > mostSilence {
				st.t.Errorf("an answer of the API took %s", took)
			}
			if err != nil && pulse.CodeOf(err) != pulse.CodeUnavailable {
				st.t.Errorf("the API answered with %v, want one that says that the database is away", err)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	q.end = func() time.Duration { cancel(); wg.Wait(); return q.slowest }
	st.t.Cleanup(func() { q.end() })
	return q
}

func ask(ctx context.Context, front *e2etest.Pulse) (time.Duration, error) {
	began := time.Now()
	_, err := front.Client().List(ctx, client.Filter{})
	return time.Since(began), err
}

// TestPartitionedDaemon is F27 and the second half of F7: one daemon can reach the database no more, while its agent goes on.
// It ends the agent before its lease ends, so that two never work on one task; another daemon takes over; and when the
// network is back, nothing of it is recorded twice, and the daemon works again.
func TestPartitionedDaemon(t *testing.T) {
	t.Parallel()
	const lease = 8 * time.Second
	database := postgres(t)
	s := newScene(t, "serve", database, "PULSE_DAEMON_LEASE="+lease.String())
	a := newAir(t, hostOf(t, database))
	far := s.opt("daemon")
	far.Database = a.through(database)
	one := e2etest.Start(t, far)
	s.ann.Say("do it")
	one.AwaitHeld("middle")
	s.ann.Hears("🚀")
	other := e2etest.Start(t, s.opt("daemon"))
	claimer := s.text("SELECT claimed_by FROM inbox_tasks")

	a.worsen(silence()...)
	cut := time.Now()
	stalled, looked := time.Duration(0), time.Now()
	e2etest.Await(t, "the end of the agent that nobody can vouch for", func() bool {
		stalled, looked = max(stalled, time.Since(looked)), time.Now()
		return len(agentsOf(one)) == 0
	})
	dead := time.Since(cut)
	var left float64
	query := "SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM inbox_tasks WHERE claimed_by = '" + claimer + "' AND status = 'running'"
	if err := s.sql.QueryRowContext(e2etest.Context(t), query).Scan(&left); err != nil {
		t.Fatalf("the agent was still there when its task was taken from the daemon (%v)", err)
	}
	t.Logf("the agent of the daemon without a database was dead %s after the cut, %.2f s before its lease of %s ended", dead.Round(time.Millisecond), left, lease)
	if left <= 0 && stalled < time.Second { // a machine that stands still cannot end anything in time
		t.Errorf("that is too late")
	}
	other.AwaitHeld("middle")
	t.Logf("the task ran elsewhere %s after the cut", time.Since(cut).Round(time.Millisecond))
	a.clear()
	e2etest.Await(t, "the word that the run was given up", func() bool { return strings.Contains(one.Log(), "task given up") })
	other.Open("middle")
	s.once(2, 2)
	if strings.Contains(one.Log(), "task finished") {
		t.Error("the daemon that lost the task finished it")
	}
	other.Stop()
	again, err := s.front.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "quick again"})
	must(t, err)
	s.front.AwaitSession(string(again.ID), pulse.SessionComplete)
	if got := s.text("SELECT claimed_by FROM inbox_tasks WHERE session_id = '" + string(again.ID) + "'"); got != claimer {
		t.Errorf("the work after the partition was done by %s, want %s", got, claimer)
	}
}

// TestAPIWhileTheDatabaseIsSilent bounds what a caller waits for when packets to the database vanish, and wants the word for
// it to be clear. A database that refuses is noticed at once.
func TestAPIWhileTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	database := postgres(t)
	a := newAir(t, hostOf(t, database))
	front := e2etest.Start(t, e2etest.Options{Command: []string{"serve"}, Database: a.through(database), Projects: map[string]*e2etest.Repository{"my-app": e2etest.Repo(t)}})
	calls := map[string]func(context.Context) error{
		"list": func(ctx context.Context) error { _, err := front.Client().List(ctx, client.Filter{}); return err },
		"start": func(ctx context.Context) error {
			_, err := front.Client().Start(ctx, wire.Start{ProjectName: "my-app", Goal: "x"})
			return err
		},
	}
	all := func(limit time.Duration) {
		var wg sync.WaitGroup
		for name, call := range calls {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				began := time.Now()
				err := call(ctx)
				var said *pulse.Error
				if !errors.As(err, &said) || said.Code != pulse.CodeUnavailable || !strings.Contains(said.Message, "database") || said.Hint == "" {
					t.Errorf("%s: %v after %s, want a word about the database", name, err, time.Since(began))
				}
				t.Logf("%s: refused after %s: %v", name, time.Since(began).Round(time.Millisecond), err)
			})
		}
		wg.Wait()
	}
	a.worsen(silence()...)
	all(mostSilence)
	if !strings.Contains(front.Log(), "wake-ups from the database interrupted") {
		t.Error("it still listens on the silent connection")
	}
	a.gone()
	all(mostSilence)
	a.clear()
	e2etest.Await(t, "the API to work again", func() bool { return calls["start"](e2etest.Context(t)) == nil })
}

func hostOf(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// text is the one value that a query gives.
func (s *scene) text(query string) string {
	s.t.Helper()
	var v string
	if err := s.sql.QueryRowContext(e2etest.Context(s.t), query).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return v
}
