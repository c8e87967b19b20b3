package db

import (
	"context"

	"pulseloop/pulse"
)

// endTurns ends the turns that an iteration's lost or cancelled claim left
// open: their daemon can write no more, so nobody else would. What they said
// stays. The session's row is locked by now.
func (w *work) endTurns(ctx context.Context, session, iteration string) error {
	if session == "" || iteration == "" {
		return nil
	}
	open, err := w.openTurns(ctx, session, iteration)
	if err != nil || len(open) == 0 {
		return err
	}
	data, err := encode(map[string]any{"role": string(pulse.TurnAssistant), "status": string(pulse.TurnFailed), "iterationId": iteration})
	if err != nil {
		return err
	}
	now := w.clock(0)
	for _, turn := range open {
		for _, step := range []struct {
			sql  string
			args []any
		}{
			{"UPDATE turns SET status = 'failed', ended_at = " + now + " WHERE id = $1", []any{turn}},
			{"UPDATE turn_tools SET status = 'failed', ended_at = " + now + " WHERE turn_id = $1 AND status = 'running'", []any{turn}},
			{"UPDATE pulse_sessions SET event_seq = event_seq + 1 WHERE id = $1", []any{session}},
			{"INSERT INTO events (session_id, seq, type, turn_id, at, data) SELECT id, event_seq, $2, $3, " + now + ", $4 FROM pulse_sessions WHERE id = $1",
				[]any{session, string(pulse.EventTurnCompleted), turn, data}},
		} {
			if _, err := w.raw.ExecContext(ctx, step.sql, step.args...); err != nil {
				return err
			}
		}
	}
	w.wake(pulse.TopicEvents)
	return nil
}

func (w *work) openTurns(ctx context.Context, session, iteration string) (open []string, err error) {
	found, err := w.raw.QueryContext(ctx, "SELECT CAST(id AS text) FROM turns WHERE session_id = $1 AND iteration_id = $2 AND status = 'streaming'", session, iteration)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var id string
		if err := found.Scan(&id); err != nil {
			return nil, err
		}
		open = append(open, id)
	}
	return open, found.Err()
}
