package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// Times of a run. The lease is a tenth of the real one, so that a test sees many of them; slack is what the machine may add.
const (
	lease = 3 * time.Second
	slack = 10 * time.Second

	// rest is what the machine may add until all work is done: on one that is busy, that is most of the time.
	rest = 90 * time.Second
)

// setup is how the program is set up: processes on one database.
type setup struct {
	name     string
	postgres bool
	split    bool    // a server and two daemons, each killed by itself
	share    float64 // of the kills
	url      string  // of a PostgreSQL of its own; empty: a schema of the shared one
	lease    time.Duration
}

// storm is one run.
type storm struct {
	t      *testing.T
	setup  setup
	dice   *rand.Rand
	o      *oracle
	tg     *telegramtest.Server
	repo   *e2etest.Repository
	front  *e2etest.Pulse   // has the API
	nodes  []*e2etest.Pulse // all
	phase  atomic.Int32
	talks  []*talk
	victim *telegramtest.Chat

	database string  // of PostgreSQL
	sql      *sql.DB // past the program; opened when the faults have ended, so that it is never the one who repairs a file

	kills   map[string]int
	longest map[string]time.Duration
}

func newStorm(t *testing.T, s setup, seed uint64) *storm {
	if s.lease == 0 {
		s.lease = lease
	}
	tg := telegramtest.Start(t, telegramtest.Options{})
	st := &storm{t: t, setup: s, dice: dice(seed, 1), o: newOracle(t), tg: tg, repo: e2etest.Repo(t), kills: map[string]int{}, longest: map[string]time.Duration{}}
	st.o.watch(t, tg)
	if st.database = s.url; s.postgres && s.url == "" {
		st.database = postgres(t)
	}
	opt := func(command string) e2etest.Options {
		return e2etest.Options{Command: []string{command}, Database: st.database, Script: agents(), Config: "loop: {max_iterations: 4}\n",
			Env: []string{"PULSE_DAEMON_LEASE=" + s.lease.String(), "PULSE_DAEMON_SHUTDOWN_GRACE=300ms", "PULSE_LOG_LEVEL=info"}}
	}
	first := opt("up")
	if s.split {
		first = opt("serve")
	}
	first.Telegram, first.Projects = tg, map[string]*e2etest.Repository{"my-app": st.repo}
	st.front = e2etest.Start(t, first)
	st.nodes = []*e2etest.Pulse{st.front}
	if s.split {
		for range 2 {
			st.nodes = append(st.nodes, e2etest.Start(t, opt("daemon")))
		}
	}
	st.people(seed)
	return st
}

// people come in and are paired: four in private, two in a group, and one who blocks the bot now and then.
func (st *storm) people(seed uint64) {
	var all []*e2etest.Person
	for i, name := range []string{"Ann", "Ben", "Cho", "Dan", "Vic"} {
		p := e2etest.NewPerson(st.t, st.tg, name)
		code := st.front.PairCode
		if i > 0 {
			code = func() string {
				r, err := st.front.Client().Pair(e2etest.Context(st.t), pulse.RoleOperator)
				if err != nil {
					st.t.Fatal(err)
				}
				return r.Code
			}
		}
		c := code()
		st.o.say(said{Kind: "pair", Chat: p.Chat.ID, Who: name, Text: "/pair " + c})
		p.Pair(c)
		all = append(all, p)
	}
	group := st.tg.Group("Team", false)
	st.victim = all[4].Chat
	for i, p := range all {
		st.talks = append(st.talks, &talk{chat: p.Chat, users: []*telegramtest.User{p.User}, deaf: i == 4})
	}
	st.talks = append(st.talks, &talk{chat: group, users: []*telegramtest.User{all[0].User, all[1].User}})
	for i, k := range st.talks {
		k.o, k.tg, k.phase, k.dice = st.o, st.tg, &st.phase, dice(seed, uint64(10+i))
		k.heard = 1 << 20
		if m := k.chat.MessagesAfter(0); len(m) > 0 {
			k.heard = m[len(m)-1].ID
		} else {
			k.heard = 0
		}
	}
}

// rage lets people talk and ends programs until it was often enough, or the time is over; then the faults end and
// everything runs again.
func (st *storm) rage(kills int, limit time.Duration) (lastStart time.Time, hits int) {
	ctx, cancel := context.WithTimeout(st.t.Context(), limit)
	defer cancel()
	var wg sync.WaitGroup
	for _, k := range st.talks {
		wg.Go(func() { k.run(st.t.Context()) })
	}
	skies, clear := context.WithCancel(st.t.Context())
	clouds := dice(uint64(st.dice.Int64()), 2)
	wg.Go(func() { hits = weather(skies, st.tg, clouds, st.victim.ID) })
	for n := 0; n < kills && ctx.Err() == nil; n++ {
		node := st.nodes[st.dice.IntN(len(st.nodes))]
		st.live(ctx, node)
		st.end(node)
		st.launch(node)
	}
	st.phase.Store(quiet)
	clear()
	wg.Wait()
	for _, node := range st.nodes {
		st.ready(node)
	}
	return time.Now(), hits
}

// live lets the program run for a while: a random time, or until something happens that is worth being killed at.
func (st *storm) live(ctx context.Context, node *e2etest.Pulse) {
	ctx, cancel := context.WithTimeout(ctx, between(st.dice, 20*time.Millisecond, 1800*time.Millisecond))
	defer cancel()
	switch st.dice.IntN(3) {
	case 0: // a call of the bot
		n := len(st.tg.CallsSince(0))
		skip := st.dice.IntN(6)
		_ = st.tg.Await(ctx, func() bool { return len(st.tg.CallsSince(n)) > skip })
	case 1: // a step of an agent's life
		mark := []string{"agent started", "task finished", "msg=checkpoint", "iteration recorded"}[st.dice.IntN(4)]
		n := strings.Count(node.Log(), mark)
		until(ctx, func() bool { return strings.Count(node.Log(), mark) > n })
	default:
		<-ctx.Done()
	}
}

// until polls, quickly, until ok or the end of ctx.
func until(ctx context.Context, ok func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ok()
		case <-tick.C:
		}
	}
	return true
}

// end ends the program in one of the ways.
func (st *storm) end(node *e2etest.Pulse) {
	how := "SIGKILL"
	began := time.Now()
	switch st.dice.IntN(12) {
	case 0:
		how = "SIGTERM"
		st.ready(node) // an order is for who runs; who starts may still be ended by the default action
		began = time.Now()
		node.Stop()
	case 1:
		how = "SIGTERM twice"
		st.ready(node)
		began = time.Now()
		node.Signal(syscall.SIGTERM)
		ctx, cancel := context.WithTimeout(st.t.Context(), between(st.dice, time.Millisecond, 100*time.Millisecond))
		<-ctx.Done()
		cancel()
		select {
		case <-node.Ended():
		default:
			_ = syscall.Kill(node.Pid(), syscall.SIGTERM)
		}
		if node.Gone(10*time.Second) == nil {
			st.t.Errorf("the program outlived two SIGTERMs by 10 s")
			node.Kill()
		}
	case 2:
		how = "SIGSTOP longer than the lease, SIGCONT"
		node.Signal(syscall.SIGSTOP)
		ctx, cancel := context.WithTimeout(st.t.Context(), lease+between(st.dice, 100*time.Millisecond, time.Second))
		<-ctx.Done()
		cancel()
		node.Signal(syscall.SIGCONT)
	default:
		node.Kill()
	}
	st.o.write("ended", map[string]any{"node": st.nameOf(node), "how": how})
	st.kills[how]++
	st.longest[how] = max(st.longest[how], time.Since(began))
	st.keepLog(node)
}

func (st *storm) nameOf(node *e2etest.Pulse) string {
	for i, n := range st.nodes {
		if n == node {
			return fmt.Sprintf("node%d", i)
		}
	}
	return "?"
}

// keepLog moves what the program printed to a file beside the oracle's.
func (st *storm) keepLog(node *e2etest.Pulse) {
	if node.Running() {
		return
	}
	f, err := os.OpenFile(filepath.Join(st.o.dir, st.nameOf(node)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		st.t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintf(f, "%s\n--- ended ---\n", node.Log())
	node.Forget(1)
}

// launch starts the program again and mostly waits until it is ready, so that kills hit the start as well.
func (st *storm) launch(node *e2etest.Pulse) {
	if node.Running() {
		return // it was stopped and goes on
	}
	node.Launch()
	if st.dice.IntN(4) > 0 {
		st.ready(node)
	}
}

// ready waits until the program takes orders.
func (st *storm) ready(node *e2etest.Pulse) {
	ok := func() bool { return node.Anonymous().Health(st.t.Context()) == nil }
	if node != st.front {
		ok = func() bool { return strings.Contains(node.Output(), "Waiting for work") }
	}
	e2etest.Await(st.t, "the start of the program", func() bool {
		select {
		case <-node.Ended():
			st.t.Fatalf("the program ended at the start:\n%s", node.Log())
		default:
		}
		return ok()
	})
}

// limit is how long the program has to come to rest after the last fault: what was interrupted is in hand again after a lease
// and 5 s; the rest is work that waits for its turn, and takes as long as it takes.
func (st *storm) limit() time.Duration {
	return st.setup.lease + 5*time.Second + rest + time.Duration(st.number("SELECT count(*) FROM pulse_sessions WHERE status IN ('pending', 'running')"))*2*time.Second
}

// bound is what a time is held to. The long run is for a machine that does nothing else and adds nothing; in the short one,
// which runs beside other tests, the figure is printed and only a multiple of it fails.
func bound(d time.Duration) time.Duration {
	if *longFlag {
		return d
	}
	return d + slack
}

// reclaimed wants every task that was in hand when the faults ended to be over, or claimed anew, within a lease and 5 s, and
// answers when that was so. An agent's own time, at most half a second here, is in it.
func (st *storm) reclaimed(last time.Time) time.Duration {
	var held []string
	for _, r := range st.rows("SELECT CAST(id AS text), claims FROM inbox_tasks WHERE status IN ('claimed', 'running')") {
		held = append(held, fmt.Sprintf("(CAST(id AS text) = '%s' AND claims = %s AND status IN ('claimed', 'running', 'queued'))", r[0], r[1]))
	}
	if len(held) == 0 {
		return 0
	}
	ctx, cancel := context.WithDeadline(st.t.Context(), last.Add(bound(st.setup.lease+5*time.Second)))
	defer cancel()
	query := "SELECT count(*) FROM inbox_tasks WHERE " + strings.Join(held, " OR ")
	if !until(ctx, func() bool { return st.number(query) == 0 }) {
		st.t.Errorf("%s after the last fault, tasks are in nobody's hand: %q", bound(st.setup.lease+5*time.Second), st.rows("SELECT id, status, claims, lease_until FROM inbox_tasks WHERE "+strings.Join(held, " OR ")))
	}
	return time.Since(last)
}

// calm waits until nothing moves by itself: no update waits, no session is on its way. It answers how long that took.
func (st *storm) calm(limit time.Duration) time.Duration {
	began := time.Now()
	left := ""
	ctx, cancel := context.WithTimeout(st.t.Context(), limit)
	defer cancel()
	ok := until(ctx, func() bool {
		left = ""
		for what, query := range map[string]string{
			"updates not handled":   "SELECT count(*) FROM inbound_updates WHERE handled_at IS NULL",
			"sessions on their way": "SELECT count(*) FROM pulse_sessions WHERE status IN ('pending', 'running')",
			"tasks open":            "SELECT count(*) FROM inbox_tasks WHERE status IN ('queued', 'claimed', 'running')",
		} {
			var n int
			if err := st.sql.QueryRowContext(st.t.Context(), query).Scan(&n); err != nil {
				left += fmt.Sprintf("%s: %v; ", what, err)
			} else if n > 0 {
				left += fmt.Sprintf("%d %s; ", n, what)
			}
		}
		if p := st.tg.Pending(); len(p) > 0 {
			left += fmt.Sprintf("%d updates not fetched; ", len(p))
		}
		return left == ""
	})
	if !ok {
		st.t.Errorf("%s after the faults there are still: %s", limit, left)
	}
	return time.Since(began)
}

// settle brings every session to its end over the API.
func (st *storm) settle() {
	for round := range 12 {
		open := st.rows("SELECT CAST(id AS text), status, status_reason FROM pulse_sessions WHERE status NOT IN ('complete', 'aborted')")
		if len(open) == 0 {
			return
		}
		for _, s := range open {
			var err error
			switch {
			case strings.Contains(s[2], "iterations are used") || round > 8:
				_, err = st.front.Client().Abort(st.t.Context(), s[0])
			case s[1] == string(pulse.SessionBlocked):
				_, err = st.front.Client().Resume(st.t.Context(), s[0], "go on")
			default:
				_, err = st.front.Client().Resume(st.t.Context(), s[0], "")
			}
			if err != nil {
				st.t.Errorf("settle session %s, which is %s: %v", s[0], s[1], err)
			}
		}
		st.calm(60 * time.Second)
	}
	st.t.Error("sessions do not come to an end")
}
