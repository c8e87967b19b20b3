package db

import (
	"context"

	"pulseloop/pulse"
)

// Reconcile puts commits on record that an attempt had saved and could not
// report, because its program was killed and nobody went on: those from one
// commit to another of a session at its end. They count as its last
// iteration's. It answers false, and changes nothing, if the session is not at
// its end or its record is not at from any more.
func (s *Store) Reconcile(ctx context.Context, id pulse.SessionID, from, to string, commits int) (bool, error) {
	if !pulse.ValidUUID(string(id)) || to == "" || from == to {
		return false, nil
	}
	done := false
	err := s.write(ctx, "put saved commits on record", func(ctx context.Context, w *work) error {
		done = false
		n, err := rows(w.db.NewRaw("UPDATE pulse_sessions SET head_commit = ?, total_commits = total_commits + ?, version = version + 1, updated_at = "+w.now(0)+
			" WHERE id = ? AND head_commit = ? AND "+atEnd, text(to), commits, uid(id), text(from)).Exec(ctx))
		if err != nil || n == 0 {
			return err
		}
		n, err = rows(w.db.NewRaw("UPDATE pulse_iterations SET commits = commits + ?, commit_hash = ? WHERE id = (SELECT id FROM pulse_iterations"+
			" WHERE session_id = ? ORDER BY run DESC, iteration_number DESC, attempt DESC LIMIT 1)", commits, text(to), uid(id)).Exec(ctx))
		if err == nil && n == 0 {
			err = pulse.NotFound("session "+string(id)+" has commits and no iteration", "")
		}
		done = err == nil
		return err
	})
	return done, err
}
