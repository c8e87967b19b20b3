package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/agent/worktree"
	"pulseloop/internal/sandbox"
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
	StateDir string            // for the files of running tasks; this daemon's alone, outside of every worktree
	Models   map[string]string // by backend; "" = the CLI's own default
	Redactor *secret.Redactor  // applied to all that is stored or observed; nil: as it is
	Log      *slog.Logger
	Clock    func() time.Time

	// Confine says behind which walls the agent of a task runs, of a level
	// that works here, and what is hidden from it; what the agent needs for
	// itself is added to that. Nil: it runs without.
	Confine func(ctx context.Context, task pulse.Task) (sandbox.Policy, error)
	Sandbox *sandbox.Sandbox // makes the walls
	Caches  string           // a directory for what build tools keep from run to run behind walls, by repository

	// Observers makes the observer of one run. Several tasks run at once, so
	// each has its own; it is called from one goroutine at a time. Nil, or
	// one that answers nil, observes nothing.
	Observers func(task pulse.Task) ProgressObserver

	Slots         int           // tasks at once: 2
	Lease         time.Duration // 30 s
	Poll          time.Duration // fallback of the wake-ups: 1 s
	Flush         time.Duration // how often the stream is stored: 200 ms
	ShutdownGrace time.Duration // running agents may go on after Run's ctx ends: 10 s
	ExitGrace     time.Duration // an agent may linger after its conversation: 10 s
	MaxKept       int64         // about how many bytes of what one run says are stored: 64 MiB
}

// Daemon claims tasks and runs agents.
type Daemon struct {
	cfg   Config
	trees turnstile
}

// New returns a Daemon; Run starts it.
func New(cfg Config) *Daemon {
	cfg.Slots = cmp.Or(cfg.Slots, 2)
	cfg.Lease = cmp.Or(cfg.Lease, 30*time.Second)
	cfg.Poll = cmp.Or(cfg.Poll, time.Second)
	cfg.Flush = cmp.Or(cfg.Flush, 200*time.Millisecond)
	cfg.ShutdownGrace = cmp.Or(cfg.ShutdownGrace, 10*time.Second)
	cfg.ExitGrace = cmp.Or(cfg.ExitGrace, 10*time.Second)
	cfg.MaxKept = cmp.Or(cfg.MaxKept, 64<<20)
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Daemon{cfg: cfg}
}

// errShutdown is the cause with which running tasks are ended at shutdown.
var errShutdown = errors.New("the daemon is shutting down")

// lastMoment is what a call that matters may still take when the daemon has
// to end: short enough that Run returns within two seconds of the grace.
const lastMoment = 500 * time.Millisecond

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
	here := presence{d: d}
	for d.takeSlot(ctx, slots, &here) {
		n := 1 + takeFree(slots)
		since, claims, ok := d.next(ctx, wakes, &here, n)
		giveBack(slots, n-len(claims))
		if !ok {
			break
		}
		var last []pulse.Claim
		for _, c := range claims {
			if lastTry(c.Task) {
				last = append(last, c)
				continue
			}
			running.Go(func() {
				defer giveBack(slots, 1)
				d.perform(work, c, since, nil)
			})
		}
		giveBack(slots, len(last))
		d.oneByOne(ctx, slots, last, &here, func(c pulse.Claim, alone, over chan struct{}) {
			running.Go(func() {
				defer close(over)
				d.perform(work, c, since, alone)
			})
		})
	}
	grace := time.AfterFunc(d.cfg.ShutdownGrace, func() { stop(errShutdown) })
	defer grace.Stop()
	running.Wait()
	return nil
}

// takeSlot waits for a free slot; a daemon that is busy still shows that it
// is there. It answers false when ctx ended.
func (d *Daemon) takeSlot(ctx context.Context, slots chan<- struct{}, here *presence) bool {
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case slots <- struct{}{}:
			return ctx.Err() == nil
		case <-tick.C:
			_ = here.show(ctx) // logged with the next claim, if it stays so
		}
	}
}

// takeFree takes what slots are free besides, so that as many tasks can be
// claimed at once, and answers how many.
func takeFree(slots chan<- struct{}) (n int) {
	for {
		select {
		case slots <- struct{}{}:
			n++
		default:
			return n
		}
	}
}

func giveBack(slots <-chan struct{}, n int) {
	for range n {
		<-slots
	}
}

// claimAgain is how soon a claim that failed is tried again: a database that was away may be back.
const claimAgain = 250 * time.Millisecond

// next waits until there are tasks to run, n at most, and answers since when
// their claims count. ok is false when ctx ended.
func (d *Daemon) next(ctx context.Context, wakes <-chan struct{}, here *presence, n int) (since time.Time, claims []pulse.Claim, ok bool) {
	tick := time.NewTicker(d.cfg.Poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		since, claims, err := d.claim(ctx, here, n)
		var soon <-chan time.Time
		failed := here.failing
		here.failing = err != nil && !errors.Is(err, pulse.ErrNone)
		switch {
		case err == nil && ctx.Err() == nil:
			return since, claims, true
		case err == nil: // they came too late to be begun
			for _, c := range claims {
				d.handBack(ctx, pulse.Fence{TaskID: c.Task.ID, Token: c.Token})
			}
			return since, nil, false
		case !errors.Is(err, pulse.ErrNone) && ctx.Err() == nil:
			if !failed { // told once, not four times a second
				d.cfg.Log.Warn("claim a task", "err", err)
			}
			soon = time.After(min(d.cfg.Poll, claimAgain))
		}
		select {
		case <-ctx.Done():
		case <-soon:
		case <-wakes:
			here.doubt()
		case <-tick.C:
		}
	}
	return since, nil, false
}

// claim takes the most urgent tasks that are served here. A wake-up may be
// about a project that is new; the tasks of those that are known need not
// wait until that is found out.
func (d *Daemon) claim(ctx context.Context, here *presence, n int) (since time.Time, claims []pulse.Claim, err error) {
	if here.doubted() {
		since, claims, err = d.take(ctx, here.routes, n)
		if !errors.Is(err, pulse.ErrNone) {
			return since, claims, err
		}
		known := here.routes
		if err := here.show(ctx); err != nil {
			return since, nil, err
		}
		if slices.Equal(known, here.routes) {
			return since, nil, pulse.ErrNone
		}
	}
	if err := here.renew(ctx); err != nil {
		return since, nil, err
	}
	return d.take(ctx, here.routes, n)
}

// take claims. When ctx ends, a call under way may still be answered: a claim
// that is made and not heard of would cost its task an attempt.
func (d *Daemon) take(ctx context.Context, routes []string, n int) (since time.Time, claims []pulse.Claim, err error) {
	ctx, cancel := outliving(ctx, lastMoment)
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, d.cfg.Lease/3)
	defer cancelTimeout()
	since = d.cfg.Clock()
	if n > 1 {
		claims, err = d.cfg.Queue.ClaimMany(ctx, d.cfg.ID, routes, n, d.cfg.Lease)
		return since, claims, err
	}
	c, err := d.cfg.Queue.Claim(ctx, d.cfg.ID, routes, d.cfg.Lease)
	if err != nil {
		return since, nil, err
	}
	return since, []pulse.Claim{c}, nil
}

// presenceEvery is how often the daemon's row is renewed without a reason.
const presenceEvery = 10 * time.Second

// presence is the daemon's row: that it is there, and which routes it serves.
type presence struct {
	d      *Daemon
	routes []string
	shown  time.Time
	doubts time.Time // since when the routes may have changed; zero: they have not

	failing bool // the last claim failed
}

// doubtFor is how long the routes may be in doubt while there is always more
// to do on those that are known.
const doubtFor = time.Second

// doubt notes that the routes may have changed.
func (p *presence) doubt() {
	if p.doubts.IsZero() {
		p.doubts = p.d.cfg.Clock()
	}
}

// doubted reports whether the routes may have changed, but so lately that it
// is worth to try the known ones first.
func (p *presence) doubted() bool {
	now := p.d.cfg.Clock()
	return !p.doubts.IsZero() && len(p.routes) > 0 && now.Sub(p.doubts) < doubtFor && now.Sub(p.shown) < presenceEvery
}

// renew shows the daemon's presence if that is due.
func (p *presence) renew(ctx context.Context) error {
	if p.doubts.IsZero() && len(p.routes) > 0 && p.d.cfg.Clock().Sub(p.shown) < presenceEvery {
		return nil
	}
	return p.show(ctx)
}

func (p *presence) show(ctx context.Context) error {
	c := p.d.cfg
	ctx, cancel := context.WithTimeout(ctx, c.Lease/3)
	defer cancel()
	now := c.Clock()
	routes, err := c.Registry.Enlist(ctx, pulse.Daemon{ID: c.ID, Host: c.Host, Version: c.Version,
		Slots: c.Slots, Agents: slices.Sorted(maps.Keys(c.Backends)), SeenAt: now.UTC()})
	if err != nil {
		return err
	}
	p.routes, p.shown, p.doubts = routes, now, time.Time{}
	return nil
}

// outliving gives a context that goes on for a while after ctx has ended.
func outliving(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return long, func() { unhook(); cancel() }
}

// turnstile lets one at a time pass for each key.
type turnstile struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// enter waits its turn; leave must be called after. It fails when ctx ends.
func (t *turnstile) enter(ctx context.Context, key string) (leave func(), err error) {
	for {
		t.mu.Lock()
		before, taken := t.busy[key]
		if !taken {
			mine := make(chan struct{})
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			t.busy[key] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.busy, key)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
