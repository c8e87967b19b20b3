package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
)

// The figures of outage.go in the folder above.
const (
	outageJobs    = 100
	outageSlots   = 8
	outageWork    = 200 * time.Millisecond
	outagePatient = 90 * time.Second
)

type slowWorker struct {
	river.WorkerDefaults[args]

	began chan time.Time
}

func (w *slowWorker) Work(ctx context.Context, _ *river.Job[args]) error {
	w.began <- time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(outageWork):
		return nil
	}
}

// asker inserts jobs and keeps the ids of those that were acknowledged.
type asker struct {
	client *river.Client[pgx.Tx]
	mu     sync.Mutex
	acked  []int64
}

func (a *asker) one(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	r, err := a.client.Insert(ctx, args{}, nil)
	if err == nil {
		a.mu.Lock()
		a.acked = append(a.acked, r.Job.ID)
		a.mu.Unlock()
	}
	return err
}

// outlive works a backlog while its database goes away, and comes back when
// standard input says so.
func outlive(ctx context.Context, pool *pgxpool.Pool) (map[string]float64, error) {
	w := &slowWorker{began: make(chan time.Time, 1000)}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	client, err := newClient(pool, &worker{}, func(c *river.Config) {
		c.Queues, c.Workers = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: outageSlots}}, workers
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	a := &asker{client: client}
	for range outageJobs + 2*outageSlots {
		if err := a.one(ctx); err != nil {
			return nil, err
		}
	}
	for range outageSlots + 1 {
		<-w.began
	}
	asking, enough := context.WithCancel(ctx)
	defer enough()
	var asks sync.WaitGroup
	asks.Go(func() {
		for asking.Err() == nil {
			_ = a.one(asking)
			time.Sleep(100 * time.Millisecond)
		}
	})
	fmt.Println("ready")
	up, err := told()
	if err != nil {
		return nil, err
	}
	first := up.Add(outagePatient)
	for first.Sub(up) == outagePatient {
		select {
		case at := <-w.began:
			if at.After(up) {
				first = at
			}
		case <-time.After(outagePatient):
			first = time.Now()
		}
	}
	enough()
	asks.Wait()
	left, end := 1, time.Now().Add(outagePatient)
	for left > 0 && time.Now().Before(end) {
		err := pool.QueryRow(ctx, "SELECT count(*) FROM unnest($1::bigint[]) a (id) LEFT JOIN river_job j ON j.id = a.id WHERE j.state IS DISTINCT FROM 'completed'", a.acked).Scan(&left)
		if err != nil {
			left = len(a.acked) // a connection from before the outage
		}
		time.Sleep(5 * time.Millisecond)
	}
	return map[string]float64{"first ms": float64(first.Sub(up).Microseconds()) / 1000, "drained s": time.Since(up).Seconds(), "never done": float64(left), "n": float64(len(a.acked))}, nil
}

// told reads when the database was back.
func told() (time.Time, error) {
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return time.Time{}, err
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return time.Unix(0, ns), err
}
