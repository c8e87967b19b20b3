package notifytest

import (
	"context"
	"sync"

	"pulseloop/notify"
	"pulseloop/pulse"
)

// News is an event log in memory whose notices go to an outbox.
type News struct {
	t      T
	outbox *Outbox

	mu       sync.Mutex
	sessions map[pulse.SessionID]*pulse.Session
	order    []pulse.SessionID
	events   map[pulse.SessionID][]pulse.Event
	seen     map[pulse.SessionID]int64
	stale    int
	advanced int
}

var _ notify.News = (*News)(nil)

// NewNews returns an empty log.
func NewNews(t T, outbox *Outbox) *News {
	return &News{t: t, outbox: outbox, sessions: map[pulse.SessionID]*pulse.Session{},
		events: map[pulse.SessionID][]pulse.Event{}, seen: map[pulse.SessionID]int64{}}
}

// Write stores a session as it is now and appends events to its log.
func (l *News) Write(s pulse.Session, events ...pulse.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[s.ID] == nil {
		l.order = append(l.order, s.ID)
	}
	for _, e := range events {
		e.SessionID, e.Seq = s.ID, int64(len(l.events[s.ID])+1)
		l.events[s.ID] = append(l.events[s.ID], e)
	}
	s.EventSeq = int64(len(l.events[s.ID]))
	l.sessions[s.ID] = &s
}

// StaleOnce makes the next n calls of Advance find the watermark moved.
func (l *News) StaleOnce(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = n
}

// Advanced is how often the watermark moved.
func (l *News) Advanced() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.advanced
}

// SessionsWithNews implements notify.News.
func (l *News) SessionsWithNews(_ context.Context, limit int) ([]pulse.Unread, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []pulse.Unread
	for _, id := range l.order {
		if s := l.sessions[id]; s.EventSeq > l.seen[id] && len(out) < limit {
			out = append(out, pulse.Unread{Session: *s, Seen: l.seen[id]})
		}
	}
	return out, nil
}

// Events implements notify.News.
func (l *News) Events(_ context.Context, id pulse.SessionID, after int64, limit int) ([]pulse.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []pulse.Event
	for _, e := range l.events[id] {
		if e.Seq > after && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, nil
}

// Advance implements notify.News.
func (l *News) Advance(_ context.Context, id pulse.SessionID, from, to int64, notices []pulse.Notice) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stale > 0 {
		l.stale--
		return pulse.ErrStale
	}
	switch {
	case l.seen[id] != from:
		return pulse.ErrStale
	case to <= from || to > int64(len(l.events[id])):
		l.t.Errorf("session %s: watermark moved from %d to %d of %d", id, from, to, len(l.events[id]))
	}
	l.seen[id] = to
	l.advanced++
	l.outbox.Put(notices...)
	return nil
}
