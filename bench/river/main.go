// Command river measures River on PostgreSQL: drain N, latency N [tuned], outage, idle. BENCH_URL names an empty database.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type args struct {
	N int `json:"n"`
}

func (args) Kind() string { return "bench" }

type worker struct {
	river.WorkerDefaults[args]

	began chan time.Time // nil: nobody wants to know
	n     atomic.Int64   // worked
}

func (w *worker) Work(context.Context, *river.Job[args]) error {
	w.n.Add(1)
	if w.began != nil {
		w.began <- time.Now()
	}
	return nil
}

func main() {
	if err := run(context.Background(), append(os.Args[1:], "", "", "")); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func run(ctx context.Context, argv []string) error {
	pool, err := pgxpool.New(ctx, os.Getenv("BENCH_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	n := 0
	if argv[1] != "" {
		if n, err = strconv.Atoi(argv[1]); err != nil {
			return err
		}
	}
	var out map[string]float64
	switch argv[0] {
	case "drain":
		out, err = drain(ctx, pool, n)
	case "latency":
		out, err = latency(ctx, pool, n, argv[2] == "tuned")
	case "outage":
		out, err = outlive(ctx, pool)
	case "idle":
		out, err = idle(ctx, pool)
	default:
		err = fmt.Errorf("no such mode: %q", argv[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func newClient(pool *pgxpool.Pool, w *worker, adjust func(*river.Config)) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	cfg := &river.Config{Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}, Workers: workers, Logger: quiet}
	if adjust != nil {
		adjust(cfg)
	}
	return river.NewClient(riverpgxv5.New(pool), cfg)
}

// drain works n jobs that are there at the start, as its own benchmark
// does: a queue with very many workers.
func drain(ctx context.Context, pool *pgxpool.Pool, n int) (map[string]float64, error) {
	w := &worker{}
	client, err := newClient(pool, w, func(c *river.Config) {
		c.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: 2000}
		c.FetchCooldown, c.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	})
	if err != nil {
		return nil, err
	}
	for done := 0; done < n; {
		many := make([]river.InsertManyParams, min(5000, n-done))
		for i := range many {
			many[i].Args = args{N: done + i}
		}
		if _, err := client.InsertManyFast(ctx, many); err != nil {
			return nil, err
		}
		done += len(many)
	}
	if _, err := pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	for w.n.Load() < int64(n) { // the rows are not counted while there is work: that would slow it
		time.Sleep(time.Millisecond)
	}
	for left := 1; left > 0; {
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&left); err != nil {
			return nil, err
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(begin).Seconds()
	return map[string]float64{"cycles/s": float64(n) / took, "n": float64(n)}, client.Stop(ctx)
}

// latency inserts one job at a time and measures until it is being worked.
func latency(ctx context.Context, pool *pgxpool.Pool, n int, tuned bool) (map[string]float64, error) {
	w := &worker{began: make(chan time.Time, 1)}
	client, err := newClient(pool, w, func(c *river.Config) {
		if tuned {
			c.FetchCooldown, c.FetchPollInterval = time.Millisecond, 10*time.Millisecond
		}
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	time.Sleep(500 * time.Millisecond)
	all := make([]time.Duration, 0, n)
	for i := range n {
		if _, err := client.Insert(ctx, args{N: i}, nil); err != nil {
			return nil, err
		}
		committed := time.Now()
		all = append(all, max(0, (<-w.began).Sub(committed)))
		time.Sleep(8*time.Millisecond + rand.N(17*time.Millisecond))
	}
	slices.Sort(all)
	at := func(q float64) float64 {
		return float64(all[int(math.Ceil(q*float64(n)))-1].Microseconds()) / 1000
	}
	return map[string]float64{"p50 ms": at(0.5), "p99 ms": at(0.99), "max ms": at(1), "n": float64(n)}, client.Stop(ctx)
}

// idle is the memory of a process that waits for jobs.
func idle(ctx context.Context, pool *pgxpool.Pool) (map[string]float64, error) {
	client, err := newClient(pool, &worker{}, nil)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	time.Sleep(10 * time.Second)
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return map[string]float64{"RSS MB": kb / 1024}, err
		}
	}
	return nil, fmt.Errorf("no VmRSS in /proc/self/status")
}
