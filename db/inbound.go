package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type inboundRow struct {
	bun.BaseModel `bun:"table:inbound_updates,alias:u"`

	ID         uid `bun:",pk"`
	Platform   text
	Source     text
	UpdateID   text
	Position   int64
	Payload    []byte
	ReceivedAt stamp
	HandledAt  stamp
	Failures   int
	RetryAt    stamp
	LastError  text
	Holds      bool
	WaitsFor   uid
}

func (r inboundRow) value() pulse.Inbound {
	return pulse.Inbound{ID: pulse.InboundID(r.ID), Platform: pulse.Platform(r.Platform), Source: string(r.Source), UpdateID: string(r.UpdateID),
		Order: r.Position, Payload: r.Payload, ReceivedAt: r.ReceivedAt.Time}
}

// Receive commits updates and the new offset of their source in one
// transaction; updates already there are skipped. It answers how many were
// new. An empty offset leaves it as it is.
func (s *Store) Receive(ctx context.Context, source string, updates []pulse.Inbound, offset string) (int, error) {
	fresh := 0
	err := s.write(ctx, "receive updates", func(ctx context.Context, w *work) error {
		fresh = 0
		for _, u := range updates {
			id := u.ID
			if id == "" {
				id = pulse.InboundID(pulse.NewUUID(w.at))
			}
			payload := u.Payload
			if payload == nil {
				payload = []byte{}
			}
			row := inboundRow{ID: uid(id), Platform: text(u.Platform), Source: text(source), UpdateID: text(u.UpdateID), Position: u.Order,
				Payload: payload, ReceivedAt: w.orNow(u.ReceivedAt)}
			n, err := w.receive(ctx, &row)
			if err != nil {
				return err
			}
			fresh += n
		}
		if fresh > 0 {
			w.wake(pulse.TopicInbound)
		}
		if offset == "" {
			return nil
		}
		_, err := w.db.NewRaw("INSERT INTO inbound_offsets (source, resume, updated_at) VALUES (?, ?, "+w.now(0)+")"+
			" ON CONFLICT (source) DO UPDATE SET resume = EXCLUDED.resume, updated_at = EXCLUDED.updated_at", text(source), text(offset)).Exec(ctx)
		return err
	})
	return fresh, err
}

// idLife is for how long an update id means the same update. Platforms deliver
// an update again for a day at most, and may number anew after a week of quiet.
const idLife = 6 * 24 * time.Hour

// receive stores an update unless it is there. What is there for longer than
// ids live, and said something else, is another update that had the number
// before: it is set aside under a name of its own.
func (w *work) receive(ctx context.Context, row *inboundRow) (int, error) {
	insert := func() (int64, error) {
		return rows(w.db.NewInsert().Model(row).On("CONFLICT (source, update_id) DO NOTHING").Exec(ctx))
	}
	n, err := insert()
	if err != nil || n > 0 {
		return int(n), err
	}
	aside, err := rows(w.db.NewRaw("UPDATE inbound_updates SET update_id = update_id || '@' || CAST(id AS text)"+
		" WHERE source = ? AND update_id = ? AND handled_at IS NOT NULL AND received_at < ? AND payload <> ?",
		row.Source, row.UpdateID, at(row.ReceivedAt.Add(-idLife)), row.Payload).Exec(ctx))
	if err != nil || aside == 0 {
		return 0, err
	}
	n, err = insert()
	return int(n), err
}

// Offset reads the source's offset, "" at first.
func (s *Store) Offset(ctx context.Context, source string) (string, error) {
	var offset string
	err := s.view(ctx, "read offset", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewRaw("SELECT resume FROM inbound_offsets WHERE source = ?", text(source)).Scan(ctx, &offset), nil)
	})
	return offset, err
}

// PendingInbound gives updates not handled yet, by source and order; those
// that failed are left out until their delay is over, and those behind another
// until that is handled.
func (s *Store) PendingInbound(ctx context.Context, limit int) ([]pulse.Inbound, error) {
	var out []inboundRow
	err := s.view(ctx, "read pending updates", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&out).Where("handled_at IS NULL").Where("(retry_at IS NULL OR retry_at <= "+s.sqlNow(0)+")").
			Where("(waits_for IS NULL OR NOT EXISTS (SELECT 1 FROM inbound_updates b WHERE b.id = u.waits_for AND b.handled_at IS NULL))").
			Order("source", "position", "id").Limit(int64(orDefault(limit, 100))).Scan(ctx)
	})
	return values(out, inboundRow.value), err
}

// DeferInbound delays the handling of an update, which holds nothing back:
// what was behind it goes on.
func (s *Store) DeferInbound(ctx context.Context, id pulse.InboundID, reason string, until time.Time) error {
	return s.deferInbound(ctx, id, reason, until, false)
}

// HoldInbound notes a failed handling and delays the next. Until it is over,
// the update holds back what was said later in its chat.
func (s *Store) HoldInbound(ctx context.Context, id pulse.InboundID, reason string, until time.Time) error {
	return s.deferInbound(ctx, id, reason, until, true)
}

func (s *Store) deferInbound(ctx context.Context, id pulse.InboundID, reason string, until time.Time, holds bool) error {
	return s.write(ctx, "defer update", func(ctx context.Context, w *work) error {
		_, err := w.db.NewRaw("UPDATE inbound_updates SET failures = failures + 1, retry_at = ?, last_error = ?, holds = ? WHERE id = ? AND handled_at IS NULL",
			at(until), text(reason), holds, uid(id)).Exec(ctx)
		if err != nil || holds {
			return err
		}
		_, err = w.db.NewRaw("UPDATE inbound_updates SET waits_for = NULL WHERE waits_for = ? AND handled_at IS NULL AND (holds OR waits_for IS NOT NULL)", uid(id)).Exec(ctx)
		return err
	})
}

// QueueInbound puts an update behind another that cannot be handled yet: it is
// not pending before that is handled, or deferred.
func (s *Store) QueueInbound(ctx context.Context, id, behind pulse.InboundID) error {
	return s.write(ctx, "queue update", func(ctx context.Context, w *work) error {
		_, err := w.db.NewRaw("UPDATE inbound_updates SET waits_for = ? WHERE id = ? AND id <> ? AND handled_at IS NULL", uid(behind), uid(id), uid(behind)).Exec(ctx)
		return err
	})
}

// HeldInbound gives the updates that hold back later ones of their chats, and
// those that are queued behind such, by source and order.
func (s *Store) HeldInbound(ctx context.Context) ([]pulse.Inbound, error) {
	var out []inboundRow
	err := s.view(ctx, "read holding updates", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&out).Where("handled_at IS NULL AND (holds OR waits_for IS NOT NULL)").Order("source", "position", "id").Scan(ctx)
	})
	return values(out, inboundRow.value), err
}

// handleInbound marks an update as handled by this transaction.
func (w *work) handleInbound(ctx context.Context, id pulse.InboundID) error {
	n, err := rows(w.db.NewRaw("UPDATE inbound_updates SET handled_at = "+w.now(0)+" WHERE id = ? AND handled_at IS NULL", uid(id)).Exec(ctx))
	if err == nil && n == 0 {
		return pulse.ErrDone
	}
	return err
}
