package db

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

// Retention says how long what is over is kept; a zero keeps it for ever. What belongs to a session counts from the session's
// end. Sessions, iterations, tasks with their numbers, and the audit are never removed.
type Retention struct {
	Events   time.Duration // of sessions, that everybody has read
	Turns    time.Duration // with their texts, tools and thoughts, and what was cut out of them
	Prompts  time.Duration // the exact prompts; their iterations stay
	Messages time.Duration // what came in and was handled, what was sent or given up
	Deltas   time.Duration // text on its way, once its turn is over
}

// RepeatedFor is how long an update is remembered at least, whatever Retention.Messages says: a platform may deliver it again
// (Telegram for a day), and it must not have a second effect.
const RepeatedFor = 48 * time.Hour

// Purged says how many rows went, of prompts how many were emptied.
type Purged struct{ Events, Turns, Prompts, Notices, Updates, Deltas int64 }

// Any reports whether anything went.
func (p Purged) Any() bool { return p != Purged{} }

const (
	purgeRows     = 500 // of one transaction
	purgeSessions = 100 // that one transaction looks at
	// Clocks of several hosts need not agree on when a session ended, so each run begins this far before the last one's end.
	purgeOverlap = 24 * time.Hour
	purgeLock    = 7_085_720_003
	purgeMark    = "retention."
	// A purge gives way to everybody else: it rests as long as it works.
	purgeRestMin = 5 * time.Millisecond
)

// errPurging means that another process is at it.
var errPurging = errors.New("another process purges")

// Purge removes what is older than r allows, in small transactions with pauses between them, so that nobody waits for it. Of
// sessions only what belongs to those at their end goes. It may be ended at any time and goes on where it was; if another
// process purges the same database, it does nothing.
func (s *Store) Purge(ctx context.Context, r Retention) (Purged, error) {
	var p Purged
	for _, c := range []struct {
		name  string
		keep  time.Duration
		sum   *int64
		purge func(context.Context, *work, []uid) (int64, error)
	}{
		{"events", r.Events, &p.Events, purgeEvents},
		{"turns", r.Turns, &p.Turns, purgeTurns},
		{"prompts", r.Prompts, &p.Prompts, purgePrompts},
		{"messages", r.Messages, &p.Notices, purgeNotices},
	} {
		if c.keep <= 0 {
			continue
		}
		if err := s.purgeEnded(ctx, c.name, c.keep, c.sum, c.purge); err != nil {
			return p, quiet(ctx, err)
		}
	}
	if r.Messages > 0 {
		if err := s.purgeRepeatedly(ctx, "notifications", &p.Notices, "session_id IS NULL AND "+noticeOver+" AND created_at < "+s.sqlNow(-r.Messages)); err != nil {
			return p, quiet(ctx, err)
		}
		keep := max(r.Messages, RepeatedFor)
		if err := s.purgeRepeatedly(ctx, "inbound_updates", &p.Updates, "handled_at IS NOT NULL AND handled_at < "+s.sqlNow(-keep)); err != nil {
			return p, quiet(ctx, err)
		}
	}
	if r.Deltas > 0 {
		n, err := s.PurgeDeltas(ctx, s.now().Add(-r.Deltas))
		p.Deltas = n
		return p, quiet(ctx, err)
	}
	return p, nil
}

// quiet is err unless the purge ended because it should.
func quiet(ctx context.Context, err error) error {
	if errors.Is(err, errPurging) || ctx.Err() != nil {
		return nil
	}
	return err
}

// purgeEnded goes through the sessions whose end is longer ago than keep, from where the last run was.
func (s *Store) purgeEnded(ctx context.Context, name string, keep time.Duration, sum *int64, purge func(context.Context, *work, []uid) (int64, error)) error {
	from, err := s.purgedUpTo(ctx, name)
	if err != nil {
		return err
	}
	from.at = from.at.Add(-purgeOverlap)
	for {
		ids, to, err := s.endedAfter(ctx, from, keep)
		if err != nil || len(ids) == 0 {
			return err
		}
		err = s.purgeBatches(ctx, sum, func(ctx context.Context, w *work) (int64, error) {
			n, err := purge(ctx, w, ids)
			if err != nil || n >= purgeRows {
				return n, err
			}
			_, err = w.db.NewRaw("INSERT INTO settings (key, value, updated_at) VALUES (?, ?, "+w.now(0)+")"+
				" ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, updated_at = EXCLUDED.updated_at", text(purgeMark+name), text(to.String())).Exec(ctx)
			return n, err
		})
		if err != nil {
			return err
		}
		from = to
	}
}

// place is how far a purge has come among the sessions in the order of their ends.
type place struct {
	at time.Time
	id uid
}

func (p place) String() string { return fmt.Sprintf("%d %s", p.at.UnixMicro(), p.id) }

var firstPlace = place{at: time.UnixMicro(0).UTC(), id: "00000000-0000-0000-0000-000000000000"}

func (s *Store) purgedUpTo(ctx context.Context, name string) (place, error) {
	value, err := s.Setting(ctx, purgeMark+name)
	if errors.Is(err, pulse.ErrNone) {
		return firstPlace, nil
	}
	if err != nil {
		return place{}, err
	}
	micros, id, _ := strings.Cut(value, " ")
	n, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || !pulse.ValidUUID(id) {
		return firstPlace, nil // everything once more does no harm
	}
	return place{at: time.UnixMicro(n).UTC(), id: uid(id)}, nil
}

// atEnd are the states that a session leaves only if somebody wants more of it.
const atEnd = "status IN ('complete', 'failed', 'aborted')"

func (s *Store) endedAfter(ctx context.Context, from place, keep time.Duration) ([]uid, place, error) {
	var found []struct {
		ID      uid
		EndedAt stamp
	}
	err := s.view(ctx, "find ended sessions", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT id, ended_at FROM pulse_sessions WHERE ended_at IS NOT NULL AND (ended_at, id) > (?, ?) AND ended_at < "+s.sqlNow(-keep)+
			" ORDER BY ended_at, id LIMIT ?", at(from.at), from.id, purgeSessions).Scan(ctx, &found)
	})
	if err != nil || len(found) == 0 {
		return nil, from, err
	}
	ids := make([]uid, len(found))
	for i, f := range found {
		ids[i] = f.ID
	}
	last := found[len(found)-1]
	return ids, place{at: last.EndedAt.Time, id: last.ID}, nil
}

// purgeBatches repeats a transaction until it finds less than it may take.
func (s *Store) purgeBatches(ctx context.Context, sum *int64, batch func(context.Context, *work) (int64, error)) error {
	for {
		began := time.Now()
		var n int64
		err := s.write(ctx, "purge what is old", func(ctx context.Context, w *work) (err error) {
			if err := w.alonePurging(ctx); err != nil {
				return err
			}
			n, err = batch(ctx, w)
			return err
		})
		if err != nil {
			return err
		}
		*sum += n
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(purgeRestMin, time.Since(began))):
		}
		if n < purgeRows {
			return nil
		}
	}
}

// alonePurging lets one process purge at a time: two would wait for each other's rows.
func (w *work) alonePurging(ctx context.Context) error {
	if !w.pg {
		return nil
	}
	var mine bool
	if err := w.db.NewRaw("SELECT pg_try_advisory_xact_lock(?)", purgeLock).Scan(ctx, &mine); err != nil {
		return err
	}
	if !mine {
		return errPurging
	}
	return nil
}

// purgeRepeatedly deletes the rows of a table that the condition names.
func (s *Store) purgeRepeatedly(ctx context.Context, table string, sum *int64, where string) error {
	return s.purgeBatches(ctx, sum, func(ctx context.Context, w *work) (int64, error) {
		return w.deleteSome(ctx, table, "SELECT "+w.rowID("x")+" FROM "+table+" x WHERE "+where, purgeRows)
	})
}

// rowID is where a row lies, the cheapest way to it.
func (w *work) rowID(alias string) string {
	if w.pg {
		return alias + ".ctid"
	}
	return alias + ".rowid"
}

// deleteSome deletes at most so many of the rows that pick selects the places of.
func (w *work) deleteSome(ctx context.Context, table, pick string, limit int64, args ...any) (int64, error) {
	args = append(args, limit)
	if w.pg {
		return rows(w.db.NewRaw("DELETE FROM "+table+" WHERE ctid = ANY (ARRAY("+pick+" LIMIT ?))", args...).Exec(ctx))
	}
	return rows(w.db.NewRaw("DELETE FROM "+table+" WHERE rowid IN ("+pick+" LIMIT ?)", args...).Exec(ctx))
}

// stillEnded are those of the sessions that nobody has gone on with since they were listed.
const stillEnded = "(SELECT s.id FROM pulse_sessions s WHERE s.id IN (?) AND s." + atEnd + ")"

func purgeEvents(ctx context.Context, w *work, ids []uid) (int64, error) {
	return w.deleteSome(ctx, "events", "SELECT "+w.rowID("e")+" FROM pulse_sessions s JOIN events e ON e.session_id = s.id"+
		" WHERE s.id IN (?) AND s."+atEnd+" AND e.seq <= s.notify_seq", purgeRows, bun.List(ids))
}

const noticeOver = "status IN ('sent', 'dropped', 'dead')"

func purgeNotices(ctx context.Context, w *work, ids []uid) (int64, error) {
	return w.deleteSome(ctx, "notifications", "SELECT "+w.rowID("n")+" FROM notifications n WHERE n."+noticeOver+" AND n.session_id IN "+stillEnded,
		purgeRows, bun.List(ids))
}

// purgePrompts empties the prompts, which are kept twice: for the agent and for whoever asks what it was told.
func purgePrompts(ctx context.Context, w *work, ids []uid) (int64, error) {
	n, err := rows(w.db.NewRaw("UPDATE pulse_iterations SET task_content = '' WHERE id IN (SELECT i.id FROM pulse_iterations i"+
		" WHERE i.task_content <> '' AND i.session_id IN "+stillEnded+" LIMIT ?)", bun.List(ids), purgeRows).Exec(ctx))
	if err != nil || n >= purgeRows {
		return n, err
	}
	more, err := rows(w.db.NewRaw("UPDATE inbox_tasks SET content = '' WHERE id IN (SELECT k.id FROM inbox_tasks k"+
		" WHERE k.content <> '' AND k.status IN ('complete', 'failed', 'cancelled', 'dead') AND k.session_id IN "+stillEnded+" LIMIT ?)",
		bun.List(ids), purgeRows-n).Exec(ctx))
	return n + more, err
}

// purgeTurns removes what turns hold before the turns: one turn may hold thousands of pieces.
func purgeTurns(ctx context.Context, w *work, ids []uid) (int64, error) {
	var sum int64
	for _, table := range []string{"turn_messages", "turn_thoughts", "turn_tools"} {
		n, err := w.deleteSome(ctx, table, "SELECT "+w.rowID("m")+" FROM turns t JOIN "+table+" m ON m.turn_id = t.id WHERE t.session_id IN "+stillEnded,
			purgeRows-sum, bun.List(ids))
		if sum += n; err != nil || sum >= purgeRows {
			return sum, err
		}
	}
	n, err := w.purgeTurnRows(ctx, ids, purgeRows-sum)
	if sum += n; err != nil || sum >= purgeRows {
		return sum, err
	}
	_, err = w.db.NewRaw("DELETE FROM slices WHERE id IN (SELECT i.slice_id FROM pulse_iterations i WHERE i.session_id IN "+stillEnded+")", bun.List(ids)).Exec(ctx)
	return sum, err
}

func (w *work) purgeTurnRows(ctx context.Context, ids []uid, limit int64) (int64, error) {
	const ofThem = " FROM turns t WHERE t.session_id IN " + stillEnded
	if w.pg {
		return w.deleteSome(ctx, "turns", "SELECT t.ctid"+ofThem, limit, bun.List(ids))
	}
	var found []int64
	if err := w.db.NewRaw("SELECT t.rid"+ofThem+" ORDER BY t.rid LIMIT ?", bun.List(ids), limit).Scan(ctx, &found); err != nil || len(found) == 0 {
		return 0, err
	}
	if _, err := w.db.NewRaw("DELETE FROM turns_fts WHERE rowid IN (?)", bun.List(found)).Exec(ctx); err != nil {
		return 0, err
	}
	return rows(w.db.NewRaw("DELETE FROM turns WHERE rid IN (?)", bun.List(found)).Exec(ctx))
}
