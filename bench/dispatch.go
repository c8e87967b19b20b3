package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"pulseloop/agent"
	"pulseloop/agent/cli"
	"pulseloop/agent/worktree"
	"pulseloop/db"
	"pulseloop/pulse"
)

// seen is a queue that says when a claim was answered with a task.
type seen struct {
	agent.Queue

	at chan time.Time
}

func (q seen) Claim(ctx context.Context, d pulse.DaemonID, routes []string, lease time.Duration) (pulse.Claim, error) {
	c, err := q.Queue.Claim(ctx, d, routes, lease)
	if err == nil {
		q.at <- time.Now()
	}
	return c, err
}

func (q seen) ClaimMany(ctx context.Context, d pulse.DaemonID, routes []string, n int, lease time.Duration) ([]pulse.Claim, error) {
	some, err := q.Queue.ClaimMany(ctx, d, routes, n, lease)
	if err == nil {
		q.at <- time.Now()
	}
	return some, err
}

// serving runs the product's daemon on the store, with no agent: a task it
// claims fails at once. It returns when the daemon waits for work.
func serving(ctx context.Context, s *db.Store, q agent.Queue, change func(*agent.Config)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	cfg := agent.Config{ID: pulse.DaemonID(pulse.NewUUID(time.Now())), Queue: q, Registry: s, Waker: s, Backends: map[string]cli.Backend{}, Trees: nil}
	if change != nil {
		change(&cfg)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = agent.New(cfg).Run(ctx) // nil, by its contract
	}()
	time.Sleep(300 * time.Millisecond)
	return func() { cancel(); <-done }
}

// pause is the time between two tasks, so that each meets a daemon at rest.
func pause() { time.Sleep(8*time.Millisecond + rand.N(17*time.Millisecond)) }

const dispatched = 200

// latencyPulse is the time from the committed task to the daemon that has it.
// On PostgreSQL producer and daemon have a store each, as two processes have.
func latencyPulse(open func(context.Context) (*db.Store, error), apart bool) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		s, err := open(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		theirs := s
		if apart {
			if theirs, err = open(ctx); err != nil {
				return nil, err
			}
			defer theirs.Close()
		}
		p := pulse.Project{ID: pulse.ProjectID(pulse.NewUUID(time.Now())), Name: "bench", Path: "/src/bench"}
		if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{Project: &p}); err != nil {
			return nil, err
		}
		at := make(chan time.Time, 1)
		defer serving(ctx, theirs, seen{theirs, at}, nil)()
		all := make([]time.Duration, 0, dispatched)
		for range dispatched {
			t := newTask(time.Now(), "")
			t.Route = pulse.ProjectRoute(p.ID)
			if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{t}}); err != nil {
				return nil, err
			}
			committed := time.Now()
			all = append(all, max(0, (<-at).Sub(committed)))
			pause()
		}
		return millis(all), nil
	}
}

// latencyRaw is a NOTIFY in the producer's transaction, a LISTEN, and a
// prepared claim: the least there is.
func latencyRaw(ctx context.Context, _ []string) (sample, error) {
	s, err := openPostgres(ctx)
	if err != nil {
		return nil, err
	}
	s.Close()
	pool, err := pgxpool.New(ctx, os.Getenv("BENCH_URL"))
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	defer pool.Close()
	ctx, cancel := context.WithCancel(ctx)
	at, failed := make(chan time.Time, 1), make(chan error, 1)
	listening := make(chan struct{})
	go func() { failed <- listenRaw(ctx, pool, listening, at) }()
	defer func() { cancel(); <-failed }()
	<-listening
	all := make([]time.Duration, 0, dispatched)
	for range dispatched {
		if _, err := pool.Exec(ctx, "WITH t AS ("+insertTask+" RETURNING 1) SELECT pg_notify('bench', '') FROM t", taskArgs(time.Now())...); err != nil {
			return nil, err
		}
		committed := time.Now()
		select {
		case t := <-at:
			all = append(all, max(0, t.Sub(committed)))
		case err := <-failed:
			return nil, err
		}
		pause()
	}
	return millis(all), nil
}

func listenRaw(ctx context.Context, pool *pgxpool.Pool, listening chan<- struct{}, at chan<- time.Time) error {
	conn, err := pgx.Connect(ctx, os.Getenv("BENCH_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN bench"); err != nil {
		return err
	}
	close(listening)
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		var id string
		if err := pool.QueryRow(ctx, claimRaw, route).Scan(&id, new(string)); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		at <- time.Now()
	}
}

const claimRaw = `UPDATE inbox_tasks SET status = 'claimed', claimed_by = 'raw', attempt = attempt + 1 WHERE id = (
	SELECT id FROM inbox_tasks WHERE route = $1 AND status = 'queued' ORDER BY priority DESC, created_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
	RETURNING id::text, content`

const insertTask = `INSERT INTO inbox_tasks (id, kind, route, status, content, media_context, spec, max_attempts, created_at)
	VALUES ($1, 'iterate', $2, 'queued', $3, '{}', '{"role":"pulsing","agent":"scripted","repo_path":"/src/my-app"}', 3, $4)`

func taskArgs(now time.Time) []any { return []any{pulse.NewUUID(now), route, prompt, now} }

// enqueuePulse is the rate of tasks put in by 8 clients, each committed by
// itself, with wake-ups for whoever waits.
func enqueuePulse(ctx context.Context, _ []string) (sample, error) {
	s, err := openPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	listener, err := openPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return enqueue(func() error {
		return s.Apply(ctx, pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{newTask(time.Now(), "")}})
	})
}

// enqueueRaw is the rate of plain inserts of the same rows; with notify each
// row has a NOTIFY of its own.
func enqueueRaw(notify bool) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		s, err := openPostgres(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close() // it listens, as in the other contenders
		cfg, err := pgxpool.ParseConfig(os.Getenv("BENCH_URL"))
		if err != nil {
			return nil, fmt.Errorf("read address: %w", err)
		}
		cfg.MaxConns = claimers
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, fmt.Errorf("open pool: %w", err)
		}
		defer pool.Close()
		sql := insertTask
		if notify {
			sql = "WITH t AS (" + insertTask + " RETURNING 1) SELECT pg_notify('bench', '') FROM t"
		}
		return enqueue(func() error {
			_, err := pool.Exec(ctx, sql, taskArgs(time.Now())...)
			return err
		})
	}
}

// enqueueSilent is a transaction through bun that inserts the row of a task,
// as the product's is, and wakes nobody.
func enqueueSilent(ctx context.Context, _ []string) (sample, error) {
	s, err := openPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	cfg, err := pgx.ParseConfig(os.Getenv("BENCH_URL"))
	if err != nil {
		return nil, fmt.Errorf("read address: %w", err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	sqldb := stdlib.OpenDB(*cfg)
	sqldb.SetMaxOpenConns(16)
	sqldb.SetMaxIdleConns(16)
	db := bun.NewDB(sqldb, pgdialect.New())
	defer db.Close()
	return enqueue(func() error {
		now := time.Now()
		row := taskRow{ID: pulse.NewUUID(now), Kind: "iterate", Route: route, Status: "queued", Source: "pulse", Content: prompt, MediaContext: "{}",
			Spec: `{"role":"pulsing","agent":"scripted","repo_path":"/src/my-app"}`, MaxAttempts: 3, CreatedAt: now}
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewInsert().Model(&row).Exec(ctx)
			return err
		})
	})
}

type taskRow struct {
	bun.BaseModel `bun:"table:inbox_tasks"`

	ID, Kind, Route string
	Priority        int
	Status, Source  string
	SessionID       *string
	IterationID     *string
	Content         string
	MediaContext    string
	Spec            string
	Attempt, Claims int
	MaxAttempts     int
	ClaimToken      *string
	ClaimedBy       *string
	LeaseUntil      *time.Time
	LastSign        *time.Time
	Result          *string
	CreatedAt       time.Time
	StartedAt       *time.Time
	EndedAt         *time.Time
}

func enqueue(one func() error) (sample, error) {
	begin := time.Now()
	end := begin.Add(3 * time.Second)
	var n atomic.Int64
	err := together(claimers, func(int) error {
		for time.Now().Before(end) {
			if err := one(); err != nil {
				return err
			}
			n.Add(1)
		}
		return nil
	})
	return sample{"rows/s": rate(int(n.Load()), begin), "n": float64(n.Load())}, err
}

// lostWakes has tasks come without any wake-up.
func lostWakes(ctx context.Context, _ []string) (sample, error) {
	s, err := openPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	id := pulse.DaemonID(pulse.NewUUID(time.Now()))
	at := make(chan time.Time, 1)
	defer serving(ctx, s, seen{s, at}, func(c *agent.Config) { c.ID = id })()
	var all []time.Duration
	err = connected(ctx, func(conn *pgx.Conn) error {
		for range 10 {
			time.Sleep(rand.N(time.Second)) // any phase of the polling
			now := time.Now()
			if _, err := conn.Exec(ctx, insertTask, pulse.NewUUID(now), pulse.DaemonRoute(id), prompt, now); err != nil {
				return err
			}
			committed := time.Now()
			all = append(all, max(0, (<-at).Sub(committed)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return millis(all), nil
}

// flatTrees are worktrees without git.
type flatTrees struct{ dir string }

func (f flatTrees) Ensure(context.Context, worktree.Want) (worktree.Tree, error) {
	return worktree.Tree{Path: f.dir}, nil
}

func (f flatTrees) Checkpoint(context.Context, worktree.Tree, worktree.Save) (worktree.Checkpoint, error) {
	return worktree.Checkpoint{Commit: strings.Repeat("a", 40)}, nil
}
