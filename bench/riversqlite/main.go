// Command riversqlite measures River's queue on SQLite, through the driver and with the durability of the product.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite"
)

type args struct {
	Prompt string `json:"prompt"`
}

func (args) Kind() string { return "bench" }

type worker struct {
	river.WorkerDefaults[args]
}

func (w *worker) Work(context.Context, *river.Job[args]) error { return nil }

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "riversqlite:", err)
		os.Exit(1)
	}
}

// run has 8 clients insert jobs one by one for three seconds, while a client
// with 8 workers works them, and counts until the last is complete.
func run(ctx context.Context) error {
	path := filepath.Join(os.Getenv("BENCH_DIR"), "river.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // what the driver's documentation asks for
	driver := riversqlite.New(db)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{})
	atOnce := 8
	if len(os.Args) > 1 {
		if atOnce, err = strconv.Atoi(os.Args[1]); err != nil {
			return err
		}
	}
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: atOnce}}, Workers: workers,
		FetchCooldown: time.Millisecond, FetchPollInterval: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return err
	}
	events, stop := client.Subscribe(river.EventKindJobCompleted)
	defer stop()
	if err := client.Start(ctx); err != nil {
		return err
	}
	begin := time.Now()
	end := begin.Add(3 * time.Second)
	var inserted atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, 8)
	for range 8 {
		group.Go(func() {
			for time.Now().Before(end) {
				if _, err := client.Insert(ctx, args{Prompt: "Add a health endpoint to the server, with a test, and say what you did in two sentences."}, nil); err != nil {
					failures <- err
					return
				}
				inserted.Add(1)
			}
		})
	}
	all := make(chan struct{})
	go func() { group.Wait(); close(all) }()
	completed, waiting := int64(0), true
	for waiting || completed < inserted.Load() {
		select {
		case <-events:
			completed++
		case <-all:
			waiting, all = false, nil
		case err := <-failures:
			return err
		case <-time.After(30 * time.Second):
			return fmt.Errorf("%d of %d jobs completed", completed, inserted.Load())
		}
	}
	took := time.Since(begin).Seconds()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]float64{"cycles/s": float64(completed) / took, "n": float64(completed)}); err != nil {
		return err
	}
	return client.Stop(ctx)
}
