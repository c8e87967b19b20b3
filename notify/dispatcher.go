package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"pulseloop/pulse"
)

// Config is what the dispatcher depends on. Zero fields take defaults.
type Config struct {
	Senders []Sender
	Waker   Waker               // nil: polling alone
	Redact  func(string) string // applied to every text before it is sent; nil: nothing is redacted
	Clock   func() time.Time
	Jitter  func() float64 // from 0 to 1
	Log     *slog.Logger

	Parallel    int           // sends at once: 8
	Slow        time.Duration // after which a send no longer counts among these: 2 s
	MaxSlow     int           // of those that do not: 200
	Poll        time.Duration // 1 s
	SendTimeout time.Duration // of one delivery: 30 s
	Lease       time.Duration // hold of a claimed message: SendTimeout and 5 s; for so long a chat waits after a crash
	Grace       time.Duration // what deliveries under way get when Run is ended: 5 s
	BackoffMin  time.Duration // 1 s
	BackoffMax  time.Duration // 5 min
	GiveUp      GiveUp
}

// GiveUp says after how long trying in vain a message is dead. A message is
// always tried a few times, however old it is.
type GiveUp struct {
	Final time.Duration // finals and gates: 48 h
	Other time.Duration // replies and infos: 2 h
	Live  time.Duration // progress: 1 min
}

// Dispatcher sends what waits in the outbox: at least once, the urgent
// first, in order within one address, and with no address waiting for another.
type Dispatcher struct {
	outbox    Outbox
	cfg       Config
	senders   map[pulse.Platform]Sender
	platforms []pulse.Platform

	mu     sync.Mutex
	places map[pulse.Address]place // by chat, threads joined
	swept  time.Time               // when messages without a sender were last looked at
	flying sync.WaitGroup
	free   chan struct{} // one token for each delivery that may be started
	slow   chan struct{} // one token for each delivery that takes its time beside them
	landed chan struct{} // a delivery ended, or became a slow one
}

// place is what the dispatcher knows of a chat at present.
type place struct {
	busy    bool
	until   time.Time // punished or limited until then
	address []pulse.Address
}

// NewDispatcher returns a dispatcher over an outbox.
func NewDispatcher(outbox Outbox, cfg Config) *Dispatcher {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	cfg.Parallel = cmp.Or(cfg.Parallel, 8)
	cfg.Poll = cmp.Or(cfg.Poll, time.Second)
	cfg.Slow = cmp.Or(cfg.Slow, 2*time.Second)
	cfg.MaxSlow = cmp.Or(cfg.MaxSlow, 200)
	cfg.SendTimeout = cmp.Or(cfg.SendTimeout, 30*time.Second)
	cfg.Lease = cmp.Or(cfg.Lease, cfg.SendTimeout+5*time.Second)
	cfg.Grace = cmp.Or(cfg.Grace, 5*time.Second)
	cfg.BackoffMin = cmp.Or(cfg.BackoffMin, time.Second)
	cfg.BackoffMax = cmp.Or(cfg.BackoffMax, 5*time.Minute)
	cfg.GiveUp.Final = cmp.Or(cfg.GiveUp.Final, 48*time.Hour)
	cfg.GiveUp.Other = cmp.Or(cfg.GiveUp.Other, 2*time.Hour)
	cfg.GiveUp.Live = cmp.Or(cfg.GiveUp.Live, time.Minute)
	d := &Dispatcher{outbox: outbox, cfg: cfg, senders: map[pulse.Platform]Sender{},
		places: map[pulse.Address]place{}, free: make(chan struct{}, cfg.Parallel), slow: make(chan struct{}, cfg.MaxSlow), landed: make(chan struct{}, 1)}
	for range cfg.Parallel {
		d.free <- struct{}{}
	}
	for _, s := range cfg.Senders {
		d.senders[s.Platform()] = s
		d.platforms = append(d.platforms, s.Platform())
	}
	return d
}

// Run sends until ctx ends, then waits for the deliveries under way.
func (d *Dispatcher) Run(ctx context.Context) error {
	wakes, stop := wakesOf(d.cfg.Waker, pulse.TopicNotices)
	defer stop()
	defer d.flying.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wakes:
		case <-d.landed:
		case <-timer.C:
		}
		claimed, err := d.launch(ctx, nil)
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.Error("claim messages to send", "err", err)
		}
		if claimed > 0 {
			timer.Reset(0) // there may be more than one claim takes
			continue
		}
		timer.Reset(d.wait(ctx))
	}
}

// wait is how long nothing will come due, and at most the poll interval. What
// is due already waits for its address, whose release wakes the loop itself.
func (d *Dispatcher) wait(ctx context.Context) time.Duration {
	now := d.cfg.Clock()
	wait := d.cfg.Poll
	shorten := func(t time.Time) {
		if t.After(now) {
			wait = min(wait, max(t.Sub(now), 10*time.Millisecond))
		}
	}
	if next, err := d.outbox.NextNoticeAt(ctx); err == nil {
		shorten(next)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.places {
		shorten(p.until)
	}
	return wait
}

// RunOnce claims what is due, sends it, and waits for the outcome. It
// answers how many messages reached their platform.
func (d *Dispatcher) RunOnce(ctx context.Context) (sent int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	done := func(ok bool, e error) {
		mu.Lock()
		defer mu.Unlock()
		if ok {
			sent++
		}
		err = errors.Join(err, e)
		wg.Done()
	}
	_, claimErr := d.launch(ctx, func() func(bool, error) { wg.Add(1); return done })
	wg.Wait()
	return sent, errors.Join(claimErr, err)
}

// launch claims as many messages as may be sent at once now and starts their
// delivery. track, if set, is asked for each of them whom to tell the end.
func (d *Dispatcher) launch(ctx context.Context, track func() func(bool, error)) (int, error) {
	if err := d.sweep(ctx); err != nil {
		return 0, fmt.Errorf("end notices without a sender: %w", err)
	}
	slots := d.take()
	defer func() { d.giveBack(slots) }()
	if slots == 0 || len(d.platforms) == 0 {
		return 0, nil
	}
	held := d.cfg.Clock().Add(d.cfg.Lease)
	notices, token, err := d.outbox.ClaimNotices(ctx, d.platforms, d.skip(), slots, d.cfg.Lease)
	if err != nil {
		return 0, fmt.Errorf("claim notices: %w", err)
	}
	for _, n := range notices {
		slots--
		c := claimed{Notice: n, token: token, rev: n.Revision, until: held}
		done := func(bool, error) {}
		if track != nil {
			done = track()
		}
		if !d.enter(n.Address) { // another thread of a chat that is busy or limited
			until := d.clearAt(n.Address)
			d.flying.Go(func() {
				done(d.aloft(func() (bool, error) { return false, d.settle(ctx, c.as(d.later(n, until))) }))
			})
			continue
		}
		d.flying.Go(func() {
			done(d.aloft(func() (bool, error) {
				defer d.leave(n.Address)
				return d.deliver(ctx, c)
			}))
		})
	}
	return len(notices), nil
}

// aloft does one delivery. When it answers, what the delivery held is free
// again: whoever is told of the end may count on that.
func (d *Dispatcher) aloft(deliver func() (bool, error)) (bool, error) {
	defer d.fly()()
	return deliver()
}

// take takes every free slot, giveBack returns n of them.
func (d *Dispatcher) take() int {
	n := 0
	for {
		select {
		case <-d.free:
			n++
		default:
			return n
		}
	}
}

func (d *Dispatcher) giveBack(n int) {
	for range n {
		d.free <- struct{}{}
	}
}

// fly is called at the start of a delivery, what it answers at its end. One
// that takes long gives its place to another, within bounds: a platform that
// hangs for some chats must not keep the others waiting.
func (d *Dispatcher) fly() (land func()) {
	var mu sync.Mutex
	var lent, over bool
	timer := time.AfterFunc(d.cfg.Slow, func() {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		select {
		case d.slow <- struct{}{}:
			lent = true
			d.release()
		default:
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if over = true; lent {
			<-d.slow
			d.hint()
			return
		}
		d.release()
	}
}

func (d *Dispatcher) release() {
	d.free <- struct{}{}
	d.hint()
}

func (d *Dispatcher) hint() {
	select {
	case d.landed <- struct{}{}:
	default:
	}
}

// chat is the address whose limits a message falls under: the platforms
// limit chats, not their threads.
func chat(a pulse.Address) pulse.Address { return pulse.Address{Platform: a.Platform, Chat: a.Chat} }

// skip lists the addresses nothing can be sent to now, and forgets the
// places that are free again.
func (d *Dispatcher) skip() []pulse.Address {
	now := d.cfg.Clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []pulse.Address
	for key, p := range d.places {
		if !p.busy && !p.until.After(now) {
			delete(d.places, key)
			continue
		}
		out = append(out, key)
		for _, a := range p.address {
			if a != key {
				out = append(out, a)
			}
		}
	}
	return out
}

// enter takes the place for one delivery.
func (d *Dispatcher) enter(a pulse.Address) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.places[chat(a)]
	if p.busy || p.until.After(d.cfg.Clock()) {
		p.note(a)
		d.places[chat(a)] = p
		return false
	}
	p.busy = true
	p.note(a)
	d.places[chat(a)] = p
	return true
}

func (p *place) note(a pulse.Address) {
	for _, known := range p.address {
		if known == a {
			return
		}
	}
	p.address = append(p.address, a)
}

func (d *Dispatcher) leave(a pulse.Address) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.places[chat(a)]
	p.busy = false
	d.places[chat(a)] = p
}

// park keeps everything for the chat back until a time.
func (d *Dispatcher) park(a pulse.Address, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.places[chat(a)]
	if until.After(p.until) {
		p.until = until
	}
	p.note(a)
	d.places[chat(a)] = p
}

// clearAt is when a message to a place that is taken may be looked at again.
func (d *Dispatcher) clearAt(a pulse.Address) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	soon := d.cfg.Clock().Add(200 * time.Millisecond)
	if p := d.places[chat(a)]; p.until.After(soon) {
		return p.until
	}
	return soon
}
