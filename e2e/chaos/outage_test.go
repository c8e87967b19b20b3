package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
)

// Goals for an outage of the database, R2 of the requirements.
const (
	outage        = 5 * time.Second
	firstDispatch = 500 * time.Millisecond
	drained       = 5 * time.Second
)

// load asks for goals over the API one a second, which is well below what the daemons can do, and remembers which were acknowledged.
type load struct {
	st    *storm
	mu    sync.Mutex
	acked map[string]string // tag, session
	asked []string
}

func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		tag := l.st.o.tag()
		l.mu.Lock()
		l.asked = append(l.asked, tag)
		l.mu.Unlock()
		l.st.o.write("asked", tag)
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		s, err := l.st.front.Client().Start(try, wire.Start{ProjectName: "my-app", Goal: "quick " + tag})
		cancel()
		if err != nil {
			l.st.o.write("not acknowledged", tag+": "+err.Error())
		} else {
			l.st.o.write("acknowledged", tag)
			l.mu.Lock()
			l.acked[tag] = string(s.ID)
			l.mu.Unlock()
		}
	}
}

// check wants every acknowledged goal once, and no other more than once.
func (l *load) check() {
	found := map[string]int{}
	for _, r := range l.st.rows("SELECT goal FROM pulse_sessions WHERE chat_id = ''") {
		found[tagShape.FindString(r[0])]++
	}
	for _, tag := range l.asked {
		_, acked := l.acked[tag]
		if n := found[tag]; n > 1 || acked && n != 1 {
			l.st.t.Errorf("the goal %s, acknowledged: %v, is there %d times", tag, acked, n)
		}
	}
}

// TestDatabaseOutages stops PostgreSQL as hard as it can be stopped, for 5 s, again and again, while people talk, goals come
// in over the API, and agents work.
func TestDatabaseOutages(t *testing.T) {
	t.Parallel()
	cycles := 2
	if *longFlag {
		cycles = 10
	}
	c := newCluster(t)
	st := newStorm(t, setup{name: "outages", postgres: true, split: true, url: c.url, lease: 30 * time.Second}, newSeed(t))
	st.sql = c.open()
	t.Cleanup(func() { _ = st.sql.Close() })
	listeners := st.number(listening)
	l := st.busy()
	var firsts, drains []time.Duration
	for range cycles {
		st.await(2 * time.Second)
		c.stop(syscall.SIGQUIT)
		st.o.write("the database is down", nil)
		st.await(outage)
		c.start()
		first, drain := st.afterOutage()
		firsts, drains = append(firsts, first), append(drains, drain)
	}
	l.stop()
	slices.Sort(firsts)
	slices.Sort(drains)
	t.Logf("%d outages of %s: first dispatch after the database answered: median %s, worst %s (goal %s); what was open came to rest in: median %s, worst %s (goal %s); %d of %d goals over the API were acknowledged",
		cycles, outage, firsts[len(firsts)/2], firsts[len(firsts)-1], firstDispatch, drains[len(drains)/2], drains[len(drains)-1], drained, len(l.acked), len(l.asked))
	st.calm(st.limit())
	began := time.Now()
	e2etest.Await(t, "every program to listen again", func() bool { return st.number(listening) == listeners })
	t.Logf("every program listens again %s after all was at rest", time.Since(began).Round(time.Millisecond))
	st.afterwards(l)
	st.leaks()
	st.clean()
}

// TestBackendsTerminated ends ten connections a second, any of them, at any point of any transaction.
func TestBackendsTerminated(t *testing.T) {
	t.Parallel()
	length := 5 * time.Second
	if *longFlag {
		length = 2 * time.Minute
	}
	c := newCluster(t)
	st := newStorm(t, setup{name: "terminated backends", postgres: true, split: true, url: c.url, lease: 30 * time.Second}, newSeed(t))
	st.sql = c.open()
	t.Cleanup(func() { _ = st.sql.Close() })
	l := st.busy()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	ended := 0
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-tick.C:
		}
		var ok sql.NullBool
		err := st.sql.QueryRowContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1").Scan(&ok)
		if err == nil && ok.Bool {
			ended++
		}
	}
	l.stop()
	last := time.Now()
	st.calm(st.limit())
	t.Logf("%d connections ended in %s; at rest %s after the last; %d of %d goals over the API were acknowledged", ended, length, time.Since(last).Round(time.Millisecond), len(l.acked), len(l.asked))
	st.afterwards(l)
	if *longFlag {
		st.leaks()
	}
	st.clean()
}

const listening = "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen %'"

// traffic is everybody at work.
type traffic struct {
	*load
	stop func()
}

// busy lets people talk and goals come in until stop is called.
func (st *storm) busy() traffic {
	l := &load{st: st, acked: map[string]string{}}
	ctx, cancel := context.WithCancel(st.t.Context())
	var wg sync.WaitGroup
	for _, k := range st.talks {
		wg.Go(func() { k.run(ctx) })
	}
	wg.Go(func() { l.run(ctx) })
	var once sync.Once
	stop := func() {
		once.Do(func() { st.phase.Store(quiet); cancel(); wg.Wait() })
	}
	st.t.Cleanup(stop)
	return traffic{l, stop}
}

// await lets time pass.
func (st *storm) await(d time.Duration) {
	ctx, cancel := context.WithTimeout(st.t.Context(), d)
	defer cancel()
	<-ctx.Done()
}

// afterOutage measures from now, when the database answers again: until the first task starts to run, and until the sessions
// that were on their way are at rest.
func (st *storm) afterOutage() (first, drain time.Duration) {
	up := time.Now()
	ctx, cancel := context.WithTimeout(st.t.Context(), stuck)
	defer cancel()
	var dbUp time.Time
	var open []string
	until(ctx, func() bool {
		err := st.sql.QueryRowContext(ctx, "SELECT clock_timestamp()").Scan(&dbUp)
		return err == nil
	})
	for _, r := range st.rows("SELECT CAST(id AS text) FROM pulse_sessions WHERE status IN ('pending', 'running')") {
		open = append(open, "'"+r[0]+"'")
	}
	began := func(query string) bool {
		var n int
		return st.sql.QueryRowContext(ctx, query, dbUp).Scan(&n) == nil && n > 0
	}
	if !until(ctx, func() bool { return began("SELECT count(*) FROM inbox_tasks WHERE started_at >= $1") }) {
		st.t.Errorf("no task was started within %s of the outage", stuck)
	}
	first = time.Since(up)
	if len(open) == 0 {
		return first.Round(time.Millisecond), first.Round(time.Millisecond)
	}
	late := false
	if !until(ctx, func() bool {
		var n int
		err := st.sql.QueryRowContext(ctx, "SELECT count(*) FROM pulse_sessions WHERE status IN ('pending', 'running') AND id IN ("+strings.Join(open, ",")+")").Scan(&n)
		if time.Since(up) > drained && !late {
			late = true
			st.t.Logf("%s after the outage, of %d sessions: %q", drained, len(open), st.rows("SELECT right(CAST(s.id AS text), 4), left(s.goal, 8), s.status, s.current_iteration, s.step_token IS NOT NULL, s.due_at - now(), t.status, t.claims, t.attempt, t.lease_until - now(), now() - t.created_at, now() - t.started_at"+
				" FROM pulse_sessions s LEFT JOIN inbox_tasks t ON t.session_id = s.id AND t.status IN ('queued', 'claimed', 'running') WHERE s.status IN ('pending', 'running') AND s.id IN ("+strings.Join(open, ",")+")"))
		}
		return err == nil && n == 0
	}) {
		st.t.Errorf("sessions that were on their way are not at rest within %s of the outage", stuck)
	}
	return first.Round(time.Millisecond), time.Since(up).Round(time.Millisecond)
}

// afterwards is everything that must hold when the faults are over.
func (st *storm) afterwards(l traffic) {
	st.settle()
	st.heardOnce()
	st.decidedOnce()
	st.endedOnce()
	commits := st.committedOnce()
	told, repeated := st.toldOnce()
	l.check()
	st.summary(0, 0, 0, 0, commits, told, repeated)
}

// stuck is when something has stopped for good: how quickly it goes on is
// measured and printed, but a busy machine alone must fail nothing.
const stuck = 2 * time.Minute

var goroutine = regexp.MustCompile(`(?m)^goroutine \d+ .*\[`)

// leaks compares what the programs hold, goroutines and open files, with what they hold after a fresh start.
func (st *storm) leaks() {
	for _, node := range st.nodes {
		used, files := st.census(node)
		node.Launch()
		st.ready(node)
		st.calm(20 * time.Second)
		fresh, freshFiles := st.census(node)
		node.Launch()
		st.ready(node)
		st.t.Logf("%s: %d goroutines and %d files open after the faults, %d and %d after a fresh start", st.nameOf(node), used, files, fresh, freshFiles)
		if used > fresh+12 || files > freshFiles+12 {
			st.t.Errorf("%s leaks", st.nameOf(node))
		}
	}
}

// census ends the program by SIGQUIT, which prints every goroutine.
func (st *storm) census(node *e2etest.Pulse) (goroutines, files int) {
	open, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(node.Pid()), "fd"))
	if err != nil {
		st.t.Error(err)
	}
	node.Signal(syscall.SIGQUIT)
	if node.Gone(10*time.Second) == nil {
		st.t.Fatal("the program did not end on SIGQUIT")
	}
	return len(goroutine.FindAllString(node.Log(), -1)), len(open)
}
