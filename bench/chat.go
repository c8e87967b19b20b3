package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/db"
)

// openStore opens what the contender was given a place in.
func openStore(ctx context.Context) (*db.Store, error) {
	if os.Getenv("BENCH_URL") != "" {
		return openPostgres(ctx)
	}
	return openSQLite(ctx)
}

// openBeside reads the database past the product, while it runs.
func openBeside() (*sql.DB, error) {
	if url := os.Getenv("BENCH_URL"); url != "" {
		return sql.Open("pgx", url)
	}
	return sql.Open("sqlite", "file:"+filepath.Join(os.Getenv("BENCH_DIR"), "pulse.db")+"?mode=ro&_pragma=busy_timeout(5000)")
}

// crowd are people, each in a chat with the bot, in front of the product.
type crowd struct {
	tg     *telegramtest.Server
	people []*telegramtest.User
	p      *product
	repo   string
	sql    *sql.DB
	said   map[string]time.Time // goals, by their words
	ids    map[string]int64     // and their updates
	next   int64
}

// newCrowd starts the product without agents: what happens after a goal is in
// the database is measured elsewhere.
func newCrowd(ctx context.Context, n int) (c *crowd, stop func(), err error) {
	tg, env, err := telegram(telegramtest.Limits{})
	if err != nil {
		return nil, nil, err
	}
	c = &crowd{tg: tg, said: map[string]time.Time{}, ids: map[string]int64{}}
	for i := range n {
		c.people = append(c.people, tg.User("P"+strconv.Itoa(i)))
	}
	dir, err := benchDir()
	if err != nil {
		return nil, nil, err
	}
	if c.repo, err = os.MkdirTemp("", "bench-repo-"); err != nil {
		return nil, nil, fmt.Errorf("make folder: %w", err)
	}
	s, err := openStore(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, err = furnish(ctx, s, c.repo, c.people...)
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, nil, err
	}
	if c.p, err = newProduct("serve", dir, env...); err != nil {
		return nil, nil, err
	}
	if err := c.p.start(ctx); err != nil {
		return nil, nil, err
	}
	if c.sql, err = openBeside(); err != nil {
		return nil, nil, err
	}
	return c, func() { c.p.stop(); c.sql.Close(); tg.Close(); os.RemoveAll(dir); os.RemoveAll(c.repo) }, nil
}

// benchDir is the contender's folder, or one of its own where it has none.
func benchDir() (string, error) {
	if dir := os.Getenv("BENCH_DIR"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "bench-data-")
	if err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	return dir, nil
}

// say has the i-th person state a goal. Updates are numbered in the order in
// which they are said, from the first that is seen waiting.
func (c *crowd) say(i int) {
	goal := "goal number " + strconv.Itoa(i)
	u := c.people[i%len(c.people)]
	chat := u.Private()
	c.said[goal] = time.Now()
	chat.Say(u, "/pulse "+goal)
	if c.next == 0 {
		if waiting := c.tg.Pending(); len(waiting) > 0 {
			c.next = waiting[0]
		}
	}
	c.ids[goal] = c.next
	c.next++
}

// watch notes when a session with each goal is in the database, until all are.
func (c *crowd) watch(ctx context.Context, total int, seen map[string]time.Time) error {
	for len(seen) < total {
		rows, err := c.sql.QueryContext(ctx, "SELECT goal FROM pulse_sessions ORDER BY id DESC LIMIT 100")
		if err != nil {
			return fmt.Errorf("look for sessions: %w", err)
		}
		var fresh []string
		for rows.Next() {
			var goal string
			if err := rows.Scan(&goal); err != nil {
				return fmt.Errorf("read a session: %w", err)
			}
			if _, old := seen[goal]; !old {
				fresh = append(fresh, goal)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return fmt.Errorf("read sessions: %w", err)
		}
		now := time.Now()
		for _, g := range fresh {
			seen[g] = now
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for goals, %d of %d are there: %w", len(seen), total, ctx.Err())
		case <-time.After(3 * time.Millisecond):
		}
	}
	return nil
}

// acknowledged is when the bot asked for what comes behind each update.
func (c *crowd) acknowledged() (map[string]time.Time, error) {
	out := map[string]time.Time{}
	for _, call := range c.tg.CallsOf("getUpdates") {
		offset, err := strconv.ParseInt(call.Params["offset"], 10, 64)
		if err != nil {
			continue // the first asks for whatever there is
		}
		for goal, id := range c.ids {
			if _, done := out[goal]; !done && id < offset {
				out[goal] = call.At
			}
		}
	}
	if len(out) < len(c.said) {
		return nil, fmt.Errorf("%d of %d updates were acknowledged", len(out), len(c.said))
	}
	return out, nil
}

const (
	goalsPerSecond = 50
	goalsWarm      = 50
	goalsMeasured  = 700
)

// goalsFromChat is the time from an update that Telegram has to give until
// its goal is a committed session and the update is acknowledged. Fifty
// people state a goal a second each.
func goalsFromChat(ctx context.Context, _ []string) (sample, error) {
	c, stop, err := newCrowd(ctx, 50)
	if err != nil {
		return nil, err
	}
	defer stop()
	total := goalsWarm + goalsMeasured
	ctx, cancel := context.WithTimeout(ctx, time.Duration(total/goalsPerSecond+30)*time.Second)
	defer cancel()
	used, err := cpuTime(c.p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	seen, watched := map[string]time.Time{}, make(chan error, 1)
	go func() { watched <- c.watch(ctx, total, seen) }()
	tick := time.NewTicker(time.Second / goalsPerSecond)
	defer tick.Stop()
	for i := range total {
		c.say(i)
		<-tick.C
	}
	if err := <-watched; err != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.p.output())
	}
	later, err := cpuTime(c.p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	busy := float64(later-used) / float64(time.Since(begin))
	time.Sleep(100 * time.Millisecond) // the last acknowledgement may come behind the commit
	acked, err := c.acknowledged()
	if err != nil {
		return nil, err
	}
	var both, commits, acks []time.Duration
	for i := goalsWarm; i < total; i++ {
		goal := "goal number " + strconv.Itoa(i)
		begin := c.said[goal]
		commit, ack := seen[goal].Sub(begin), acked[goal].Sub(begin)
		commits, acks, both = append(commits, commit), append(acks, ack), append(both, max(commit, ack))
	}
	s := millis(both)
	s["CPU %"] = 100 * busy
	s["committed p99 ms"], s["acknowledged p99 ms"] = millis(commits)["p99 ms"], millis(acks)["p99 ms"]
	return s, nil
}

// updatesOverKills has people state goals while the product is killed and
// started again, and counts what became of them.
func updatesOverKills(kills int) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		c, stop, err := newCrowd(ctx, 50)
		if err != nil {
			return nil, err
		}
		defer stop()
		c.sql.Close() // nobody but the product touches a file that is repaired
		said, quiet := make(chan int, 1), make(chan struct{})
		go func() {
			tick := time.NewTicker(time.Second / goalsPerSecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-quiet:
					said <- i
					return
				case <-tick.C:
					c.say(i)
				}
			}
		}()
		err = c.die(ctx, kills)
		close(quiet)
		total := <-said
		if err != nil {
			return nil, err
		}
		return c.census(ctx, total)
	}
}

// die kills the product at random moments, also of its start.
func (c *crowd) die(ctx context.Context, kills int) error {
	for range kills {
		time.Sleep(rand.N(400 * time.Millisecond))
		c.p.kill()
		if rand.N(4) == 0 { // it is not long enough up to be ready
			if err := c.p.launch(ctx); err != nil {
				return err
			}
			continue
		}
		if err := c.p.start(ctx); err != nil {
			return err
		}
	}
	c.p.kill()
	return c.p.start(ctx)
}

// census counts the sessions of each goal when all is at rest.
func (c *crowd) census(ctx context.Context, total int) (sample, error) {
	var err error
	if c.sql, err = openBeside(); err != nil {
		return nil, err
	}
	count := func(query string) (n int, err error) {
		if err = c.sql.QueryRowContext(ctx, query).Scan(&n); err != nil {
			err = fmt.Errorf("count what is left: %w", err)
		}
		return n, err
	}
	begin := time.Now()
	err = within(60*time.Second, 20*time.Millisecond, func() (bool, error) {
		open, err := count("SELECT count(*) FROM inbound_updates WHERE handled_at IS NULL")
		return err == nil && open == 0 && len(c.tg.Pending()) == 0, err
	})
	if err != nil {
		return nil, fmt.Errorf("wait until every update is handled: %w\n%s", err, c.p.output())
	}
	took := time.Since(begin)
	all, err := count("SELECT count(*) FROM pulse_sessions")
	if err != nil {
		return nil, err
	}
	different, err := count("SELECT count(DISTINCT goal) FROM pulse_sessions")
	if err != nil {
		return nil, err
	}
	if all == 0 {
		return nil, errors.New("no goal arrived at all")
	}
	return sample{"lost": float64(total - different), "twice": float64(all - different), "n": float64(total), "at rest after ms": ms(took)}, nil
}
