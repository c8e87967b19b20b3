package bot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pulseloop/loop"
	"pulseloop/pulse"
)

// Applier writes a change if its guard holds: pulse.ErrDone when the update
// named by it was handled before, pulse.ErrStale when a pairing code named by
// the change is not alive.
type Applier interface {
	Apply(ctx context.Context, g pulse.Guard, c pulse.Change) error
}

// Waker tells that something may have changed. A receive is a hint: the
// receiver looks, and polls besides.
type Waker interface {
	Wakes(topic pulse.Topic) (wakes <-chan struct{}, stop func())
}

// Adapter is what the router needs of one platform. Presses and Topics are
// abilities that a platform may lack.
type Adapter struct {
	Platform pulse.Platform
	Decoder  Decoder
	Presses  Acknowledger
	Topics   TopicMaker
}

// Config is what the router works with. Zero fields of the last group take
// defaults.
type Config struct {
	Inbox    Inbox
	People   People
	Reader   Reader
	Store    Applier
	Doer     loop.Doer
	Adapters []Adapter

	Waker    Waker // nil: polling alone
	Clock    func() time.Time
	Log      *slog.Logger
	Poll     time.Duration // 1 s
	Batch    int           // updates of one pass: 100
	Parallel int           // chats handled at once: 4
	MaxTries int           // handlings of an update that fails unexpectedly: 6
	Choice   time.Duration // how long a goal waits for the choice of its project: 24 h
}

// Router turns updates into deeds.
type Router struct {
	cfg      Config
	adapters map[pulse.Platform]Adapter
	acks     sync.WaitGroup

	mu sync.Mutex
	// All of the below is memory for convenience; a restart without it
	// costs a repeated question or try, never a goal.
	tries   map[pulse.InboundID]int
	counted map[pulse.InboundID]int             // pairing tries counted already
	topics  map[pulse.InboundID]pulse.Address   // opened for an update whose handling failed later
	waiting map[pulse.Address][]pulse.InboundID // goals that wait for a project
	told    map[string]time.Time                // strangers, and when they were told how to pair
}

// chatKey is within what updates keep their order.
type chatKey struct {
	source string
	chat   string
}

// New returns a router.
func New(cfg Config) *Router {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Poll = cmp.Or(cfg.Poll, time.Second)
	cfg.Batch = cmp.Or(cfg.Batch, 100)
	cfg.Parallel = cmp.Or(cfg.Parallel, 4)
	cfg.MaxTries = cmp.Or(cfg.MaxTries, 6)
	cfg.Choice = cmp.Or(cfg.Choice, 24*time.Hour)
	r := &Router{cfg: cfg, adapters: map[pulse.Platform]Adapter{}, tries: map[pulse.InboundID]int{},
		counted: map[pulse.InboundID]int{}, topics: map[pulse.InboundID]pulse.Address{},
		waiting: map[pulse.Address][]pulse.InboundID{}, told: map[string]time.Time{}}
	for _, a := range cfg.Adapters {
		r.adapters[a.Platform] = a
	}
	return r
}

// Run handles updates until ctx ends.
func (r *Router) Run(ctx context.Context) error {
	var wakes <-chan struct{}
	if r.cfg.Waker != nil {
		w, stop := r.cfg.Waker.Wakes(pulse.TopicInbound)
		defer stop()
		wakes = w
	}
	defer r.acks.Wait()
	tick := time.NewTicker(r.cfg.Poll)
	defer tick.Stop()
	for {
		n, err := r.pass(ctx)
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Error("read updates", "err", err)
		}
		if n > 0 && err == nil && ctx.Err() == nil {
			continue // there may be more
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wakes:
		case <-tick.C:
		}
	}
}

// RunOnce handles the updates that are pending and answers for how many it
// came to an end, or at least to a question.
func (r *Router) RunOnce(ctx context.Context) (int, error) {
	n, err := r.pass(ctx)
	r.acks.Wait()
	return n, err
}

// pass handles one batch: chats side by side, the updates of one in order.
func (r *Router) pass(ctx context.Context) (int, error) {
	pending, err := r.cfg.Inbox.PendingInbound(ctx, r.cfg.Batch)
	if err != nil {
		return 0, fmt.Errorf("read pending updates: %w", err)
	}
	var order []chatKey
	chats := map[chatKey][]*update{}
	for _, in := range pending {
		u := r.decode(in)
		key := chatKey{in.Source, u.e.Address.Chat}
		if chats[key] == nil {
			order = append(order, key)
		}
		chats[key] = append(chats[key], u)
	}
	held, err := r.held(ctx, pending)
	if err != nil {
		return 0, err
	}
	slots := make(chan struct{}, r.cfg.Parallel)
	var wg sync.WaitGroup
	var done atomic.Int64
	for _, key := range order {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			done.Add(r.chat(ctx, chats[key], held[key]))
		})
	}
	wg.Wait()
	return int(done.Load()), nil
}

// update is one update while it is handled.
type update struct {
	in  pulse.Inbound
	e   Event
	who pulse.Operator
	now time.Time
	ack string // what the presser of a button is told at once
}

// decode never fails: an update nobody can read is one nobody said.
func (r *Router) decode(in pulse.Inbound) (u *update) {
	u = &update{in: in, now: r.cfg.Clock().UTC()}
	defer func() {
		if v := recover(); v != nil {
			r.cfg.Log.Error("decode an update", "inbound", string(in.ID), "platform", string(in.Platform), "panic", v, "stack", string(debug.Stack()))
			u.e = Event{Kind: KindIgnored, Platform: in.Platform, Note: "the decoder failed"}
		}
	}()
	a, ok := r.adapters[in.Platform]
	if !ok || a.Decoder == nil {
		u.e = Event{Kind: KindIgnored, Platform: in.Platform, Note: "no adapter for this platform"}
		return u
	}
	u.e = a.Decoder.Decode(in)
	u.e.Platform = in.Platform
	return u
}

// held gives, by chat, the updates that hold back what was said after them,
// and those that wait already; without those that are pending, whose turn it is.
func (r *Router) held(ctx context.Context, pending []pulse.Inbound) (map[chatKey][]pulse.Inbound, error) {
	if len(pending) == 0 {
		return nil, nil
	}
	all, err := r.cfg.Inbox.HeldInbound(ctx)
	if err != nil {
		return nil, fmt.Errorf("read updates that hold others: %w", err)
	}
	held := map[chatKey][]pulse.Inbound{}
	for _, in := range all {
		if !slices.ContainsFunc(pending, func(p pulse.Inbound) bool { return p.ID == in.ID }) {
			key := chatKey{in.Source, r.decode(in).e.Address.Chat}
			held[key] = append(held[key], in)
		}
	}
	return held, nil
}

// chat handles the updates of one chat, each behind the earlier ones that
// hold, and answers how many went well.
func (r *Router) chat(ctx context.Context, updates []*update, held []pulse.Inbound) (done int64) {
	for _, u := range updates {
		if ctx.Err() != nil {
			return done
		}
		if ahead := lastBefore(held, u.in); ahead != "" {
			if err := r.cfg.Inbox.QueueInbound(ctx, u.in.ID, ahead); err != nil {
				r.cfg.Log.Error("queue an update", "inbound", string(u.in.ID), "err", err)
				return done
			}
			held = append(held, u.in)
			continue
		}
		err := r.safely(ctx, u)
		if err == nil || errors.Is(err, pulse.ErrDone) {
			r.forget(u.in.ID)
			done++
			continue
		}
		if ctx.Err() != nil {
			return done
		}
		holds := true
		if errors.Is(err, errTooSoon) {
			err = r.putOff(ctx, u)
		} else {
			holds, err = r.failed(ctx, u, err)
		}
		if err != nil { // nobody knows that it holds: the next pass begins with it
			r.cfg.Log.Error("defer an update", "inbound", string(u.in.ID), "err", err)
			return done
		}
		if holds {
			held = append(held, u.in)
		}
	}
	return done
}

// lastBefore is the last of the updates of a chat that come before another:
// the one to wait for.
func lastBefore(held []pulse.Inbound, in pulse.Inbound) (id pulse.InboundID) {
	var last pulse.Inbound
	for _, h := range held {
		if before(h, in) && (id == "" || before(last, h)) {
			last, id = h, h.ID
		}
	}
	return id
}

// before says whether an update of a chat comes before another.
func before(a, b pulse.Inbound) bool {
	if a.Order != b.Order {
		return a.Order < b.Order
	}
	return a.ID < b.ID
}

func (r *Router) forget(id pulse.InboundID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tries, id)
	delete(r.counted, id)
	delete(r.topics, id)
}

// safely handles an update; a panic is an unexpected error of this one alone.
func (r *Router) safely(ctx context.Context, u *update) (err error) {
	defer func() {
		if v := recover(); v != nil {
			r.cfg.Log.Error("handle an update", "inbound", string(u.in.ID), "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("handling panicked: %v", v)
		}
		r.acknowledge(ctx, u, err)
	}()
	err = r.handle(ctx, u)
	if text, ok := forPeople(err); ok {
		u.ack = text
		return r.reply(ctx, u, pulse.Text("⚠️ "+text), "")
	}
	return err
}

// putOff looks at an update again in a moment, and keeps the chat's later ones
// behind it.
func (r *Router) putOff(ctx context.Context, u *update) error {
	return r.cfg.Inbox.HoldInbound(ctx, u.in.ID, errTooSoon.Error(), r.cfg.Clock().Add(settling/8).UTC())
}

// failed puts an update off, and after several tries gives it up, saying so:
// nothing a person said is ever lost without a word. holds is false when it
// was given up.
func (r *Router) failed(ctx context.Context, u *update, cause error) (holds bool, err error) {
	r.mu.Lock()
	r.tries[u.in.ID]++
	n := r.tries[u.in.ID]
	r.mu.Unlock()
	r.cfg.Log.Error("handle an update", "inbound", string(u.in.ID), "platform", string(u.in.Platform), "try", n, "err", cause)
	if n >= r.cfg.MaxTries {
		text := "⚠️ That could not be done: something went wrong here, several times in a row. Nothing was changed; the log has the reason. Please send it again later."
		err := r.reply(ctx, u, pulse.Text(text), "")
		if err == nil || errors.Is(err, pulse.ErrDone) {
			r.forget(u.in.ID)
			return false, nil
		}
	}
	until := r.cfg.Clock().Add(min(time.Second<<min(n-1, 6), time.Minute)).UTC()
	return true, r.cfg.Inbox.HoldInbound(ctx, u.in.ID, line(cause.Error(), 300), until)
}

// acknowledge ends the waiting mark on a pressed button, beside the work:
// a slow platform must not keep a chat waiting.
func (r *Router) acknowledge(ctx context.Context, u *update, err error) {
	a := r.adapters[u.in.Platform].Presses
	if u.e.Kind != KindPress || u.e.CallbackID == "" || a == nil || (err != nil && !errors.Is(err, pulse.ErrDone)) {
		return
	}
	r.acks.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				r.cfg.Log.Error("acknowledge a press", "panic", v)
			}
		}()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		a.Acknowledge(ctx, u.e, line(u.ack, 190))
	})
}

// forPeople gives the words of an error that the person can do something
// about; the others are tried again.
func forPeople(err error) (string, bool) {
	var e *pulse.Error
	if !errors.As(err, &e) {
		return "", false
	}
	switch e.Code {
	case pulse.CodeInternal, pulse.CodeUnavailable:
		return "", false
	}
	text := e.Message
	if e.Hint != "" {
		text += "\n" + upperFirst(e.Hint)
	}
	return upperFirst(text), true
}

// notice is a message back to where the update came from.
func (r *Router) notice(u *update, m pulse.Message, id pulse.SessionID) pulse.Notice {
	n := pulse.Notice{ID: pulse.NoticeID(pulse.NewUUID(u.now)), Address: u.e.Address, Slot: "reply:" + string(u.in.ID),
		Kind: pulse.NoticeReply, SessionID: id, Message: m, Status: pulse.NoticeQueued, NextAt: u.now, CreatedAt: u.now}
	if u.e.Kind == KindMessage || u.e.Kind == KindEdit {
		n.ReplyTo = u.e.MessageID
	}
	return n
}

// reply ends an update with an answer and nothing else.
func (r *Router) reply(ctx context.Context, u *update, m pulse.Message, id pulse.SessionID) error {
	return r.finish(ctx, u, pulse.Change{Notices: []pulse.Notice{r.notice(u, m, id)}})
}

// finish ends an update with a change.
func (r *Router) finish(ctx context.Context, u *update, c pulse.Change) error {
	if u.e.Address.Zero() {
		c.Notices = nil
	}
	return r.cfg.Store.Apply(ctx, pulse.Guard{Inbound: u.in.ID}, c)
}
