package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"pulseloop/agent"
	"pulseloop/agent/cli"
	"pulseloop/agent/worktree"
	"pulseloop/db"
	"pulseloop/loop"
	"pulseloop/loop/recall"
	"pulseloop/notify"
	"pulseloop/pulse"
)

// instant is an agent that answers at once and always wants to go on.
type instant struct {
	started chan time.Time // a run is about to start
	said    chan time.Time // its conversation is over
}

func (a instant) Name() string                    { return "instant" }
func (a instant) Probe(context.Context) cli.Probe { return cli.Probe{Installed: true, LoggedIn: true} }

func (a instant) Command(cli.Input) (cli.Command, error) {
	if a.started != nil {
		a.started <- time.Now()
	}
	return cli.Command{Path: "/bin/true"}, nil
}

func (a instant) Converse(_ context.Context, w cli.Wire, _ cli.Input, _ <-chan cli.Control, emit func(cli.Event)) error {
	_ = w.Stdin.Close() // the child reads nothing
	const text = "I did a part of it.\n\n<signal>CONTINUE</signal>"
	emit(cli.Event{Kind: cli.EventText, Text: text})
	emit(cli.Event{Kind: cli.EventResult, Result: &cli.Result{FinalText: text}})
	if a.said != nil {
		a.said <- time.Now()
	}
	return nil
}

// loopWith runs Runner and daemon on one store.
func loopWith(ctx context.Context, s *db.Store, b cli.Backend, trees agent.Trees, repo string) (*loop.Actions, pulse.Project, func(), error) {
	p := pulse.Project{ID: pulse.ProjectID(pulse.NewUUID(time.Now())), Name: "bench", Path: repo, BaseBranch: "main", Agent: b.Name()}
	if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{Project: &p}); err != nil {
		return nil, p, nil, err
	}
	state, err := os.MkdirTemp("", "bench-state-")
	if err != nil {
		return nil, p, nil, fmt.Errorf("make folder: %w", err)
	}
	cfg := loop.Config{DefaultAgent: b.Name()}
	wakes, unsubscribe := s.Wakes(pulse.TopicSessions)
	running, cancel := context.WithCancel(ctx)
	runner := loop.NewRunner(loop.RunnerConfig{Config: cfg, Store: s, Reaper: s, Words: notify.Words{}, Prompts: recall.New(s, recall.Config{}), Wakes: wakes})
	done := make(chan error, 1)
	go func() { done <- runner.Run(running) }()
	stop := serving(ctx, s, s, func(c *agent.Config) {
		c.Backends, c.Trees, c.StateDir, c.ShutdownGrace = map[string]cli.Backend{b.Name(): b}, trees, state, time.Millisecond
	})
	return loop.NewActions(s, notify.Words{}, cfg), p, func() {
		stop()
		cancel()
		<-done
		unsubscribe()
		os.RemoveAll(state)
	}, nil
}

const iterations = 40

// iterationsOf is the time from the end of an agent's conversation to the
// start of the next agent of the same session: ending the child, checkpoint,
// result, decision, prompt, dispatch, claim, worktree.
func iterationsOf(open func(context.Context) (*db.Store, error), git bool) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		s, err := open(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		dir, err := os.MkdirTemp("", "bench-tree-")
		if err != nil {
			return nil, fmt.Errorf("make folder: %w", err)
		}
		defer os.RemoveAll(dir)
		var trees agent.Trees = flatTrees{dir}
		if git {
			if trees, err = realTrees(dir); err != nil {
				return nil, err
			}
		}
		b := instant{started: make(chan time.Time, iterations+1), said: make(chan time.Time, iterations+1)}
		actions, p, stop, err := loopWith(ctx, s, b, trees, filepath.Join(dir, "repo"))
		if err != nil {
			return nil, err
		}
		defer stop()
		if _, err := actions.Start(ctx, loop.StartRequest{Actor: loop.Actor{Origin: pulse.OriginAPI}, Project: p, Goal: "go on and on", MaxIterations: iterations}); err != nil {
			return nil, err
		}
		var all []time.Duration
		<-b.started
		for range iterations - 1 {
			said := <-b.said
			select {
			case t := <-b.started:
				all = append(all, t.Sub(said))
			case <-time.After(time.Minute):
				return nil, errors.New("no next iteration within a minute")
			}
		}
		return millis(all[5:]), nil // the first ones warm up
	}
}

// realTrees makes a small repository and the product's worktrees of it.
func realTrees(dir string) (*worktree.Trees, error) {
	repo := filepath.Join(dir, "repo")
	for _, args := range [][]string{{"init", "-q", "-b", "main", repo}, {"-C", repo, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "--allow-empty", "-m", "start"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("make repository: %w\n%s", err, out)
		}
	}
	return worktree.New(worktree.Config{Dir: filepath.Join(dir, "data")})
}

// commits is what one durable commit of a small row costs: the unit in which
// the other latencies can be counted.
func commits(open func(context.Context) (*db.Store, error)) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		s, err := open(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		var all []time.Duration
		for range 100 {
			begin := time.Now()
			if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{newTask(begin, "")}}); err != nil {
				return nil, err
			}
			all = append(all, time.Since(begin))
		}
		return millis(all), nil
	}
}

// newGoal is the time from a goal that was accepted to the start of its
// agent, beside n sessions that wait: half of them for a person, half for
// their agent.
func newGoal(waiting int) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		s, err := openSQLite(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := fillWaiting(ctx, s, waiting); err != nil {
			return nil, err
		}
		b := instant{started: make(chan time.Time, 1)}
		actions, p, stop, err := loopWith(ctx, s, b, flatTrees{os.TempDir()}, "/src/bench")
		if err != nil {
			return nil, err
		}
		defer stop()
		var all []time.Duration
		for range 50 {
			if _, err := actions.Start(ctx, loop.StartRequest{Actor: loop.Actor{Origin: pulse.OriginAPI}, Project: p, Goal: "go once", MaxIterations: 1}); err != nil {
				return nil, err
			}
			begin := time.Now()
			all = append(all, max(0, (<-b.started).Sub(begin)))
			time.Sleep(50 * time.Millisecond) // so that its end is over
		}
		return millis(all), nil
	}
}

func fillWaiting(ctx context.Context, s *db.Store, n int) error {
	return together(64, func(i int) error {
		for k := i; k < n; k += 64 {
			now := time.Now()
			session := newSession(now, pulse.SessionBlocked)
			if k%2 == 0 {
				session.Status, session.DueAt = pulse.SessionRunning, now.Add(time.Hour)
			}
			if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{NewSession: &session}); err != nil {
				return err
			}
		}
		return nil
	})
}
