package db

import (
	"context"
	"slices"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

// Append stores a batch of what the agent does, in one transaction. The claim
// decides which session it belongs to, whatever the batch says. A batch may
// come again, alone or with what has gathered since, when the answer to it was
// lost: what is there already is not stored twice.
func (s *Store) Append(ctx context.Context, f pulse.Fence, b pulse.StreamBatch) error {
	if !validFence(f) {
		return pulse.ErrFenced
	}
	if b.Empty() {
		return nil
	}
	err := s.write(ctx, "store agent's work", func(ctx context.Context, w *work) error {
		h, err := w.held(ctx, f)
		if err != nil {
			return err
		}
		// Events first: they lock the session, which comes before the task.
		events := slices.Clone(b.Events)
		for i := range events {
			events[i].SessionID = pulse.SessionID(h.session)
		}
		if s.doubts.about(f.Token) {
			if events, err = w.unseen(ctx, h.session, events); err != nil {
				return err
			}
		}
		if err := w.appendEvents(ctx, events); err != nil {
			return err
		}
		// The sign counts by this clock, not by the daemon's: the two need not agree.
		sign := ""
		if !b.Sign.IsZero() {
			sign = ", last_sign = " + w.now(0)
		}
		n, err := rows(w.db.NewRaw("UPDATE inbox_tasks SET phase = CASE WHEN ? THEN ? ELSE phase END"+sign+" WHERE id = ? AND claim_token = ?"+
			" AND status IN ('claimed', 'running') AND lease_until > "+w.now(0), sign != "", text(b.Phase), uid(f.TaskID), text(f.Token)).Exec(ctx))
		if err != nil {
			return err
		}
		if n == 0 {
			return pulse.ErrFenced
		}
		return w.appendBatch(ctx, f, h, b)
	})
	s.doubts.settle(f.Token, err)
	return s.late("append", f, err)
}

func (w *work) appendBatch(ctx context.Context, f pulse.Fence, h held, b pulse.StreamBatch) error {
	if h.session == "" {
		return nil
	}
	var project uid
	turns := slices.Clone(b.Turns)
	if len(turns) > 0 {
		if err := w.db.NewRaw("SELECT project_id FROM pulse_sessions WHERE id = ?", uid(h.session)).Scan(ctx, &project); err != nil {
			return err
		}
	}
	for i := range turns {
		turns[i].SessionID, turns[i].ProjectID = pulse.SessionID(h.session), pulse.ProjectID(project)
		if turns[i].IterationID != "" || turns[i].Role == pulse.TurnAssistant {
			turns[i].IterationID = pulse.IterationID(h.iteration)
		}
	}
	if err := w.putTurns(ctx, turns); err != nil {
		return err
	}
	ids := touched(turns, b)
	if err := w.ownTurns(ctx, h.session, ids); err != nil {
		return err
	}
	if err := w.putBlocks(ctx, b.Messages, b.Tools, b.Thoughts); err != nil {
		return err
	}
	if err := w.putDeltas(ctx, f, h, b.Deltas); err != nil {
		return err
	}
	return w.indexTurns(ctx, ids)
}

func touched(turns []pulse.Turn, b pulse.StreamBatch) []uid {
	seen := map[uid]bool{}
	for _, t := range turns {
		seen[uid(t.ID)] = true
	}
	for _, m := range b.Messages {
		seen[uid(m.TurnID)] = true
	}
	for _, t := range b.Tools {
		seen[uid(t.TurnID)] = true
	}
	for _, h := range b.Thoughts {
		seen[uid(h.TurnID)] = true
	}
	ids := make([]uid, 0, len(seen))
	for id := range seen {
		ids = append(ids, id)
	}
	return ids
}

// ownTurns keeps a claim from writing into the turns of another session.
func (w *work) ownTurns(ctx context.Context, session string, ids []uid) error {
	if len(ids) == 0 {
		return nil
	}
	var n int
	if err := w.db.NewRaw("SELECT count(*) FROM turns WHERE session_id = ? AND id IN (?)", uid(session), bun.List(ids)).Scan(ctx, &n); err != nil {
		return err
	}
	if n != len(ids) {
		return pulse.Invalid("a block refers to a turn that is not of this session", "store the turn first")
	}
	return nil
}

func (w *work) putDeltas(ctx context.Context, f pulse.Fence, h held, deltas []pulse.StreamDelta) error {
	if len(deltas) == 0 {
		return nil
	}
	out := make([]deltaRow, 0, len(deltas))
	for _, d := range deltas {
		out = append(out, deltaRow{SessionID: uid(h.session), TaskID: uid(f.TaskID), Attempt: h.claims, N: d.N, TurnID: uid(d.TurnID),
			Type: text(d.Type), Text: text(d.Text), At: w.orNow(d.At)})
	}
	w.wake(pulse.TopicEvents)
	_, err := w.db.NewInsert().Model(&out).On("CONFLICT DO NOTHING").Exec(ctx)
	return err
}
