package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"pulseloop/agent"
	"pulseloop/agent/cli"
	"pulseloop/db"
	"pulseloop/loop"
	"pulseloop/loop/recall"
	"pulseloop/notify"
	"pulseloop/pulse"
)

// What an outage is measured with, the same for every contender: jobs of a
// fifth of a second, eight at once, a backlog of two and a half seconds when
// the database goes, and somebody who goes on asking for ten jobs a second.
const (
	outage        = 5 * time.Second
	outageJobs    = 100
	outageSlots   = 8
	outageWork    = 200 * time.Millisecond
	outagePatient = 90 * time.Second
)

// ordeal is the contender's part: it is told when the database is back.
type ordeal struct {
	ready chan struct{}  // closed by the contender: the backlog is there, and jobs are being worked
	up    chan time.Time // the database answers again
}

// through has a contender go through an outage of its own database.
func through(contender func(ctx context.Context, url string, o ordeal) (sample, error)) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		c, err := newCluster(ctx)
		if err != nil {
			return nil, err
		}
		defer c.close()
		o := ordeal{ready: make(chan struct{}), up: make(chan time.Time, 1)}
		type end struct {
			s   sample
			err error
		}
		ended := make(chan end, 1)
		go func() {
			s, err := contender(ctx, c.url, o)
			ended <- end{s, err}
		}()
		select {
		case <-o.ready:
		case e := <-ended:
			return nil, fmt.Errorf("it ended before the outage: %w", e.err)
		}
		c.cut()
		time.Sleep(outage)
		if err := c.start(ctx); err != nil {
			return nil, err
		}
		o.up <- time.Now()
		e := <-ended
		return e.s, e.err
	}
}

// worker is an agent that works for a while and is done.
type worker struct{ began chan time.Time }

func (w worker) Name() string                    { return "worker" }
func (w worker) Probe(context.Context) cli.Probe { return cli.Probe{Installed: true, LoggedIn: true} }

func (w worker) Command(cli.Input) (cli.Command, error) {
	w.began <- time.Now()
	return cli.Command{Path: "/bin/true"}, nil
}

func (w worker) Converse(ctx context.Context, wire cli.Wire, _ cli.Input, _ <-chan cli.Control, emit func(cli.Event)) error {
	_ = wire.Stdin.Close() // the child reads nothing
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(outageWork):
	}
	emit(cli.Event{Kind: cli.EventText, Text: "done"})
	emit(cli.Event{Kind: cli.EventResult, Result: &cli.Result{FinalText: "done"}})
	return nil
}

// outagePulse is the product's queue, daemon and Runner.
func outagePulse(ctx context.Context, url string, o ordeal) (sample, error) {
	s, err := openMigrated(ctx, db.Config{URL: url})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	dir, err := os.MkdirTemp("", "bench-state-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(dir)
	p := pulse.Project{ID: pulse.ProjectID(pulse.NewUUID(time.Now())), Name: "bench", Path: "/src/bench"}
	if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{Project: &p}); err != nil {
		return nil, err
	}
	w := worker{began: make(chan time.Time, 1000)}
	defer serving(ctx, s, s, func(c *agent.Config) {
		c.Backends, c.Trees, c.StateDir, c.Slots, c.ShutdownGrace = map[string]cli.Backend{"worker": w}, flatTrees{dir}, dir, outageSlots, time.Millisecond
	})()
	defer running(ctx, s)()
	put := func(ctx context.Context) (string, error) {
		t := newTask(time.Now(), "")
		t.Route, t.Spec.Agent = pulse.ProjectRoute(p.ID), "worker"
		return string(t.ID), s.Apply(ctx, pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{t}})
	}
	open := func(ctx context.Context, conn *pgx.Conn, ids []string) (n int, err error) {
		err = conn.QueryRow(ctx, "SELECT count(*) FROM unnest($1::text[]) a (id) LEFT JOIN inbox_tasks t ON t.id::text = a.id WHERE t.status IS DISTINCT FROM 'complete'", ids).Scan(&n)
		return n, err
	}
	return outlive(ctx, url, o, w.began, put, open)
}

// running runs the Runner, which gives back tasks whose lease ended.
func running(ctx context.Context, s *db.Store) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	wakes, unsubscribe := s.Wakes(pulse.TopicSessions)
	runner := loop.NewRunner(loop.RunnerConfig{Config: loop.Config{DefaultAgent: "worker"}, Store: s, Reaper: s, Words: notify.Words{}, Prompts: recall.New(s, recall.Config{}), Wakes: wakes})
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	return func() { cancel(); <-done; unsubscribe() }
}

// outlive fills the queue, lets the outage happen, and measures what follows.
func outlive(ctx context.Context, url string, o ordeal, began <-chan time.Time, put func(context.Context) (string, error),
	open func(context.Context, *pgx.Conn, []string) (int, error)) (sample, error) {
	var mu sync.Mutex
	var acked []string
	one := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		id, err := put(ctx)
		if err == nil {
			mu.Lock()
			acked = append(acked, id)
			mu.Unlock()
		}
		return err
	}
	for range outageJobs + 2*outageSlots {
		if err := one(ctx); err != nil {
			return nil, err
		}
	}
	for range outageSlots + 1 { // all work, and go on to the next
		<-began
	}
	asking, enough := context.WithCancel(ctx)
	defer enough()
	var asker sync.WaitGroup
	asker.Go(func() {
		for asking.Err() == nil {
			_ = one(asking) // while the database is away nothing is acknowledged
			time.Sleep(100 * time.Millisecond)
		}
	})
	close(o.ready)
	up := <-o.up
	first := up.Add(outagePatient)
	for first.Sub(up) == outagePatient {
		select {
		case at := <-began:
			if at.After(up) {
				first = at
			}
		case <-time.After(outagePatient):
			first = time.Now()
		}
	}
	enough()
	asker.Wait()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect after the outage: %w", err)
	}
	defer conn.Close(ctx)
	left := 0
	err = within(outagePatient, 5*time.Millisecond, func() (bool, error) {
		left, err = open(ctx, conn, acked)
		return err == nil && left == 0, err
	})
	if err != nil && err != errLate {
		return nil, fmt.Errorf("count open jobs: %w", err)
	}
	return sample{"first ms": ms(first.Sub(up)), "drained s": time.Since(up).Seconds(), "never done": float64(left), "n": float64(len(acked))}, nil
}

// outagePeer has a program of a peer go through it: it prints a line when it
// is ready, reads one when the database is back, and prints its sample.
func outagePeer(ctx context.Context, url string, o ordeal) (sample, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("BENCH_BIN"), "river"), "outage")
	cmd.Env = append(os.Environ(), "BENCH_URL="+url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	r := bufio.NewReader(out)
	if _, err := r.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("wait for the peer: %w", err)
	}
	close(o.ready)
	up := <-o.up
	if _, err := fmt.Fprintln(in, up.UnixNano()); err != nil {
		return nil, fmt.Errorf("tell the peer: %w", err)
	}
	var s sample
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("read what the peer measured: %w", err)
	}
	_, _ = io.Copy(io.Discard, r) // the rest is a line feed
	return s, cmd.Wait()
}
