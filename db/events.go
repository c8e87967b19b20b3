package db

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type eventRow struct {
	bun.BaseModel `bun:"table:events,alias:e"`

	SessionID uid   `bun:",pk"`
	Seq       int64 `bun:",pk"`
	Type      text
	TurnID    uid
	At        stamp
	Data      doc[map[string]any]
}

func (r eventRow) value() pulse.Event {
	return pulse.Event{SessionID: pulse.SessionID(r.SessionID), Seq: r.Seq, Type: pulse.EventType(r.Type),
		TurnID: pulse.TurnID(r.TurnID), At: r.At.Time, Data: r.Data.V}
}

// appendEvents numbers events within their session and stores them. The
// session row is what makes writers of one session take turns, so that
// numbers are committed in order and without a gap.
func (w *work) appendEvents(ctx context.Context, events []pulse.Event) error {
	if len(events) == 0 {
		return nil
	}
	bySession := map[pulse.SessionID][]pulse.Event{}
	for _, e := range events {
		bySession[e.SessionID] = append(bySession[e.SessionID], e)
	}
	for _, id := range slices.Sorted(maps.Keys(bySession)) {
		if err := w.appendSessionEvents(ctx, id, bySession[id]); err != nil {
			return err
		}
	}
	w.wake(pulse.TopicEvents)
	return nil
}

func (w *work) appendSessionEvents(ctx context.Context, id pulse.SessionID, events []pulse.Event) error {
	var last int64
	err := w.db.NewRaw("UPDATE pulse_sessions SET event_seq = event_seq + ? WHERE id = ? RETURNING event_seq", len(events), uid(id)).Scan(ctx, &last)
	if err != nil {
		return none(err, noSession(string(id)))
	}
	out := make([]eventRow, 0, len(events))
	for i, e := range events {
		if e.Data == nil {
			e.Data = map[string]any{}
		}
		out = append(out, eventRow{SessionID: uid(id), Seq: last - int64(len(events)) + int64(i) + 1, Type: text(e.Type),
			TurnID: uid(e.TurnID), At: w.orNow(e.At), Data: doc[map[string]any]{e.Data}})
	}
	_, err = w.db.NewInsert().Model(&out).Exec(ctx)
	return err
}

// Events reads a session's events after seq, in order, at most limit.
func (s *Store) Events(ctx context.Context, id pulse.SessionID, after int64, limit int) ([]pulse.Event, error) {
	if !pulse.ValidUUID(string(id)) {
		return nil, nil
	}
	var out []eventRow
	err := s.view(ctx, "read events", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&out).Where("session_id = ?", uid(id)).Where("seq > ?", after).
			Order("seq").Limit(int64(orDefault(limit, 100))).Scan(ctx)
	})
	return values(out, eventRow.value), err
}

// SessionsWithNews lists sessions whose event_seq is past the notify
// watermark, with that watermark, longest unchanged first.
func (s *Store) SessionsWithNews(ctx context.Context, limit int) ([]pulse.Unread, error) {
	var out []sessionRow
	err := s.view(ctx, "list sessions with news", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&out).Where("event_seq > notify_seq").Order("updated_at", "id").
			Limit(int64(orDefault(limit, 100))).Scan(ctx)
	})
	return values(out, func(r sessionRow) pulse.Unread { return pulse.Unread{Session: r.value(), Seen: r.NotifySeq} }), err
}

// Advance writes the notices and moves the notify watermark in one
// transaction; pulse.ErrStale if it was moved meanwhile.
func (s *Store) Advance(ctx context.Context, id pulse.SessionID, from, to int64, notices []pulse.Notice) error {
	if !pulse.ValidUUID(string(id)) {
		return noSession(string(id))
	}
	return s.write(ctx, "advance notifications", func(ctx context.Context, w *work) error {
		res, err := w.db.NewRaw("UPDATE pulse_sessions SET notify_seq = ? WHERE id = ? AND notify_seq = ?", to, uid(id), from).Exec(ctx)
		if err != nil {
			return err
		}
		if err := w.changedSession(ctx, id, res); err != nil {
			return err
		}
		return w.putNotices(ctx, notices)
	})
}

type deltaRow struct {
	bun.BaseModel `bun:"table:stream_deltas,alias:d"`

	SessionID uid   `bun:",pk"`
	TaskID    uid   `bun:",pk"`
	Attempt   int   `bun:",pk"`
	N         int64 `bun:",pk"`
	TurnID    uid
	Type      text
	Text      text
	At        stamp
}

func (r deltaRow) value() pulse.StreamDelta {
	return pulse.StreamDelta{TaskID: pulse.TaskID(r.TaskID), Attempt: r.Attempt, N: r.N, SessionID: pulse.SessionID(r.SessionID),
		TurnID: pulse.TurnID(r.TurnID), Type: pulse.EventType(r.Type), Text: string(r.Text), At: r.At.Time}
}

// Deltas reads a session's stream deltas after the position, in order.
func (s *Store) Deltas(ctx context.Context, id pulse.SessionID, after pulse.DeltaPosition, limit int) ([]pulse.StreamDelta, error) {
	if !pulse.ValidUUID(string(id)) {
		return nil, nil
	}
	var out []deltaRow
	err := s.view(ctx, "read stream", func(ctx context.Context, db bun.IDB) error {
		q := db.NewSelect().Model(&out).Where("session_id = ?", uid(id)).Order("task_id", "attempt", "n").Limit(int64(orDefault(limit, 500)))
		if after.TaskID != "" {
			q = q.Where("(task_id, attempt, n) > (?, ?, ?)", uid(after.TaskID), after.Attempt, after.N)
		}
		return q.Scan(ctx)
	})
	return values(out, deltaRow.value), err
}

// PurgeDeltas deletes stream deltas from before the instant whose turn is
// over: the turn's own text has replaced them. It answers how many.
func (s *Store) PurgeDeltas(ctx context.Context, before time.Time) (int64, error) {
	var n int64
	err := s.purgeBatches(ctx, &n, func(ctx context.Context, w *work) (int64, error) {
		return w.deleteSome(ctx, "stream_deltas", "SELECT "+w.rowID("d")+" FROM stream_deltas d WHERE d.at < ? AND NOT EXISTS ("+
			"SELECT 1 FROM turns t WHERE t.id = d.turn_id AND t.status = 'streaming')", purgeRows, at(before))
	})
	return n, quiet(ctx, err)
}
