// Package bottest holds, in memory, everything a bot.Router works with: an
// inbox, people, channels, projects, sessions and an outbox, under the rules
// of the real store (guards, each update once, slots, transition tables), and
// a platform whose updates are neutral events. It also serves the use cases
// of sessions as their store, so that a test can run the real ones.
//
// Misuse is reported to the test. Everything may be used from any goroutine.
package bottest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// T is the part of *testing.T that misuse is reported to.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// World is the store.
type World struct {
	t     T
	clock func() time.Time

	mu        sync.Mutex
	inbound   []*letter
	offsets   map[string]string
	operators []pulse.Operator
	codes     map[string]*code
	failures  map[string][]time.Time
	channels  map[pulse.Address]pulse.Channel
	projects  []pulse.Project
	sessions  map[pulse.SessionID]*pulse.Session
	order     []pulse.SessionID
	its       map[pulse.SessionID][]pulse.Iteration
	tasks     map[pulse.TaskID]pulse.Task
	gates     map[pulse.GateID]pulse.Gate
	notices   []pulse.Notice
	audit     []pulse.AuditEntry
	refusing  map[pulse.Address]bool
	applied   int
	failNext  []error
	before    func()
}

type letter struct {
	in      pulse.Inbound
	handled bool
	next    time.Time
	reason  string
	holds   bool
	behind  pulse.InboundID
}

type code struct {
	pulse.PairingCode
	used bool
}

var (
	_ bot.Inbox   = (*World)(nil)
	_ bot.Intake  = (*World)(nil)
	_ bot.People  = (*World)(nil)
	_ bot.Reader  = (*World)(nil)
	_ bot.Applier = (*World)(nil)
)

// New returns an empty world. clock may be nil.
func New(t T, clock func() time.Time) *World {
	if clock == nil {
		clock = time.Now
	}
	return &World{t: t, clock: clock, refusing: map[pulse.Address]bool{}, offsets: map[string]string{}, codes: map[string]*code{}, failures: map[string][]time.Time{},
		channels: map[pulse.Address]pulse.Channel{}, sessions: map[pulse.SessionID]*pulse.Session{},
		its: map[pulse.SessionID][]pulse.Iteration{}, tasks: map[pulse.TaskID]pulse.Task{}, gates: map[pulse.GateID]pulse.Gate{}}
}

// Decoder reads updates that are events written as JSON.
type Decoder struct{}

// Decode implements bot.Decoder.
func (Decoder) Decode(in pulse.Inbound) bot.Event {
	var e bot.Event
	if err := json.Unmarshal(in.Payload, &e); err != nil {
		return bot.Event{Kind: bot.KindIgnored, Note: err.Error()}
	}
	return e
}

// Deliver puts an event into the inbox as the platform's next update and
// answers its id.
func (w *World) Deliver(source string, e bot.Event) pulse.InboundID {
	payload, err := json.Marshal(e)
	if err != nil {
		w.t.Errorf("write an event: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now, n := w.clock(), len(w.inbound)+1
	in := pulse.Inbound{ID: pulse.InboundID(pulse.NewUUID(now)), Platform: e.Platform, Source: source, UpdateID: fmt.Sprint(n),
		Order: int64(n), Payload: payload, ReceivedAt: now}
	w.inbound = append(w.inbound, &letter{in: in})
	return in.ID
}

// Receive implements bot.Intake.
func (w *World) Receive(_ context.Context, source string, updates []pulse.Inbound, offset string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh := 0
	for _, in := range updates {
		if in.ID == "" || in.Source != source || in.UpdateID == "" || in.Platform == "" {
			w.t.Errorf("received an update without id, source or platform: %+v", in)
		}
		if slices.ContainsFunc(w.inbound, func(l *letter) bool { return l.in.Source == source && l.in.UpdateID == in.UpdateID }) {
			continue
		}
		w.inbound = append(w.inbound, &letter{in: in})
		fresh++
	}
	if offset != "" {
		w.offsets[source] = offset
	}
	return fresh, nil
}

// Offset implements bot.Intake.
func (w *World) Offset(_ context.Context, source string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offsets[source], nil
}

// Inbound lists everything received, handled or not.
func (w *World) Inbound() []pulse.Inbound {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pulse.Inbound
	for _, l := range w.inbound {
		out = append(out, l.in)
	}
	return out
}

// Handled reports whether an update was brought to its end.
func (w *World) Handled(id pulse.InboundID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.inbound {
		if l.in.ID == id {
			return l.handled
		}
	}
	w.t.Errorf("no update %s", id)
	return false
}

// PendingInbound implements bot.Inbox.
func (w *World) PendingInbound(_ context.Context, limit int) ([]pulse.Inbound, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pulse.Inbound
	for _, l := range w.inbound {
		if !l.handled && !l.next.After(w.clock()) && !w.waits(l) {
			out = append(out, l.in)
		}
	}
	slices.SortStableFunc(out, func(a, b pulse.Inbound) int {
		if c := strings.Compare(a.Source, b.Source); c != 0 {
			return c
		}
		return int(a.Order - b.Order)
	})
	return out[:min(limit, len(out))], nil
}

// waits reports whether an update is behind one that is not handled.
func (w *World) waits(l *letter) bool {
	return slices.ContainsFunc(w.inbound, func(b *letter) bool { return b.in.ID == l.behind && !b.handled })
}

// DeferInbound implements bot.Inbox.
func (w *World) DeferInbound(_ context.Context, id pulse.InboundID, reason string, until time.Time) error {
	return w.change(id, func(l *letter) {
		l.next, l.reason, l.holds = until, reason, false
		for _, b := range w.inbound {
			if b.behind == id {
				b.behind = ""
			}
		}
	})
}

// HoldInbound implements bot.Inbox.
func (w *World) HoldInbound(_ context.Context, id pulse.InboundID, reason string, until time.Time) error {
	return w.change(id, func(l *letter) { l.next, l.reason, l.holds = until, reason, true })
}

// QueueInbound implements bot.Inbox.
func (w *World) QueueInbound(_ context.Context, id, behind pulse.InboundID) error {
	if id == behind {
		w.t.Errorf("update %s is to wait for itself", id)
	}
	return w.change(id, func(l *letter) { l.behind = behind })
}

func (w *World) change(id pulse.InboundID, f func(*letter)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.inbound {
		if l.in.ID == id {
			f(l)
			return nil
		}
	}
	return pulse.NotFound("no such update", "")
}

// HeldInbound implements bot.Inbox.
func (w *World) HeldInbound(context.Context) ([]pulse.Inbound, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pulse.Inbound
	for _, l := range w.inbound {
		if (l.holds || l.behind != "") && !l.handled {
			out = append(out, l.in)
		}
	}
	return out, nil
}

// Refuse makes a chat refuse messages until ReleaseChat.
func (w *World) Refuse(a pulse.Address) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusing[a] = true
}

// Refusing reports whether a chat refuses messages.
func (w *World) Refusing(a pulse.Address) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusing[a]
}

// ReleaseChat implements bot.People.
func (w *World) ReleaseChat(_ context.Context, a pulse.Address) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.refusing[a]
	delete(w.refusing, a)
	return was, nil
}

// HeldChats implements bot.People.
func (w *World) HeldChats(context.Context) (map[pulse.Address]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[pulse.Address]string{}
	for a := range w.refusing {
		out[a] = "bot was blocked"
	}
	return out, nil
}

// Operator implements bot.People.
func (w *World) Operator(_ context.Context, p pulse.Platform, userID string) (pulse.Operator, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.operators {
		if o.Platform == p && o.UserID == userID {
			return o, nil
		}
	}
	return pulse.Operator{}, pulse.ErrNone
}

// CountOperators implements bot.People.
func (w *World) CountOperators(_ context.Context, p pulse.Platform) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, o := range w.operators {
		if o.Platform == p {
			n++
		}
	}
	return n, nil
}

// FailedPairing implements bot.People.
func (w *World) FailedPairing(_ context.Context, p pulse.Platform, userID string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, now := string(p)+userID, w.clock()
	recent := slices.DeleteFunc(w.failures[key], func(t time.Time) bool { return now.Sub(t) >= time.Hour })
	w.failures[key] = append(recent, now)
	return len(w.failures[key]), nil
}

// Channel implements bot.People.
func (w *World) Channel(_ context.Context, a pulse.Address) (pulse.Channel, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch, ok := w.channels[a]; ok {
		return ch, nil
	}
	return pulse.Channel{}, pulse.ErrNone
}

// SessionByMessage implements bot.People.
func (w *World) SessionByMessage(_ context.Context, a pulse.Address, externalID string) (pulse.SessionID, pulse.GateID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.notices {
		if n.Address.Chat == a.Chat && n.Address.Platform == a.Platform && n.ExternalID == externalID && n.SessionID != "" {
			return n.SessionID, n.GateID, nil
		}
	}
	return "", "", pulse.ErrNone
}

// Projects implements bot.Reader.
func (w *World) Projects(context.Context) ([]pulse.Project, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.projects), nil
}

// Sessions implements bot.Reader.
func (w *World) Sessions(_ context.Context, f pulse.SessionFilter) ([]pulse.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pulse.Session
	for _, id := range slices.Backward(w.order) {
		s := w.sessions[id]
		if len(f.Statuses) > 0 && !slices.Contains(f.Statuses, s.Status) || f.ProjectID != "" && f.ProjectID != s.ProjectID ||
			!f.Address.Zero() && !slices.Contains(s.Addresses(), f.Address) {
			continue
		}
		if f.Limit > 0 && len(out) == f.Limit {
			break
		}
		out = append(out, clone(*s))
	}
	return out, nil
}

// FindSession implements bot.Reader.
func (w *World) FindSession(_ context.Context, ref string) (pulse.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var hits []pulse.Session
	for _, id := range w.order {
		if ref != "" && strings.HasSuffix(string(id), ref) {
			hits = append(hits, clone(*w.sessions[id]))
		}
	}
	switch len(hits) {
	case 0:
		return pulse.Session{}, pulse.NotFound(fmt.Sprintf("there is no session %q", ref), "")
	case 1:
		return hits[0], nil
	}
	return pulse.Session{}, pulse.Invalid(fmt.Sprintf("%q means more than one session", ref), "give more of its id")
}

// Iterations implements bot.Reader.
func (w *World) Iterations(_ context.Context, id pulse.SessionID) ([]pulse.Iteration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.its[id]), nil
}

// Gate implements bot.Reader.
func (w *World) Gate(_ context.Context, id pulse.GateID) (pulse.Gate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g, ok := w.gates[id]; ok {
		return g, nil
	}
	return pulse.Gate{}, pulse.NotFound("there is no such gate", "")
}

// clone keeps what callers get apart from what is stored.
func clone(s pulse.Session) pulse.Session {
	s.ProgressLog, s.Inputs = slices.Clone(s.ProgressLog), slices.Clone(s.Inputs)
	return s
}

// Codes lists the hashes of the pairing codes that can still be used.
func (w *World) Codes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for h := range maps.Keys(w.codes) {
		if !w.codes[h].used {
			out = append(out, h)
		}
	}
	return out
}
