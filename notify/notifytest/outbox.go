// Package notifytest holds an outbox, an event log and a platform in memory,
// for tests of whatever writes or sends messages. They behave as the contracts
// of notify say, and report a misuse to the test that made them.
//
// Everything may be used from any goroutine.
package notifytest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"pulseloop/notify"
	"pulseloop/pulse"
)

// T is the part of *testing.T that a fake reports misuse to.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Outbox is an outbox in memory.
type Outbox struct {
	t     T
	clock func() time.Time

	mu       sync.Mutex
	rows     []*row
	fail     error
	claims   int
	holds    map[hold]time.Time
	statuses map[pulse.SessionID]pulse.SessionStatus
}

type row struct {
	n     pulse.Notice
	lease time.Time
	rev   int // revision that was claimed
	token pulse.ClaimToken
	parts []string
}

// hold is what a chat is kept from.
type hold struct {
	chat  pulse.Address
	edits bool
}

var _ notify.Outbox = (*Outbox)(nil)

// NewOutbox returns an empty outbox. clock may be nil.
func NewOutbox(t T, clock func() time.Time) *Outbox {
	if clock == nil {
		clock = time.Now
	}
	return &Outbox{t: t, clock: clock, holds: map[hold]time.Time{}, statuses: map[pulse.SessionID]pulse.SessionStatus{}}
}

// Put writes notices as a change does: by the rules of slots.
func (o *Outbox) Put(notices ...pulse.Notice) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.clock()
	for _, n := range notices {
		o.check(n)
		if old := o.bySlot(n); old != nil {
			if !n.Editable {
				continue
			}
			old.n.Message = n.Message
			old.n.Revision++
			if old.n.Status == pulse.NoticeSent {
				old.n.Status, old.n.NextAt = pulse.NoticeQueued, now
			}
			continue
		}
		n.Status, n.Revision = pulse.NoticeQueued, 1
		if n.NextAt.IsZero() {
			n.NextAt = now
		}
		if n.CreatedAt.IsZero() {
			n.CreatedAt = now
		}
		o.rows = append(o.rows, &row{n: n})
	}
}

func (o *Outbox) check(n pulse.Notice) {
	o.t.Helper()
	switch {
	case n.ID == "", n.Slot == "", n.Kind == "", n.Address.Platform == "", n.Address.Chat == "":
		o.t.Errorf("notice without id, slot, kind or address: %+v", n)
	case n.Message.Plain() == "":
		o.t.Errorf("notice %s has no text", n.Slot)
	}
	for _, r := range n.Message.Buttons {
		for _, b := range r {
			if len(b.Data) == 0 || len(b.Data) > 64 || b.Label == "" {
				o.t.Errorf("notice %s: button %q has %d bytes of data, 1 to 64 are allowed", n.Slot, b.Label, len(b.Data))
			}
		}
	}
}

func (o *Outbox) bySlot(n pulse.Notice) *row {
	for _, r := range o.rows {
		if r.n.Slot == n.Slot && r.n.Address == n.Address {
			return r
		}
	}
	return nil
}

// FailWith makes every call fail with err, until it is nil again.
func (o *Outbox) FailWith(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail = err
}

// All gives every notice as it is now, in the order they were put.
func (o *Outbox) All() []pulse.Notice {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []pulse.Notice
	for _, r := range o.rows {
		out = append(out, r.n)
	}
	return out
}

// Get gives the notice of a slot; the test fails if there is none.
func (o *Outbox) Get(slot string) pulse.Notice {
	o.t.Helper()
	for _, n := range o.All() {
		if n.Slot == slot {
			return n
		}
	}
	o.t.Errorf("no notice in slot %q", slot)
	return pulse.Notice{}
}

// ClaimNotices implements notify.Outbox.
func (o *Outbox) ClaimNotices(_ context.Context, platforms []pulse.Platform, skip []pulse.Address, limit int, lease time.Duration) ([]pulse.Notice, pulse.ClaimToken, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return nil, "", o.fail
	}
	if limit <= 0 || lease <= 0 || len(platforms) == 0 {
		o.t.Errorf("claim of %d notices for %s on %v", limit, lease, platforms)
		return nil, "", nil
	}
	o.claims++
	token := pulse.ClaimToken(fmt.Sprintf("claim %d", o.claims))
	now := o.clock()
	due := []*row{}
	for _, r := range o.rows {
		waiting := r.n.Status == pulse.NoticeQueued && !r.n.NextAt.After(now)
		lost := r.n.Status == pulse.NoticeSending && !r.lease.After(now)
		if (waiting || lost) && slices.Contains(platforms, r.n.Address.Platform) && !slices.Contains(skip, r.n.Address) && !o.held(r.n, now) {
			due = append(due, r)
		}
	}
	slices.SortStableFunc(due, func(a, b *row) int { return b.n.Kind.Priority() - a.n.Kind.Priority() })
	var out []pulse.Notice
	taken := map[pulse.Address]bool{}
	for _, r := range due {
		if len(out) == limit {
			break
		}
		if taken[r.n.Address] {
			continue
		}
		taken[r.n.Address] = true
		r.n.Status, r.lease, r.rev, r.token = pulse.NoticeSending, now.Add(lease), r.n.Revision, token
		out = append(out, r.n)
	}
	return out, token, nil
}

// SettleNotice implements notify.Outbox.
func (o *Outbox) SettleNotice(_ context.Context, token pulse.ClaimToken, n pulse.Notice, rev int, parts []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return o.fail
	}
	for _, r := range o.rows {
		if r.n.ID != n.ID {
			continue
		}
		if r.n.Status != pulse.NoticeSending || r.token != token {
			return pulse.ErrFenced
		}
		if r.rev != rev {
			o.t.Errorf("notice %s settled at revision %d while %s at revision %d", n.Slot, rev, r.n.Status, r.rev)
			return pulse.ErrFenced
		}
		if err := pulse.NoticeTransitions.Check(pulse.NoticeSending, n.Status); err != nil {
			o.t.Errorf("notice %s: %v", n.Slot, err)
		}
		if len(parts) < len(r.parts) || n.Editable && len(parts) > 1 || len(parts) > 0 && parts[0] != n.ExternalID {
			o.t.Errorf("notice %s: its messages were %q, now they are %q, the first %q", n.Slot, r.parts, parts, n.ExternalID)
		}
		r.parts = slices.Clone(parts)
		later, text := r.n.Revision > rev, r.n.Message
		r.n, r.n.Revision = n, max(r.n.Revision, rev)
		r.n.Message = text
		if later && n.Status != pulse.NoticeDead {
			r.n.Status = pulse.NoticeQueued
			if n.Status != pulse.NoticeQueued {
				r.n.NextAt = o.clock()
			}
		}
		return nil
	}
	o.t.Errorf("settled a notice that was never put: %s", n.ID)
	return pulse.ErrNone
}

// NextNoticeAt implements notify.Outbox.
func (o *Outbox) NextNoticeAt(context.Context) (time.Time, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return time.Time{}, o.fail
	}
	var next time.Time
	for _, r := range o.rows {
		if r.n.Status == pulse.NoticeQueued && (next.IsZero() || r.n.NextAt.Before(next)) {
			next = r.n.NextAt
		}
	}
	return next, nil
}

// NoticeParts implements notify.Outbox.
func (o *Outbox) NoticeParts(_ context.Context, id pulse.NoticeID) ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return nil, o.fail
	}
	for _, r := range o.rows {
		if r.n.ID == id && r.n.ExternalID != "" {
			return append([]string{r.n.ExternalID}, r.parts[min(1, len(r.parts)):]...), nil
		}
	}
	return nil, nil
}

// Taken makes the claim on a slot's message end, as when its sender was
// stopped for longer than its lease.
func (o *Outbox) Taken(slot string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.rows {
		if r.n.Slot == slot {
			r.lease = o.clock()
		}
	}
}

// held reports whether a chat is kept from a notice.
func (o *Outbox) held(n pulse.Notice, now time.Time) bool {
	for h, until := range o.holds {
		if h.chat.Platform == n.Address.Platform && h.chat.Chat == n.Address.Chat && (until.IsZero() || until.After(now)) &&
			(!h.edits || n.Editable && n.ExternalID != "") {
			return true
		}
	}
	return false
}

// HoldChat implements notify.Outbox.
func (o *Outbox) HoldChat(_ context.Context, a pulse.Address, edits bool, until time.Time, _ string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return o.fail
	}
	o.holds[hold{a, edits}] = until
	return nil
}

// Release ends the holds of a chat that have no end, as a person who writes does.
func (o *Outbox) Release(a pulse.Address) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.holds, func(h hold, until time.Time) bool { return h.chat == a && until.IsZero() })
}

// Holds gives the chats that are kept back, and until when.
func (o *Outbox) Holds() map[pulse.Address]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[pulse.Address]time.Time{}
	for h, until := range o.holds {
		out[h.chat] = until
	}
	return out
}

// ExpireHeld implements notify.Outbox.
func (o *Outbox) ExpireHeld(_ context.Context, kinds []pulse.NoticeKind, before time.Time) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return 0, o.fail
	}
	n := 0
	for _, r := range o.rows {
		until, ok := o.holds[hold{pulse.Address{Platform: r.n.Address.Platform, Chat: r.n.Address.Chat}, false}]
		if ok && until.IsZero() && r.n.Status == pulse.NoticeQueued && slices.Contains(kinds, r.n.Kind) && r.n.CreatedAt.Before(before) {
			r.n.Status = pulse.NoticeDead
			n++
		}
	}
	return n, nil
}

// Stands sets how a session stands; unknown ones are not there.
func (o *Outbox) Stands(id pulse.SessionID, s pulse.SessionStatus) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.statuses[id] = s
}

// SessionStatus implements notify.Outbox.
func (o *Outbox) SessionStatus(_ context.Context, id pulse.SessionID) (pulse.SessionStatus, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok := o.statuses[id]; ok {
		return s, nil
	}
	return "", pulse.ErrNone
}
