package db

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

// doubts are the claims of whose last batch nobody knows whether it was
// stored: the answer was lost, or came too late. Only a daemon of this process
// writes for its claims, so they need not outlive it.
type doubts struct {
	mu     sync.Mutex
	claims map[pulse.ClaimToken]time.Time
}

// doubtFor bounds how long a claim is remembered that writes no more. A
// daemon gives a batch up long before.
const doubtFor = time.Hour

func (d *doubts) about(claim pulse.ClaimToken) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.claims[claim]
	return is
}

// settle notes what a batch was answered with.
func (d *doubts) settle(claim pulse.ClaimToken, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var refused *pulse.Error
	if err == nil || errors.Is(err, pulse.ErrFenced) || errors.As(err, &refused) && refused.Code == pulse.CodeInvalid {
		if len(d.claims) > 0 {
			delete(d.claims, claim)
		}
		return
	}
	now := time.Now()
	for c, since := range d.claims {
		if now.Sub(since) > doubtFor {
			delete(d.claims, c)
		}
	}
	if d.claims == nil {
		d.claims = map[pulse.ClaimToken]time.Time{}
	}
	d.claims[claim] = now
}

// unseen leaves out the events that are stored already. Events of one turn
// that are of one type, of one microsecond and say the same are one event:
// calls have their ids, and what is said again at once is not told twice. The
// session is locked first: the lost write may be on its way still.
func (w *work) unseen(ctx context.Context, session string, events []pulse.Event) ([]pulse.Event, error) {
	if len(events) == 0 || session == "" {
		return events, nil
	}
	lock := ""
	if w.pg {
		lock = " FOR UPDATE"
	}
	var id uid
	if err := w.db.NewRaw("SELECT id FROM pulse_sessions WHERE id = ?"+lock, uid(session)).Scan(ctx, &id); err != nil {
		return nil, none(err, noSession(session))
	}
	turns := map[uid]bool{}
	for _, e := range events {
		turns[uid(e.TurnID)] = true
	}
	ids := make([]uid, 0, len(turns))
	for t := range turns {
		ids = append(ids, t)
	}
	var stored []eventRow
	if err := w.db.NewSelect().Model(&stored).Where("session_id = ?", uid(session)).Where("turn_id IN (?)", bun.List(ids)).Scan(ctx); err != nil {
		return nil, err
	}
	seen := make(map[string]int, len(stored))
	for _, r := range stored {
		seen[identity(r.value())]++
	}
	var fresh []pulse.Event
	for _, e := range events {
		if key := identity(e); seen[key] > 0 {
			seen[key]--
			continue
		}
		fresh = append(fresh, e)
	}
	return fresh, nil
}

// identity is what tells an event from others of its session.
func identity(e pulse.Event) string {
	return string(e.TurnID) + "\x00" + string(e.Type) + "\x00" + e.At.UTC().Format(stampLayout) + "\x00" + asStored(e.Data)
}

// asStored is data as it reads when it comes back from the database, where
// numbers have one type and what is no text was replaced. What cannot be
// written was not stored either.
func asStored(data map[string]any) string {
	raw, err := encode(data)
	if err != nil || len(data) == 0 {
		return ""
	}
	var back map[string]any
	if json.Unmarshal([]byte(raw), &back) != nil {
		return ""
	}
	out, _ := encode(back)
	return out
}
