package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"pulseloop/db"
	"pulseloop/pulse"
)

const (
	claimers = 8
	lease    = 30 * time.Second
	route    = "project:bench"
)

func openPostgres(ctx context.Context) (*db.Store, error) {
	return openMigrated(ctx, db.Config{URL: os.Getenv("BENCH_URL")})
}

func openSQLite(ctx context.Context) (*db.Store, error) {
	return openMigrated(ctx, db.Config{Path: filepath.Join(os.Getenv("BENCH_DIR"), "pulse.db")})
}

func openMigrated(ctx context.Context, cfg db.Config) (*db.Store, error) {
	s, err := db.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = s.Migrate(ctx)
	return s, err
}

// together runs fn in n goroutines and gives the first error.
func together(n int, fn func(i int) error) error {
	errs := make([]error, n)
	var g sync.WaitGroup
	for i := range n {
		g.Go(func() { errs[i] = fn(i) })
	}
	g.Wait()
	return errors.Join(errs...)
}

const prompt = "Add a health endpoint to the server, with a test, and say what you did in two sentences."

func newTask(now time.Time, session pulse.SessionID) pulse.Task {
	return pulse.Task{ID: pulse.TaskID(pulse.NewUUID(now)), Kind: pulse.TaskIterate, Route: route, SessionID: session, Content: prompt, MaxAttempts: 3,
		Spec: pulse.TaskSpec{Role: pulse.RolePulsing, Agent: "scripted", RepoPath: "/src/my-app", ProjectName: "my-app", Branch: "pulse/health", Subject: "chore: iteration 1"}}
}

func newSession(now time.Time, status pulse.SessionStatus) pulse.Session {
	return pulse.Session{ID: pulse.SessionID(pulse.NewUUID(now)), ProjectName: "my-app", Goal: "add a health endpoint", Role: pulse.RolePulsing,
		Status: status, MaxIterations: 10, Run: 1, ContextStrategy: pulse.ContextNone, Agent: "scripted", BranchName: "pulse/health",
		CreatedBy: pulse.OriginAPI, CreatedAt: now, UpdatedAt: now}
}

// fill queues n tasks straight in the database, as old as the time it takes.
// Keys rise with time, as the product's do.
// With sessions each task has one of its own, which is running.
func fill(ctx context.Context, conn *pgx.Conn, n int, sessions bool) error {
	session := "NULL"
	if sessions {
		session = "id"
		_, err := conn.Exec(ctx, `INSERT INTO pulse_sessions (id, project_name, goal, role, status, max_iterations, created_by, due_at, created_at, updated_at)
			SELECT (lpad(to_hex(g), 12, '0') || '7000800000000000abcd')::uuid, 'my-app', 'add a health endpoint', 'pulsing', 'running', 10, 'api', now() + interval '1 hour', now(), now() FROM generate_series(1, $1::int) g`, n)
		if err != nil {
			return fmt.Errorf("fill sessions: %w", err)
		}
	}
	_, err := conn.Exec(ctx, `INSERT INTO inbox_tasks (id, kind, route, status, session_id, content, media_context, spec, max_attempts, created_at)
		SELECT id, 'iterate', $2, 'queued', `+session+`, $3, '{}', '{"role":"pulsing","agent":"scripted","repo_path":"/src/my-app"}', 3, now() + g * interval '1 microsecond'
		FROM (SELECT g, (lpad(to_hex(g), 12, '0') || '7000800000000000abcd')::uuid AS id FROM generate_series(1, $1::int) g) x`, n, route, prompt)
	if err != nil {
		return fmt.Errorf("fill tasks: %w", err)
	}
	_, err = conn.Exec(ctx, "VACUUM ANALYZE") // as autovacuum would, in its own time
	return err
}

func connected(ctx context.Context, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, os.Getenv("BENCH_URL"))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(ctx)
	return fn(conn)
}

// drain claims and finishes until limit tasks are done or none is left.
func drain(ctx context.Context, s *db.Store, limit int) (sample, error) {
	done := make([]int, claimers)
	begin := time.Now()
	err := together(claimers, func(i int) error {
		for done[i] < limit/claimers {
			c, err := s.Claim(ctx, "bench", []string{route}, lease)
			if errors.Is(err, pulse.ErrNone) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := s.Finish(ctx, pulse.Fence{TaskID: c.Task.ID, Token: c.Token}, pulse.TaskResult{FinalText: "done"}); err != nil {
				return err
			}
			done[i]++
		}
		return nil
	})
	total := 0
	for _, n := range done {
		total += n
	}
	return sample{"cycles/s": rate(total, begin), "n": float64(total)}, err
}

const drained = 6000

// drainPulse is claim and finish as a daemon does it.
func drainPulse(queued int, sessions bool) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		s, err := openPostgres(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := connected(ctx, func(c *pgx.Conn) error { return fill(ctx, c, queued, sessions) }); err != nil {
			return nil, err
		}
		return drain(ctx, s, drained)
	}
}

const (
	drainedMany = 20_000
	batch       = 100
)

// drainMany claims and finishes in bulk, as what has much to do at once can.
func drainMany(sessions bool) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		s, err := openPostgres(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := connected(ctx, func(c *pgx.Conn) error { return fill(ctx, c, drainedMany, sessions) }); err != nil {
			return nil, err
		}
		begin := time.Now()
		err = together(claimers, func(int) error {
			for {
				claims, err := s.ClaimMany(ctx, "bench", []string{route}, batch, lease)
				if errors.Is(err, pulse.ErrNone) {
					return nil
				}
				if err != nil {
					return err
				}
				done := make([]db.Finished, len(claims))
				for i, c := range claims {
					done[i] = db.Finished{Fence: pulse.Fence{TaskID: c.Task.ID, Token: c.Token}, Result: pulse.TaskResult{FinalText: "done"}}
				}
				if err := errors.Join(s.FinishMany(ctx, done)...); err != nil {
					return err
				}
			}
		})
		if err != nil {
			return nil, err
		}
		counts, err := s.Counts(ctx)
		if err != nil {
			return nil, err
		}
		if n := counts["tasks_complete"]; n != drainedMany {
			return nil, fmt.Errorf("%d of %d tasks are complete", n, drainedMany)
		}
		return sample{"cycles/s": rate(drainedMany, begin), "n": drainedMany}, nil
	}
}

// drainFrom works a part of what is queued, as long as the backlog stays
// about what it was.
func drainFrom(queued int) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		s, err := openPostgres(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := connected(ctx, func(c *pgx.Conn) error { return fill(ctx, c, queued+drained, false) }); err != nil {
			return nil, err
		}
		return drain(ctx, s, drained)
	}
}

// drainRaw is the least that a queue on the same table needs: a prepared
// claim, a prepared completion, no lease, no token, no result.
func drainRaw(ctx context.Context, _ []string) (sample, error) {
	s, err := openPostgres(ctx)
	if err != nil {
		return nil, err
	}
	s.Close()
	if err := connected(ctx, func(c *pgx.Conn) error { return fill(ctx, c, drained, false) }); err != nil {
		return nil, err
	}
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
	begin := time.Now()
	err = together(claimers, func(int) error {
		for {
			var id, content string
			err := pool.QueryRow(ctx, claimRaw, route).Scan(&id, &content)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			if _, err := pool.Exec(ctx, "UPDATE inbox_tasks SET status = 'complete', ended_at = now() WHERE id = $1", id); err != nil {
				return err
			}
		}
	})
	return sample{"cycles/s": rate(drained, begin), "n": drained}, err
}

// cyclesSQLite are enqueue, claim and finish by several clients at once.
func cyclesSQLite(sessions bool) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		s, err := openSQLite(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		n := make([]int, claimers)
		begin := time.Now()
		end := begin.Add(3 * time.Second)
		err = together(claimers, func(i int) error {
			mine := newSession(begin, pulse.SessionRunning)
			if sessions {
				if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{NewSession: &mine}); err != nil {
					return err
				}
			} else {
				mine.ID = ""
			}
			for time.Now().Before(end) {
				if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{newTask(begin, mine.ID)}}); err != nil {
					return err
				}
				c, err := s.Claim(ctx, "bench", []string{route}, lease)
				if err != nil {
					return err
				}
				if err := s.Finish(ctx, pulse.Fence{TaskID: c.Task.ID, Token: c.Token}, pulse.TaskResult{FinalText: "done"}); err != nil {
					return err
				}
				n[i]++
			}
			return nil
		})
		total := 0
		for _, k := range n {
			total += k
		}
		return sample{"cycles/s": rate(total, begin), "n": float64(total)}, err
	}
}
