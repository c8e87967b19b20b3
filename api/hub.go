package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

const (
	// pageSize is how much is read of one session at a time.
	pageSize = 200
	// forget is how long a session that no longer moves is remembered.
	forget = 10 * time.Minute
	// skew is how far the clocks of daemons may lie apart from ours.
	skew = 5 * time.Second
)

// hub reads the feed once for all sockets. Its one goroutine (run) does all
// the reading of what happens; a socket reads by itself only what it missed
// before it subscribed. While no socket is open nothing is read at all.
type hub struct {
	feed   Feed
	log    *slog.Logger
	clock  func() time.Time
	redact func(string) string
	limits Limits
	tally  *tally
	kick   chan struct{} // capacity 1: the first socket came

	mu      sync.Mutex
	clients map[*client]bool
	tracks  map[pulse.SessionID]*track
	primed  chan struct{} // closed when the tracks are where the feed is; nil while idle
	since   time.Time     // when that was
	stopped bool
}

// track is how far the feed of one session has been sent.
type track struct {
	seq    int64
	delta  pulse.DeltaPosition
	moving bool
	seen   time.Time // when it last moved
	quiet  time.Time // deltas before this were not wanted by anybody
}

func newHub(cfg Config, t *tally) *hub {
	return &hub{
		feed: cfg.Feed, log: cfg.Log, clock: cfg.Clock, redact: cfg.Redact, limits: cfg.Limits, tally: t,
		kick: make(chan struct{}, 1), clients: map[*client]bool{}, tracks: map[pulse.SessionID]*track{},
	}
}

// run reads and sends until the context ends; then every socket is told.
func (h *hub) run(ctx context.Context) {
	wakes, stop := h.feed.Wakes(pulse.TopicEvents)
	defer stop()
	defer h.close()
	for ctx.Err() == nil {
		if !h.busy() {
			h.rest(ctx)
			continue
		}
		pause := h.round(ctx)
		if !sleep(ctx, pause) {
			return
		}
		select {
		case <-ctx.Done():
		case <-wakes:
		case <-h.kick:
		case <-time.After(h.limits.FeedPoll):
		}
	}
}

// rest waits for the first socket.
func (h *hub) rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-h.kick:
	}
}

func (h *hub) busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.clients) == 0 {
		h.primed = nil
		return false
	}
	return true
}

// round is one reading of the feed; it answers how long to leave the
// database alone afterwards, the longer the more sessions move.
func (h *hub) round(ctx context.Context) time.Duration {
	n, err := h.RunOnce(ctx)
	if err != nil && ctx.Err() == nil {
		h.log.Error("read feed", "err", h.redact(err.Error()))
		return time.Second
	}
	return h.limits.FeedPause + time.Duration(n)*time.Millisecond
}

// RunOnce reads everything new and hands it to the sockets; it answers how
// many sessions it read.
func (h *hub) RunOnce(ctx context.Context) (read int, err error) {
	moving, err := h.feed.Moving(ctx)
	if err != nil {
		return 0, err
	}
	if h.prime(ctx, moving) {
		return 0, nil
	}
	wanted := h.wanted(moving)
	for _, id := range wanted {
		if err := h.advance(ctx, id, moving[id]); err != nil {
			return read, err
		}
		read++
	}
	return read, nil
}

// prime sets the tracks to where the feed is, when the first socket opened:
// what lies before is history, and sockets read that for themselves.
func (h *hub) prime(ctx context.Context, moving map[pulse.SessionID]int64) bool {
	h.mu.Lock()
	done := h.primed != nil && isClosed(h.primed)
	starts := map[pulse.SessionID]pulse.DeltaPosition{}
	for id := range moving {
		starts[id] = pulse.DeltaPosition{}
		if t := h.tracks[id]; t != nil {
			starts[id] = t.delta
		}
	}
	h.mu.Unlock()
	if done {
		return false
	}
	for id := range starts {
		if last, err := h.lastDelta(ctx, id, starts[id]); err == nil {
			starts[id] = last
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock()
	for id, seq := range moving {
		h.tracks[id] = &track{seq: seq, delta: starts[id], moving: true, seen: now}
	}
	for id := range h.tracks {
		if _, ok := moving[id]; !ok {
			delete(h.tracks, id)
		}
	}
	h.since = now
	if h.primed == nil {
		h.primed = make(chan struct{})
	}
	close(h.primed)
	return true
}

// lastDelta pages over deltas nobody will be sent.
func (h *hub) lastDelta(ctx context.Context, id pulse.SessionID, p pulse.DeltaPosition) (pulse.DeltaPosition, error) {
	for {
		got, err := h.feed.Deltas(ctx, id, p, pageSize)
		if err != nil || len(got) == 0 {
			return p, err
		}
		p = positionOf(got[len(got)-1])
	}
}

// wanted marks what moves, forgets what has long been still, and lists the
// sessions that some socket wants, in order. The tracks of the others go on
// without being read.
func (h *hub) wanted(moving map[pulse.SessionID]int64) []pulse.SessionID {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock()
	for id, t := range h.tracks {
		_, t.moving = moving[id]
		if t.moving {
			t.seen = now
		} else if now.Sub(t.seen) > forget {
			delete(h.tracks, id)
		}
	}
	all, named := false, map[pulse.SessionID]bool{}
	for c := range h.clients {
		all = all || c.all
		for id := range c.cursors {
			named[id] = true
		}
	}
	var out []pulse.SessionID
	for id, seq := range moving {
		if all || named[id] {
			out = append(out, id)
			continue
		}
		t := h.tracks[id]
		if t == nil {
			t = &track{}
			h.tracks[id] = t
		}
		t.seq, t.moving, t.seen, t.quiet = max(t.seq, seq), true, now, now
	}
	slices.Sort(out)
	return out
}

// advance reads one session up to its end and sends what is new.
func (h *hub) advance(ctx context.Context, id pulse.SessionID, upTo int64) error {
	t, after := h.track(id)
	for {
		deltas, err := h.feed.Deltas(ctx, id, t.delta, pageSize)
		if err != nil {
			return err
		}
		var events []pulse.Event
		if upTo > t.seq || len(deltas) > 0 {
			if events, err = h.feed.Events(ctx, id, t.seq, pageSize); err != nil {
				return err
			}
		}
		// Deltas first, so that the start of each one's turn is among the
		// events; then those of turns that ended in between.
		if deltas, err = h.late(ctx, id, t.delta, events, deltas); err != nil {
			return err
		}
		if len(events) == 0 && len(deltas) == 0 {
			return nil
		}
		h.send(id, t, events, deltas, after)
		upTo = max(upTo, t.seq)
		if len(events) < pageSize && len(deltas) < pageSize {
			return nil
		}
	}
}

func (h *hub) late(ctx context.Context, id pulse.SessionID, p pulse.DeltaPosition, events []pulse.Event, deltas []pulse.StreamDelta) ([]pulse.StreamDelta, error) {
	if !slices.ContainsFunc(events, func(e pulse.Event) bool { return e.Type == pulse.EventTurnCompleted }) || len(deltas) >= pageSize {
		return deltas, nil
	}
	if len(deltas) > 0 {
		p = positionOf(deltas[len(deltas)-1])
	}
	more, err := h.feed.Deltas(ctx, id, p, pageSize)
	return append(deltas, ofCompleted(events, more)...), err
}

// track finds or begins a session's track. A session that is new to us may
// be an old one that woke up: of that, only what is recent was not sent.
func (h *hub) track(id pulse.SessionID) (*track, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tracks[id]; t != nil {
		return t, time.Time{}
	}
	now := h.clock()
	t := &track{moving: true, seen: now}
	h.tracks[id] = t
	after := h.since
	if recent := now.Add(-forget / 2); recent.After(after) {
		after = recent
	}
	return t, after.Add(-skew)
}

// send encodes once, without holding anybody up, and then puts the frames
// before every socket that wants them.
func (h *hub) send(id pulse.SessionID, t *track, events []pulse.Event, deltas []pulse.StreamDelta, after time.Time) {
	type ready struct {
		seq  int64
		wait waiting
	}
	var out []ready
	seq, position := t.seq, t.delta // this goroutine alone moves them on
	for _, it := range interleave(events, deltas) {
		var f wire.Frame
		if it.event != nil {
			f = wire.FromEvent(*it.event)
			seq = it.event.Seq
		} else {
			f = wire.FromDelta(*it.delta, seq)
			position = positionOf(*it.delta)
		}
		if f.At.Before(after) || (f.Delta() && f.At.Before(t.quiet)) {
			continue
		}
		w, err := h.encode(f)
		if err != nil {
			h.log.Error("encode frame", "type", f.Type, "session", id, "err", err)
			continue
		}
		out = append(out, ready{f.Seq, w})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t.seq, t.delta = seq, position
	for c := range h.clients {
		for _, r := range out {
			c.offer(id, r.seq, r.wait)
		}
	}
}

func (h *hub) encode(f wire.Frame) (waiting, error) {
	b, err := json.Marshal(f)
	return waiting{bytes: redactJSON(b, h.redact), delta: f.Delta()}, err
}

// close tells every socket that there will be no more.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for c := range h.clients {
		c.cancel(errGoingAway)
	}
}

// cut ends the connections of sockets that did not take the goodbye.
func (h *hub) cut() {
	h.mu.Lock()
	var drops []func()
	for c := range h.clients {
		if c.drop != nil {
			drops = append(drops, c.drop)
		}
	}
	h.mu.Unlock()
	for _, drop := range drops {
		drop()
	}
}

// connected gives the hub the means to cut a client's connection.
func (h *hub) connected(c *client, drop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.drop = drop
}

// snapshot is where every session stands that has a track. The caller holds
// the lock.
func (h *hub) snapshot() map[pulse.SessionID]int64 {
	out := make(map[pulse.SessionID]int64, len(h.tracks))
	for id, t := range h.tracks {
		out[id] = t.seq
	}
	return out
}

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

func positionOf(d pulse.StreamDelta) pulse.DeltaPosition {
	return pulse.DeltaPosition{TaskID: d.TaskID, Attempt: d.Attempt, N: d.N}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sleep waits, and reports false when the context ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
