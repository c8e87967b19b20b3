package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

// HoldChat keeps everything for a chat back (with edits: only edits of what is
// there) until a time, or, when that is zero, until ReleaseChat. A later end
// replaces an earlier one.
func (s *Store) HoldChat(ctx context.Context, a pulse.Address, edits bool, until time.Time, reason string) error {
	return s.write(ctx, "hold chat", func(ctx context.Context, w *work) error {
		_, err := w.db.NewRaw("INSERT INTO chat_holds (platform, chat, edits, until, reason, since) VALUES (?, ?, ?, ?, ?, ?)"+
			" ON CONFLICT (platform, chat, edits) DO UPDATE SET until = EXCLUDED.until, reason = EXCLUDED.reason,"+
			" since = CASE WHEN chat_holds.until IS NULL THEN chat_holds.since ELSE EXCLUDED.since END"+
			" WHERE EXCLUDED.until IS NULL OR chat_holds.until < EXCLUDED.until",
			text(a.Platform), text(a.Chat), edits, at(until), text(reason), at(w.at)).Exec(ctx)
		return err
	})
}

// ReleaseChat ends a hold without an end: somebody is there again. It answers
// whether there was one.
func (s *Store) ReleaseChat(ctx context.Context, a pulse.Address) (bool, error) {
	const held = " FROM chat_holds WHERE until IS NULL AND platform = ? AND chat = ?"
	var n int64
	err := s.view(ctx, "look for a held chat", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT count(*)"+held, text(a.Platform), text(a.Chat)).Scan(ctx, &n)
	})
	if err != nil || n == 0 {
		return false, err
	}
	err = s.write(ctx, "release chat", func(ctx context.Context, w *work) error {
		var err error
		n, err = rows(w.db.NewRaw("DELETE"+held, text(a.Platform), text(a.Chat)).Exec(ctx))
		if n > 0 {
			w.wake(pulse.TopicNotices)
		}
		return err
	})
	return n > 0, err
}

// HeldChats says which chats refuse messages until somebody writes there, and
// in which words.
func (s *Store) HeldChats(ctx context.Context) (map[pulse.Address]string, error) {
	var out []struct{ Platform, Chat, Reason string }
	err := s.view(ctx, "list held chats", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT platform, chat, reason FROM chat_holds WHERE until IS NULL").Scan(ctx, &out)
	})
	held := make(map[pulse.Address]string, len(out))
	for _, h := range out {
		held[pulse.Address{Platform: pulse.Platform(h.Platform), Chat: h.Chat}] = h.Reason
	}
	return held, err
}

// ExpireHeld ends the notices of these kinds from before a time in chats that
// are held without an end, and answers how many there were. Holds whose time
// is over are forgotten by the way.
func (s *Store) ExpireHeld(ctx context.Context, kinds []pulse.NoticeKind, before time.Time) (int, error) {
	var n int64
	err := s.view(ctx, "look for held chats", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT count(*) FROM chat_holds").Scan(ctx, &n)
	})
	if err != nil || n == 0 {
		return 0, err // nearly always
	}
	err = s.write(ctx, "expire held notifications", func(ctx context.Context, w *work) error {
		if _, err := w.db.NewRaw("DELETE FROM chat_holds WHERE until <= " + w.now(0)).Exec(ctx); err != nil {
			return err
		}
		var err error
		n, err = rows(w.db.NewRaw("UPDATE notifications SET status = CASE WHEN kind = 'progress' THEN 'dropped' ELSE 'dead' END, last_error = 'nobody was there: ' || "+
			"(SELECT h.reason FROM chat_holds h WHERE h.until IS NULL AND h.platform = notifications.platform AND h.chat = notifications.chat)"+
			" WHERE status = 'queued' AND kind IN (?) AND created_at < ? AND EXISTS (SELECT 1 FROM chat_holds h"+
			" WHERE h.until IS NULL AND h.platform = notifications.platform AND h.chat = notifications.chat)", bun.List(texts(kinds)), at(before)).Exec(ctx))
		return err
	})
	return int(n), err
}
