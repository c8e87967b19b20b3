package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"pulseloop/pulse"
)

// live is the condition under which a claim's writes count: the token is the
// one in the row, the task is in hand, and the lease has not ended.
func live(w *work) string {
	return " claim_token = $2 AND status IN ('claimed', 'running') AND lease_until > " + w.clock(0)
}

// Claim takes the most urgent queued task of the routes, gives it a fresh
// token and a lease, and counts the attempt. pulse.ErrNone if there is none.
func (s *Store) Claim(ctx context.Context, daemon pulse.DaemonID, routes []string, lease time.Duration) (pulse.Claim, error) {
	if len(routes) == 0 {
		return pulse.Claim{}, pulse.ErrNone
	}
	list, err := encode(routes)
	if err != nil {
		return pulse.Claim{}, fmt.Errorf("claim task: %w", err)
	}
	// A claimer holds the heads of all its routes for a moment, and sees only
	// what was queued before it looked. So "none" is asked about again.
	for range claimTries {
		claim, err := s.claimOnce(ctx, daemon, list, lease)
		if !errors.Is(err, pulse.ErrNone) || !s.pg || !s.anyQueued(ctx, list) {
			return claim, err
		}
	}
	return pulse.Claim{}, pulse.ErrNone
}

const claimTries = 4

func (s *Store) anyQueued(ctx context.Context, routes string) bool {
	var queued bool
	err := s.queueOne(ctx, "look for queued tasks", func(ctx context.Context, w *work) error {
		return w.raw.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM json_array_elements_text($1::json) r (route)"+
			" JOIN inbox_tasks q ON q.route = r.route AND q.status = 'queued')", routes).Scan(&queued)
	})
	return err == nil && queued
}

func (s *Store) claimOnce(ctx context.Context, daemon pulse.DaemonID, routes string, lease time.Duration) (pulse.Claim, error) {
	token := pulse.NewUUID(s.now())
	var task taskRow
	err := s.queueOne(ctx, "claim task", func(ctx context.Context, w *work) error {
		task = taskRow{}
		pick := pickLite
		if w.pg {
			pick = pickPostgres
		}
		row := w.raw.QueryRowContext(ctx, "UPDATE inbox_tasks SET status = 'claimed', claim_token = $2, claimed_by = $3,"+
			" attempt = attempt + 1, claims = claims + 1, started_at = NULL, last_sign = NULL, phase = '', lease_until = "+w.clock(lease)+
			" WHERE id = ("+pick+") RETURNING "+claimColumns, routes, token, clean(string(daemon)))
		return none(scanClaim(row, &task), pulse.ErrNone)
	})
	if s.unanswered(err) {
		err = s.ask(ctx, err, func(ctx context.Context) error {
			task = taskRow{}
			// By the index of leases: few tasks are in hand.
			row := s.claims.QueryRowContext(ctx, "SELECT "+claimColumns+" FROM inbox_tasks WHERE claim_token = $1 AND status IN ('claimed', 'running')", token)
			return none(scanClaim(row, &task), pulse.ErrNone)
		})
	}
	if err != nil {
		return pulse.Claim{}, err
	}
	return pulse.Claim{Task: task.value(), Token: pulse.ClaimToken(token)}, nil
}

// The head of each route, which the index gives without sorting, then the
// first of these: however much other work is queued, it is not looked at.
const (
	pickLite = `SELECT t.id FROM json_each($1) r JOIN inbox_tasks t ON t.id = (SELECT q.id FROM inbox_tasks q
		WHERE q.status = 'queued' AND q.route = r.value ORDER BY q.priority DESC, q.created_at, q.id LIMIT 1)
		ORDER BY t.priority DESC, t.created_at, t.id LIMIT 1`
	pickPostgres = `SELECT t.id FROM json_array_elements_text($1::json) r (route) CROSS JOIN LATERAL (
		SELECT q.id, q.priority, q.created_at FROM inbox_tasks q WHERE q.status = 'queued' AND q.route = r.route
		ORDER BY q.priority DESC, q.created_at, q.id LIMIT 1 FOR UPDATE SKIP LOCKED) t
		ORDER BY t.priority DESC, t.created_at, t.id LIMIT 1`
)

const claimColumns = "id, kind, route, priority, status, source, coalesce(CAST(session_id AS text), ''), coalesce(CAST(iteration_id AS text), '')," +
	" content, media_context, spec, attempt, claims, max_attempts, claim_token, claimed_by, lease_until, created_at"

func scanClaim(row *sql.Row, t *taskRow) error {
	return row.Scan(&t.ID, &t.Kind, &t.Route, &t.Priority, &t.Status, &t.Source, &t.SessionID, &t.IterationID,
		&t.Content, &t.MediaContext, &t.Spec, &t.Attempt, &t.Claims, &t.MaxAttempts, &t.ClaimToken, &t.ClaimedBy, &t.LeaseUntil, &t.CreatedAt)
}

// Heartbeat renews the lease. cancelled is true when the task was cancelled.
// An unheld claim answers pulse.ErrFenced.
func (s *Store) Heartbeat(ctx context.Context, f pulse.Fence, lease time.Duration) (cancelled bool, err error) {
	if !validFence(f) {
		return false, pulse.ErrFenced
	}
	err = s.queueOne(ctx, "renew lease", func(ctx context.Context, w *work) error {
		cancelled = false
		n, err := rows(w.raw.ExecContext(ctx, "UPDATE inbox_tasks SET lease_until = "+w.clock(lease)+" WHERE id = $1 AND"+live(w), string(f.TaskID), string(f.Token)))
		if err != nil || n > 0 {
			return err
		}
		held, err := w.held(ctx, f)
		if err != nil {
			return err
		}
		if cancelled = held.status == pulse.TaskCancelled; cancelled {
			return nil
		}
		return pulse.ErrFenced
	})
	return cancelled, s.late("heartbeat", f, err)
}

// late logs a write that its fence kept out: a daemon that lost its claim is
// still at work.
func (s *Store) late(what string, f pulse.Fence, err error) error {
	if errors.Is(err, pulse.ErrFenced) {
		s.log.Warn("a daemon's late write was kept out", "write", what, "task", clip(string(f.TaskID), 60))
	}
	return err
}

// validFence spares the database what cannot be one of its fences.
func validFence(f pulse.Fence) bool {
	return pulse.ValidUUID(string(f.TaskID)) && pulse.ValidUUID(string(f.Token))
}

// held is what a fence finds, read without a lock: which session has to be
// locked before the task.
type held struct {
	session, iteration string
	status             pulse.TaskStatus
	claims             int
}

func (w *work) held(ctx context.Context, f pulse.Fence) (held, error) {
	var h held
	err := w.raw.QueryRowContext(ctx, "SELECT coalesce(CAST(session_id AS text), ''), coalesce(CAST(iteration_id AS text), ''), status, claims"+
		" FROM inbox_tasks WHERE id = $1 AND claim_token = $2", string(f.TaskID), string(f.Token)).Scan(&h.session, &h.iteration, &h.status, &h.claims)
	return h, none(err, pulse.ErrFenced)
}

// stir makes the session due and every decision on it that is under way
// stale. It comes before the task's row is locked.
func (w *work) stir(ctx context.Context, session string) error {
	if session == "" {
		return nil
	}
	now := w.clock(0)
	w.wake(pulse.TopicSessions)
	_, err := w.raw.ExecContext(ctx, "UPDATE pulse_sessions SET due_at = "+now+", updated_at = "+now+", version = version + 1 WHERE id = $1", session)
	return err
}

// Running marks the claimed task and its iteration as running.
func (s *Store) Running(ctx context.Context, f pulse.Fence) error {
	if !validFence(f) {
		return pulse.ErrFenced
	}
	err := s.queue(ctx, "mark task as running", func(ctx context.Context, w *work) error {
		h, err := w.held(ctx, f)
		if err != nil {
			return err
		}
		if err := w.stir(ctx, h.session); err != nil {
			return err
		}
		now := w.clock(0)
		n, err := rows(w.raw.ExecContext(ctx, "UPDATE inbox_tasks SET status = 'running', started_at = coalesce(started_at, "+now+"),"+
			" last_sign = coalesce(last_sign, "+now+") WHERE id = $1 AND"+live(w), string(f.TaskID), string(f.Token)))
		if err != nil {
			return err
		}
		if n == 0 {
			return pulse.ErrFenced
		}
		if h.iteration == "" {
			return nil
		}
		_, err = w.raw.ExecContext(ctx, "UPDATE pulse_iterations SET status = 'running', started_at = coalesce(started_at, "+now+
			") WHERE id = $1 AND status IN ('dispatched', 'running')", h.iteration)
		return err
	})
	return s.late("running", f, err)
}

// Finish stores the result as complete (r.Error == "") or failed, and wakes
// the session. Repeating it with the same token is harmless.
func (s *Store) Finish(ctx context.Context, f pulse.Fence, r pulse.TaskResult) error {
	if !validFence(f) {
		return pulse.ErrFenced
	}
	result, err := encode(cleanResult(r))
	if err != nil {
		return fmt.Errorf("finish task: %w", err)
	}
	status := pulse.TaskComplete
	if r.Error != "" {
		status = pulse.TaskFailed
	}
	if s.pg && s.finishAtOnce(ctx, f, status, result) {
		return nil
	}
	err = s.queue(ctx, "finish task", func(ctx context.Context, w *work) error {
		h, err := w.held(ctx, f)
		if err != nil {
			return err
		}
		if h.status == pulse.TaskComplete || h.status == pulse.TaskFailed {
			return nil
		}
		if err := w.stir(ctx, h.session); err != nil {
			return err
		}
		n, err := rows(w.raw.ExecContext(ctx, "UPDATE inbox_tasks SET status = $3, result = $4, ended_at = "+w.clock(0)+" WHERE id = $1 AND"+live(w),
			string(f.TaskID), string(f.Token), string(status), result))
		if err != nil {
			return err
		}
		if n == 0 {
			return pulse.ErrFenced
		}
		w.wake(pulse.TopicTasks)
		return nil
	})
	if errors.Is(err, pulse.ErrFenced) && s.finished(ctx, f) {
		return nil // the same call won meanwhile, over another connection
	}
	return s.late("finish", f, err)
}

// finishAtOnce does on PostgreSQL what Finish does, in one statement instead
// of a transaction of five: the way from daemon to database and back is most
// of what it costs. It answers false when it wrote nothing, whatever the
// reason: Finish then finds out. The session's row is locked before the
// task's, as everywhere, because the task's update waits for the count.
func (s *Store) finishAtOnce(ctx context.Context, f pulse.Fence, status pulse.TaskStatus, result string) bool {
	var n int
	err := s.queueOne(ctx, "finish task", func(ctx context.Context, w *work) error {
		now, alive := w.clock(0), live(w)
		// A session that was stirred for a task that turned out to be lost
		// divides by zero, which takes the stirring back.
		return w.raw.QueryRowContext(ctx, "WITH mine AS MATERIALIZED (SELECT session_id FROM inbox_tasks WHERE id = $1 AND"+alive+"),"+
			" stirred AS (UPDATE pulse_sessions SET due_at = "+now+", updated_at = "+now+", version = version + 1"+
			" WHERE id = (SELECT session_id FROM mine) RETURNING 1),"+
			" done AS (UPDATE inbox_tasks SET status = $3, result = $4, ended_at = "+now+" WHERE id = $1 AND"+alive+
			" AND (SELECT count(*) FROM stirred) >= 0 RETURNING 1)"+
			" SELECT CASE WHEN s.n > d.n THEN 1 / d.n ELSE d.n + s.n END FROM (SELECT count(*) AS n FROM done) d, (SELECT count(*) AS n FROM stirred) s",
			string(f.TaskID), string(f.Token), string(status), result).Scan(&n)
	})
	if err != nil || n == 0 {
		return false
	}
	topics := topicSet{pulse.TopicTasks: {}}
	if n > 1 {
		topics[pulse.TopicSessions] = struct{}{}
	}
	s.announce(topics)
	return true
}

func (s *Store) finished(ctx context.Context, f pulse.Fence) bool {
	var done bool
	err := s.queueOne(ctx, "look at task", func(ctx context.Context, w *work) error {
		h, err := w.held(ctx, f)
		done = h.status == pulse.TaskComplete || h.status == pulse.TaskFailed
		return err
	})
	return err == nil && done
}

func cleanResult(r pulse.TaskResult) pulse.TaskResult {
	r.FinalText, r.Error, r.Hint = clean(r.FinalText), clean(r.Error), clean(r.Hint)
	return r
}

// Release hands the task back to the queue without counting the attempt.
func (s *Store) Release(ctx context.Context, f pulse.Fence) error {
	if !validFence(f) {
		return pulse.ErrFenced
	}
	err := s.queue(ctx, "hand task back", func(ctx context.Context, w *work) error {
		h, err := w.held(ctx, f)
		if err != nil {
			return err
		}
		if err := w.stir(ctx, h.session); err != nil {
			return err
		}
		n, err := rows(w.raw.ExecContext(ctx, "UPDATE inbox_tasks SET status = 'queued', attempt = attempt - 1,"+unclaimed+" WHERE id = $1 AND"+live(w),
			string(f.TaskID), string(f.Token)))
		if err != nil {
			return err
		}
		if n == 0 {
			return pulse.ErrFenced
		}
		w.wake(pulse.TopicTasks)
		if err := w.endTurns(ctx, h.session, h.iteration); err != nil {
			return err
		}
		return w.unstart(ctx, h.iteration)
	})
	return s.late("release", f, err)
}

const unclaimed = " claim_token = NULL, lease_until = NULL, started_at = NULL, last_sign = NULL, phase = ''"

// unstart puts an iteration whose task is queued again back to dispatched.
func (w *work) unstart(ctx context.Context, iteration string) error {
	if iteration == "" {
		return nil
	}
	_, err := w.raw.ExecContext(ctx, "UPDATE pulse_iterations SET status = 'dispatched', started_at = NULL WHERE id = $1 AND status = 'running'", iteration)
	return err
}
