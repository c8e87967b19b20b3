package db

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type noticeRow struct {
	bun.BaseModel `bun:"table:notifications,alias:n"`

	ID         uid `bun:",pk"`
	Platform   text
	Chat       text
	Thread     text
	Slot       text
	Editable   bool
	Kind       text
	Priority   int
	SessionID  uid
	GateID     uid
	ReplyTo    text
	Silent     bool
	Body       doc[pulse.Message]
	Revision   int
	Status     text
	ExternalID opt
	Attempts   int
	NextAt     stamp
	LeaseUntil stamp
	ClaimToken opt
	LastError  text
	CreatedAt  stamp
	SentAt     stamp
}

func (r noticeRow) value() pulse.Notice {
	return pulse.Notice{ID: pulse.NoticeID(r.ID), Address: pulse.Address{Platform: pulse.Platform(r.Platform), Chat: string(r.Chat), Thread: string(r.Thread)},
		Slot: string(r.Slot), Editable: r.Editable, Kind: pulse.NoticeKind(r.Kind), SessionID: pulse.SessionID(r.SessionID), GateID: pulse.GateID(r.GateID),
		ReplyTo: string(r.ReplyTo), Silent: r.Silent, Message: r.Body.V, Revision: r.Revision, Status: pulse.NoticeStatus(r.Status),
		ExternalID: string(r.ExternalID), Attempts: r.Attempts, NextAt: r.NextAt.Time, LastError: string(r.LastError),
		CreatedAt: r.CreatedAt.Time, SentAt: r.SentAt.Time}
}

// replaceNotice is what a later text does to a live message. One that is
// being sent keeps its state: settling it sees the new revision. One that
// was given up stays so.
const replaceNotice = `CONFLICT (platform, chat, thread, slot) DO UPDATE SET
	body = EXCLUDED.body, kind = EXCLUDED.kind, priority = EXCLUDED.priority, editable = EXCLUDED.editable,
	session_id = EXCLUDED.session_id, gate_id = EXCLUDED.gate_id, silent = EXCLUDED.silent,
	revision = n.revision + 1,
	attempts = CASE WHEN n.status = 'sent' THEN 0 ELSE n.attempts END,
	next_at = CASE WHEN n.status = 'sent' THEN EXCLUDED.next_at ELSE n.next_at END,
	status = CASE WHEN n.status = 'sent' THEN 'queued' ELSE n.status END
	WHERE n.status IN ('queued', 'sending', 'sent')`

// putNotices queues messages. Slots decide what becomes of one that is there.
func (w *work) putNotices(ctx context.Context, notices []pulse.Notice) error {
	for _, n := range notices {
		id := n.ID
		if id == "" {
			id = pulse.NoticeID(pulse.NewUUID(w.at))
		}
		slot := n.Slot
		if slot == "" {
			slot = string(id)
		}
		row := noticeRow{ID: uid(id), Platform: text(n.Address.Platform), Chat: text(n.Address.Chat), Thread: text(n.Address.Thread),
			Slot: text(slot), Editable: n.Editable, Kind: text(n.Kind), Priority: n.Kind.Priority(), SessionID: uid(n.SessionID), GateID: uid(n.GateID),
			ReplyTo: text(n.ReplyTo), Silent: n.Silent, Body: doc[pulse.Message]{n.Message}, Revision: 1, Status: text(pulse.NoticeQueued),
			NextAt: w.orNow(n.NextAt), CreatedAt: w.orNow(n.CreatedAt)}
		q := w.db.NewInsert().Model(&row)
		if n.Editable {
			q = q.On(replaceNotice)
		} else {
			q = q.On("CONFLICT (platform, chat, thread, slot) DO NOTHING")
		}
		if _, err := q.Exec(ctx); err != nil {
			return err
		}
		w.wake(pulse.TopicNotices)
	}
	return nil
}

// ClaimNotices takes up to limit due notices, most urgent first and oldest
// first within that, at most one per chat, passing over the chats in skip and
// those on hold, and holds them for lease under the token it answers. A chat
// with a message on its way is passed over too; one whose sender died comes
// again when its lease is over, with one attempt more (the sender counts those
// it comes back from).
func (s *Store) ClaimNotices(ctx context.Context, platforms []pulse.Platform, skip []pulse.Address, limit int, lease time.Duration) ([]pulse.Notice, pulse.ClaimToken, error) {
	if len(platforms) == 0 || limit <= 0 {
		return nil, "", nil
	}
	var out []noticeRow
	token := pulse.ClaimToken(pulse.NewUUID(s.now()))
	err := s.write(ctx, "claim notifications", func(ctx context.Context, w *work) error {
		out = nil
		if w.pg {
			// One claimer at a time, else two could each find a different
			// first message of the same chat.
			if _, err := w.raw.ExecContext(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", noticeLock)); err != nil {
				return err
			}
		}
		query, args := claimNotices(w, token, platforms, skip, limit, lease)
		return w.db.NewRaw(query, args...).Scan(ctx, &out)
	})
	slices.SortFunc(out, func(a, b noticeRow) int {
		if a.Priority != b.Priority {
			return b.Priority - a.Priority
		}
		if c := a.CreatedAt.Compare(b.CreatedAt.Time); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return values(out, noticeRow.value), token, err
}

// claimNotices is the statement of ClaimNotices. It steps from chat to chat along the index of what is queued and looks at the
// head of each: with a long backlog, which every chat can have after an outage, to sort what is due would take longer than to
// send it.
func claimNotices(w *work, token pulse.ClaimToken, platforms []pulse.Platform, skip []pulse.Address, limit int, lease time.Duration) (string, []any) {
	var args []any
	first := make([]string, 0, len(platforms))
	for _, p := range platforms {
		first = append(first, "SELECT CAST(? AS text), (SELECT min(chat) FROM notifications WHERE status = 'queued' AND platform = ?)")
		args = append(args, text(p), text(p))
	}
	now, passed := w.now(0), ""
	for _, a := range skip {
		passed += " AND NOT (k.platform = ? AND k.chat = ?)"
		args = append(args, text(a.Platform), text(a.Chat))
	}
	args = append(args, bun.List(texts(platforms)))
	for _, a := range skip {
		args = append(args, text(a.Platform), text(a.Chat))
	}
	args = append(args, limit, text(token))
	return "WITH RECURSIVE c (platform, chat) AS (" + strings.Join(first, " UNION ALL ") + " UNION ALL" +
		" SELECT c.platform, (SELECT min(n.chat) FROM notifications n WHERE n.status = 'queued' AND n.platform = c.platform AND n.chat > c.chat) FROM c WHERE c.chat IS NOT NULL)," +
		" free AS (SELECT platform, chat FROM c k WHERE chat IS NOT NULL" + passed +
		" AND NOT EXISTS (SELECT 1 FROM notifications o WHERE o.status = 'sending' AND o.platform = k.platform AND o.chat = k.chat AND o.lease_until > " + now + ")" +
		" AND NOT" + onHold("k", now, "NOT h.edits") + ")," +
		" heads (id) AS (SELECT (SELECT n.id FROM notifications n WHERE n.status = 'queued' AND n.platform = free.platform AND n.chat = free.chat AND n.next_at <= " + now +
		" AND NOT (n.editable AND n.external_id IS NOT NULL AND" + onHold("n", now, "h.edits") + ")" +
		" ORDER BY n.priority DESC, n.created_at, n.id LIMIT 1) FROM free" +
		" UNION ALL SELECT k.id FROM notifications k WHERE k.status = 'sending' AND k.lease_until <= " + now + " AND k.platform IN (?)" + passed +
		" AND NOT EXISTS (SELECT 1 FROM notifications o WHERE o.status = 'sending' AND o.platform = k.platform AND o.chat = k.chat AND o.lease_until > " + now + ")" +
		" AND NOT" + onHold("k", now, "(NOT h.edits OR (k.editable AND k.external_id IS NOT NULL))") + ")," +
		" chosen (id) AS (SELECT id FROM (SELECT n.id, n.priority, n.created_at, row_number() OVER (PARTITION BY n.platform, n.chat ORDER BY n.priority DESC, n.created_at, n.id) AS place" +
		" FROM heads JOIN notifications n ON n.id = heads.id) f WHERE place = 1 ORDER BY priority DESC, created_at, id LIMIT ?)" +
		" UPDATE notifications SET status = 'sending', claim_token = ?, attempts = attempts + CASE WHEN status = 'sending' THEN 1 ELSE 0 END, lease_until = " + w.now(lease) +
		" WHERE id IN (SELECT id FROM chosen) RETURNING *", args
}

// onHold is the condition that the chat of a row has a hold of a kind.
func onHold(row, now, which string) string {
	return " EXISTS (SELECT 1 FROM chat_holds h WHERE h.platform = " + row + ".platform AND h.chat = " + row + ".chat AND (h.until IS NULL OR h.until > " + now + ") AND " + which + ")"
}

// SettleNotice stores what became of sending revision rev under a claim, and
// the ids of the messages it became so far, if they are several. If the notice
// has a later revision by now, that text stays queued, unless the address is
// dead. pulse.ErrFenced when the claim is not held any more: another sender
// has the notice, or had.
func (s *Store) SettleNotice(ctx context.Context, token pulse.ClaimToken, n pulse.Notice, rev int, parts []string) error {
	if err := pulse.NoticeTransitions.Check(pulse.NoticeSending, n.Status); err != nil {
		return err
	}
	return s.write(ctx, "settle notification", func(ctx context.Context, w *work) error {
		next, sent := w.orNow(n.NextAt), stamp{}
		if n.Status == pulse.NoticeSent {
			next, sent = at(w.at), w.orNow(n.SentAt)
		}
		settled, err := rows(w.db.NewRaw(`UPDATE notifications SET
			status = CASE WHEN revision > ? AND NOT ? THEN 'queued' ELSE ? END,
			attempts = CASE WHEN revision > ? AND ? THEN 0 ELSE ? END,
			external_id = ?, next_at = ?, sent_at = coalesce(?, sent_at), last_error = ?, lease_until = NULL, claim_token = NULL
			WHERE id = ? AND status = 'sending' AND claim_token = ?`,
			rev, n.Status == pulse.NoticeDead, text(n.Status), rev, n.Status == pulse.NoticeSent, n.Attempts,
			opt(n.ExternalID), next, sent, text(n.LastError), uid(n.ID), text(token)).Exec(ctx))
		if err != nil {
			return err
		}
		if settled == 0 {
			return pulse.ErrFenced
		}
		if err := w.moveNotice(ctx, n); err != nil {
			return err
		}
		w.wake(pulse.TopicNotices)
		return w.putParts(ctx, n, parts)
	})
}

// putParts keeps which messages a notice became, beyond the first, whose id
// is with the notice itself.
func (w *work) putParts(ctx context.Context, n pulse.Notice, parts []string) error {
	for i, id := range parts {
		if i == 0 {
			continue
		}
		_, err := w.db.NewRaw("INSERT INTO notification_parts (notification_id, part, platform, chat, external_id) VALUES (?, ?, ?, ?, ?)"+
			" ON CONFLICT (notification_id, part) DO NOTHING", uid(n.ID), i, text(n.Address.Platform), text(n.Address.Chat), text(id)).Exec(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// NoticeParts answers the ids of the messages a notice became so far, in
// their order.
func (s *Store) NoticeParts(ctx context.Context, id pulse.NoticeID) ([]string, error) {
	var out []string
	err := s.view(ctx, "read parts of a notification", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT external_id FROM (SELECT 0 AS part, external_id FROM notifications WHERE id = ? AND external_id IS NOT NULL"+
			" UNION ALL SELECT part, external_id FROM notification_parts WHERE notification_id = ?) p ORDER BY part", uid(id), uid(id)).Scan(ctx, &out)
	})
	return out, err
}

// SessionStatus answers how a session stands: pulse.ErrNone if there is none.
func (s *Store) SessionStatus(ctx context.Context, id pulse.SessionID) (pulse.SessionStatus, error) {
	var status string
	err := s.view(ctx, "read status of a session", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewRaw("SELECT status FROM pulse_sessions WHERE id = ?", uid(id)).Scan(ctx, &status), pulse.ErrNone)
	})
	return pulse.SessionStatus(status), err
}

// moveNotice follows a chat that got a new address, unless the new one has a
// message in that slot already. The message it replies to stayed behind.
func (w *work) moveNotice(ctx context.Context, n pulse.Notice) error {
	_, err := w.db.NewRaw(`UPDATE notifications SET chat = ?, thread = ?, reply_to = CASE WHEN chat <> ? THEN '' ELSE reply_to END WHERE id = ? AND (chat <> ? OR thread <> ?)
		AND NOT EXISTS (SELECT 1 FROM notifications o WHERE o.platform = notifications.platform AND o.chat = ? AND o.thread = ? AND o.slot = notifications.slot)`,
		text(n.Address.Chat), text(n.Address.Thread), text(n.Address.Chat), uid(n.ID), text(n.Address.Chat), text(n.Address.Thread),
		text(n.Address.Chat), text(n.Address.Thread)).Exec(ctx)
	return err
}

// NextNoticeAt answers when the next notice comes due, zero if none will.
func (s *Store) NextNoticeAt(ctx context.Context) (time.Time, error) {
	var next stamp
	err := s.view(ctx, "find next notification", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT min(at) FROM (SELECT min(next_at) AS at FROM notifications WHERE status = 'queued'"+
			" UNION ALL SELECT min(lease_until) FROM notifications WHERE status = 'sending') due").Scan(ctx, &next)
	})
	return next.Time, err
}

// SessionByMessage finds what a message that was sent is about, whichever part
// of a long one it is; pulse.ErrNone.
func (s *Store) SessionByMessage(ctx context.Context, a pulse.Address, externalID string) (pulse.SessionID, pulse.GateID, error) {
	var row struct{ SessionID, GateID uid }
	if externalID == "" {
		return "", "", pulse.ErrNone
	}
	err := s.view(ctx, "find message", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewRaw("SELECT session_id, gate_id FROM (SELECT session_id, gate_id, created_at FROM notifications WHERE platform = ? AND chat = ? AND external_id = ?"+
			" UNION ALL SELECT n.session_id, n.gate_id, n.created_at FROM notification_parts p JOIN notifications n ON n.id = p.notification_id"+
			" WHERE p.platform = ? AND p.chat = ? AND p.external_id = ?) m WHERE session_id IS NOT NULL ORDER BY created_at DESC LIMIT 1",
			text(a.Platform), text(a.Chat), text(externalID), text(a.Platform), text(a.Chat), text(externalID)).Scan(ctx, &row), pulse.ErrNone)
	})
	return pulse.SessionID(row.SessionID), pulse.GateID(row.GateID), err
}
