package api

import (
	"context"
	"maps"
	"slices"
	"time"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

// client is one socket as the hub sees it. Everything but the queue is
// guarded by the hub's lock.
type client struct {
	queue   *queue
	cancel  context.CancelCauseFunc
	drop    func() // cuts the connection; nil before there is one
	tally   *tally
	joined  map[pulse.SessionID]int64 // where the sessions stood when it connected
	all     bool
	cursors map[pulse.SessionID]*cursor
}

// cursor is how far a socket is in one session. One that is not live reads
// what it missed by itself, and the hub passes it over.
type cursor struct {
	seq  int64
	live bool
}

// offer puts a frame before the socket if it wants it.
func (c *client) offer(id pulse.SessionID, seq int64, w waiting) {
	cur, named := c.cursors[id]
	switch {
	case !named && !c.all:
		return
	case named && !cur.live:
		return
	case named && w.delta && seq < cur.seq, named && !w.delta && seq <= cur.seq:
		return // read by itself, ahead of the hub
	case named && !w.delta:
		cur.seq = seq
	}
	// An overflow ends the connection when the frame being written is out, so
	// that the peer can be told why; until then, the write deadline bounds it.
	lost, over := c.queue.put(w)
	c.tally.lost(lost, over)
}

// attach makes a client known, once the hub knows where the feed stands.
func (h *hub) attach(ctx context.Context, cancel context.CancelCauseFunc) (*client, error) {
	unavailable := &pulse.Error{Code: pulse.CodeUnavailable, Message: "events cannot be read at present", Hint: "try again"}
	c := &client{queue: newQueue(h.limits.SocketQueue, h.limits.SocketBytes), cancel: cancel, tally: h.tally}
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return nil, unavailable
	}
	h.clients[c] = true
	if h.primed == nil {
		h.primed = make(chan struct{})
	}
	primed := h.primed
	h.mu.Unlock()
	select {
	case h.kick <- struct{}{}:
	default:
	}
	limit := time.NewTimer(h.limits.SocketWrite)
	defer limit.Stop()
	select {
	case <-primed:
	case <-limit.C:
		h.detach(c)
		return nil, unavailable
	case <-ctx.Done():
		h.detach(c)
		return nil, unavailable
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.joined = h.snapshot()
	return c, nil
}

func (h *hub) detach(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, c)
}

// subscription is the outcome of a subscribe message: what was queued before
// it, what to acknowledge, and which sessions have to be read up.
type subscription struct {
	before  []waiting
	over    bool
	cursors map[pulse.SessionID]int64
	behind  []pulse.SessionID
}

// subscribe replaces what the client wants.
func (h *hub) subscribe(c *client, sub wire.Subscribe) subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out subscription
	out.before, out.over = c.queue.take()
	named := maps.Clone(sub.Sessions)
	if sub.Sessions == nil && sub.All {
		// From when it connected; from now if it changes its mind later.
		if named = c.joined; named == nil {
			named = h.snapshot()
		}
	}
	if sub.All {
		// A session that came up since is one the client has not heard of.
		for id := range h.tracks {
			if _, ok := named[id]; !ok {
				named[id] = 0
			}
		}
	}
	c.all, c.cursors, c.joined = sub.All, map[pulse.SessionID]*cursor{}, nil
	out.cursors = named
	for id, seq := range named {
		t := h.tracks[id]
		live := t != nil && t.seq == seq
		if live && c.all {
			continue // nothing to remember: it is like every other session
		}
		c.cursors[id] = &cursor{seq: seq, live: live}
		if !live {
			out.behind = append(out.behind, id)
		}
	}
	slices.Sort(out.behind)
	return out
}

// position is how far the client is in a session.
func (h *hub) position(c *client, id pulse.SessionID) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return c.cursors[id].seq
}

// join lets the hub take over a session that the client has read up to seq.
// It answers false if the hub has sent more by now: then there is more to
// read. exhausted says that the feed has nothing after seq, so that what the
// hub sent is no longer kept.
func (h *hub) join(c *client, id pulse.SessionID, seq int64, exhausted bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tracks[id]
	if t == nil {
		now := h.clock()
		t = &track{seq: seq, seen: now, quiet: now}
		h.tracks[id] = t
	}
	if t.seq > seq && !exhausted {
		c.cursors[id].seq = seq
		return false
	}
	c.cursors[id].seq, c.cursors[id].live = max(seq, t.seq), true
	if c.all && t.seq >= seq {
		delete(c.cursors, id)
	}
	return true
}
