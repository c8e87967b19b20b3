package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	some, err := s.ClaimMany(ctx, daemon, routes, 1, lease)
	if err != nil {
		return pulse.Claim{}, err
	}
	return some[0], nil
}

// maxClaimed bounds one call of ClaimMany, which holds all it takes in one
// transaction.
const maxClaimed = 1000

// ClaimMany is Claim for up to n tasks at once, the most urgent first, each
// with a token of its own. pulse.ErrNone if there is none at all; fewer than
// n say that there may be none left.
func (s *Store) ClaimMany(ctx context.Context, daemon pulse.DaemonID, routes []string, n int, lease time.Duration) ([]pulse.Claim, error) {
	if len(routes) == 0 || n < 1 {
		return nil, pulse.ErrNone
	}
	c := claiming{daemon: clean(string(daemon)), lease: lease, tokens: make([]string, 0, min(n, maxClaimed))}
	for range cap(c.tokens) {
		c.tokens = append(c.tokens, pulse.NewUUID(s.now()))
	}
	var err error
	if c.routes, err = encode(slices.Compact(slices.Sorted(slices.Values(routes)))); err != nil {
		return nil, fmt.Errorf("claim task: %w", err)
	}
	if !s.pg {
		return s.claimLite(ctx, c)
	}
	// A claimer holds the heads of all its routes for a moment, and sees only
	// what was queued before it looked. So "none" is asked about again.
	for range claimTries {
		some, err := s.claimPostgres(ctx, c)
		if !errors.Is(err, pulse.ErrNone) || !s.anyQueued(ctx, c.routes) {
			return some, err
		}
	}
	return nil, pulse.ErrNone
}

const claimTries = 4

// claiming is what is asked of the queue: as many tasks as there are tokens.
type claiming struct {
	daemon string
	routes string // JSON: the planner's guess of their number is always the same, so a plan can be kept
	tokens []string
	lease  time.Duration
}

func (s *Store) anyQueued(ctx context.Context, routes string) bool {
	var queued bool
	err := s.queueOne(ctx, "look for queued tasks", func(ctx context.Context, w *work) error {
		return w.raw.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM json_array_elements_text($1::json) r (route)"+
			" JOIN inbox_tasks q ON q.route = r.route AND q.status = 'queued')", routes).Scan(&queued)
	})
	return err == nil && queued
}

// claimPostgres claims in one statement.
func (s *Store) claimPostgres(ctx context.Context, c claiming) (out []pulse.Claim, err error) {
	err = s.queueOne(ctx, "claim task", func(ctx context.Context, w *work) (err error) {
		out, err = w.claims(ctx, c, c.query(w.clock(c.lease)), c.arguments()...)
		return err
	})
	if s.unanswered(err) {
		err = s.ask(ctx, err, func(ctx context.Context) (err error) {
			// By the index of leases: few tasks are in hand.
			out, err = s.work().on(poolConn(s.claims)).claims(ctx, c, "SELECT "+claimColumns+
				" FROM inbox_tasks WHERE claim_token = ANY($1::text[]) AND status IN ('claimed', 'running')", c.tokens)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

const claimed = "UPDATE inbox_tasks SET status = 'claimed', claimed_by = $2, attempt = attempt + 1, claims = claims + 1," +
	" started_at = NULL, last_sign = NULL, phase = '', lease_until = "

// query is the text of the claim until a moment. The number of tasks is a
// part of it, because the plan depends on it.
func (c claiming) query(until string) string {
	if len(c.tokens) == 1 {
		return claimed + until + ", claim_token = $3 WHERE id = (" + fmt.Sprintf(pickPostgres, 1) + ") RETURNING " + claimColumns
	}
	// The array has the tasks found by their key, whatever is believed of
	// the size of the table.
	return "WITH picked AS MATERIALIZED (SELECT array_agg(p.id) AS ids FROM (" + fmt.Sprintf(pickPostgres, len(c.tokens)) + ") p) " +
		claimed + until + ", claim_token = ($3::text[])[array_position((SELECT ids FROM picked), id)]" +
		" WHERE id = ANY((SELECT ids FROM picked)::uuid[]) RETURNING " + claimColumns
}

func (c claiming) arguments() []any {
	if len(c.tokens) == 1 {
		return []any{c.routes, c.daemon, c.tokens[0]}
	}
	return []any{c.routes, c.daemon, c.tokens}
}

// claimLite claims one after the other in one commit: the file has one
// writer, so nothing is won by one statement.
func (s *Store) claimLite(ctx context.Context, c claiming) ([]pulse.Claim, error) {
	var out []pulse.Claim
	err := s.write(ctx, "claim task", func(ctx context.Context, w *work) error {
		out = nil
		for _, token := range c.tokens {
			task := taskRow{Status: text(pulse.TaskClaimed), ClaimedBy: opt(c.daemon)}
			err := scanClaim(w.raw.QueryRowContext(ctx, claimed+w.clock(c.lease)+", claim_token = $3 WHERE id = ("+pickLite+") RETURNING "+claimColumns, c.routes, c.daemon, token), &task)
			if err != nil {
				return none(err, nil)
			}
			out = append(out, pulse.Claim{Task: task.value(), Token: pulse.ClaimToken(token)})
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = pulse.ErrNone
	}
	return out, err
}

// claims runs a statement that answers claimed tasks.
func (w *work) claims(ctx context.Context, c claiming, query string, args ...any) ([]pulse.Claim, error) {
	if len(c.tokens) == 1 { // not as rows: it may be sent again
		task := taskRow{Status: text(pulse.TaskClaimed), ClaimedBy: opt(c.daemon)}
		if err := scanClaim(w.raw.QueryRowContext(ctx, query, args...), &task); err != nil {
			return nil, none(err, pulse.ErrNone)
		}
		return []pulse.Claim{{Task: task.value(), Token: pulse.ClaimToken(task.ClaimToken)}}, nil
	}
	found, err := w.raw.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	out := make([]pulse.Claim, 0, len(c.tokens))
	for found.Next() {
		task := taskRow{Status: text(pulse.TaskClaimed), ClaimedBy: opt(c.daemon)}
		if err := scanClaim(found, &task); err != nil {
			return nil, err
		}
		out = append(out, pulse.Claim{Task: task.value(), Token: pulse.ClaimToken(task.ClaimToken)})
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, pulse.ErrNone
	}
	slices.SortFunc(out, func(a, b pulse.Claim) int { return moreUrgent(a.Task, b.Task) })
	return out, nil
}

func moreUrgent(a, b pulse.Task) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

// The head of each route, which the index gives without sorting, then the
// first of these: however much other work is queued, it is not looked at.
const (
	pickLite = `SELECT t.id FROM json_each($1) r JOIN inbox_tasks t ON t.id = (SELECT q.id FROM inbox_tasks q
		WHERE q.status = 'queued' AND q.route = r.value ORDER BY q.priority DESC, q.created_at, q.id LIMIT 1)
		ORDER BY t.priority DESC, t.created_at, t.id LIMIT 1`
	pickPostgres = `SELECT t.id FROM json_array_elements_text($1::json) r (route) CROSS JOIN LATERAL (
		SELECT q.id, q.priority, q.created_at FROM inbox_tasks q WHERE q.status = 'queued' AND q.route = r.route
		ORDER BY q.priority DESC, q.created_at, q.id LIMIT %[1]d FOR UPDATE SKIP LOCKED) t
		ORDER BY t.priority DESC, t.created_at, t.id LIMIT %[1]d`
)

// claimColumns are what a claimer does not know of its task already.
const claimColumns = "id, kind, route, priority, source, session_id, iteration_id, content, media_context, spec, attempt, max_attempts," +
	" claim_token, lease_until, created_at"

func scanClaim(row rawRow, t *taskRow) error {
	var id, session, iteration key
	err := row.Scan(&id, (*string)(&t.Kind), (*string)(&t.Route), &t.Priority, (*string)(&t.Source), &session, &iteration,
		(*string)(&t.Content), &t.MediaContext, &t.Spec, &t.Attempt, &t.MaxAttempts, (*string)(&t.ClaimToken), &t.LeaseUntil, &t.CreatedAt)
	t.ID, t.SessionID, t.IterationID = uid(id), uid(session), uid(iteration)
	return err
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
