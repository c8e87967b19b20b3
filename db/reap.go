package db

import (
	"context"

	"pulseloop/pulse"
)

// reapBatch bounds one call: what is left comes with the next tick.
const reapBatch = 200

type overdue struct{ task, token, session, iteration string }

// Reap returns tasks whose lease has ended to the queue, or, after their last
// attempt, marks them dead, and makes their sessions due. It answers how many
// of each.
func (s *Store) Reap(ctx context.Context) (requeued, dead int, err error) {
	found, err := s.overdue(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, o := range found {
		var status pulse.TaskStatus
		err := s.queue(ctx, "reap task", func(ctx context.Context, w *work) (err error) {
			status, err = w.reap(ctx, o)
			return err
		})
		if err != nil {
			return requeued, dead, err
		}
		switch status {
		case pulse.TaskQueued:
			requeued++
		case pulse.TaskDead:
			dead++
		}
	}
	return requeued, dead, nil
}

func (s *Store) overdue(ctx context.Context) ([]overdue, error) {
	var out []overdue
	err := s.queueOne(ctx, "find ended leases", func(ctx context.Context, w *work) error {
		out = nil
		found, err := w.raw.QueryContext(ctx, "SELECT CAST(id AS text), coalesce(claim_token, ''), coalesce(CAST(session_id AS text), ''), coalesce(CAST(iteration_id AS text), '')"+
			" FROM inbox_tasks WHERE status IN ('claimed', 'running') AND lease_until <= "+w.clock(0)+" ORDER BY lease_until LIMIT $1", reapBatch)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var o overdue
			if err := found.Scan(&o.task, &o.token, &o.session, &o.iteration); err != nil {
				return err
			}
			out = append(out, o)
		}
		return found.Err()
	})
	return out, err
}

// reap ends one claim, unless it was renewed or finished meanwhile.
func (w *work) reap(ctx context.Context, o overdue) (pulse.TaskStatus, error) {
	if err := w.stir(ctx, o.session); err != nil {
		return "", err
	}
	var status pulse.TaskStatus
	now := w.clock(0)
	row := w.raw.QueryRowContext(ctx, "UPDATE inbox_tasks SET"+
		" status = CASE WHEN max_attempts > 0 AND attempt >= max_attempts THEN 'dead' ELSE 'queued' END,"+
		" ended_at = CASE WHEN max_attempts > 0 AND attempt >= max_attempts THEN "+now+" END,"+unclaimed+
		" WHERE id = $1 AND coalesce(claim_token, '') = $2 AND status IN ('claimed', 'running') AND lease_until <= "+now+" RETURNING status", o.task, o.token)
	if err := none(row.Scan(&status), nil); err != nil || status == "" {
		return "", err
	}
	w.wake(pulse.TopicTasks)
	if err := w.endTurns(ctx, o.session, o.iteration); err != nil {
		return "", err
	}
	if status == pulse.TaskDead {
		return status, nil
	}
	return status, w.unstart(ctx, o.iteration)
}
