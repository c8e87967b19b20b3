package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/agent/worktree"
	"pulseloop/internal/secret"
	"pulseloop/pulse"
)

// Trees is what the daemon needs of worktrees (agent/worktree).
type Trees interface {
	Ensure(ctx context.Context, w worktree.Want) (worktree.Tree, error)
	Checkpoint(ctx context.Context, t worktree.Tree, s worktree.Save) (worktree.Checkpoint, error)
}

// Config is what a Daemon is made of. Zero durations take defaults.
type Config struct {
	ID       pulse.DaemonID
	Host     string
	Version  string
	Queue    Queue
	Registry Registry
	Waker    Waker
	Trees    Trees
	Backends map[string]cli.Backend
	StateDir string            // for the files of running tasks; outside of every worktree
	Models   map[string]string // by backend; "" = the CLI's own default
	Observer ProgressObserver
	Redactor *secret.Redactor // applied to all that is stored; nil: as it is
	Log      *slog.Logger
	Clock    func() time.Time

	Slots         int           // tasks at once: 2
	Lease         time.Duration // 30 s
	Poll          time.Duration // fallback of the wake-ups: 1 s
	Flush         time.Duration // how often the stream is stored: 200 ms
	ShutdownGrace time.Duration // running agents may go on after Run's ctx ends: 10 s
	ExitGrace     time.Duration // an agent may linger after its result: 10 s
}

// Daemon claims tasks and runs agents.
type Daemon struct{ cfg Config }

// New returns a Daemon; Run starts it.
func New(cfg Config) *Daemon {
	cfg.Slots = cmp.Or(cfg.Slots, 2)
	cfg.Lease = cmp.Or(cfg.Lease, 30*time.Second)
	cfg.Poll = cmp.Or(cfg.Poll, time.Second)
	cfg.Flush = cmp.Or(cfg.Flush, 200*time.Millisecond)
	cfg.ShutdownGrace = cmp.Or(cfg.ShutdownGrace, 10*time.Second)
	cfg.ExitGrace = cmp.Or(cfg.ExitGrace, 10*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Observer == nil {
		cfg.Observer = NoopObserver{}
	}
	return &Daemon{cfg: cfg}
}

// errShutdown is the cause with which running tasks are ended at shutdown.
var errShutdown = errors.New("the daemon is shutting down")

// Run claims and runs tasks until ctx ends. Then it claims no more, lets
// running agents go on for ShutdownGrace, ends the rest and hands their tasks
// back. It returns nil when no process of its own is left.
func (d *Daemon) Run(ctx context.Context) error {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var running sync.WaitGroup
	slots := make(chan struct{}, d.cfg.Slots)
	wakes, unsubscribe := d.cfg.Waker.Wakes(pulse.TopicTasks)
	defer unsubscribe()
	for {
		select {
		case <-ctx.Done():
			d.drain(&running, stop)
			return nil
		case slots <- struct{}{}:
		}
		c, ok := d.next(ctx, wakes)
		if !ok {
			continue // ctx has ended
		}
		running.Go(func() {
			defer func() { <-slots }()
			d.perform(work, c)
		})
	}
}

// drain waits for the running tasks, and ends them when the grace is over.
func (d *Daemon) drain(running *sync.WaitGroup, stop context.CancelCauseFunc) {
	grace := time.AfterFunc(d.cfg.ShutdownGrace, func() { stop(errShutdown) })
	defer grace.Stop()
	running.Wait()
}

// next waits until there is a task to run. ok is false when ctx ended.
func (d *Daemon) next(ctx context.Context, wakes <-chan struct{}) (c pulse.Claim, ok bool) {
	tick := time.NewTicker(d.cfg.Poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		c, err := d.claim(ctx)
		if err == nil {
			return c, true
		}
		if !errors.Is(err, pulse.ErrNone) && ctx.Err() == nil {
			d.cfg.Log.Warn("claim a task", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-wakes:
		case <-tick.C:
		}
	}
	return pulse.Claim{}, false
}

// claim renews the daemon's row and takes the most urgent task it can serve.
func (d *Daemon) claim(ctx context.Context) (pulse.Claim, error) {
	agents := make([]string, 0, len(d.cfg.Backends))
	for name := range d.cfg.Backends {
		agents = append(agents, name)
	}
	slices.Sort(agents)
	routes, err := d.cfg.Registry.Enlist(ctx, pulse.Daemon{ID: d.cfg.ID, Host: d.cfg.Host, Version: d.cfg.Version,
		Slots: d.cfg.Slots, Agents: agents, SeenAt: d.cfg.Clock().UTC()})
	if err != nil {
		return pulse.Claim{}, err
	}
	return d.cfg.Queue.Claim(ctx, d.cfg.ID, routes, d.cfg.Lease)
}
