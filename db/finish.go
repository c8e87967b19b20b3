package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"pulseloop/pulse"
)

// Finished is a task's result as its daemon reports it.
type Finished struct {
	Fence  pulse.Fence
	Result pulse.TaskResult
}

// finish is a Finished as it is written.
type finish struct {
	Task   string          `json:"id"`
	Token  string          `json:"token"`
	Status string          `json:"state"`
	Result json.RawMessage `json:"result"`
}

func (f finish) fence() pulse.Fence {
	return pulse.Fence{TaskID: pulse.TaskID(f.Task), Token: pulse.ClaimToken(f.Token)}
}

func newFinish(f pulse.Fence, r pulse.TaskResult) (finish, error) {
	if !validFence(f) {
		return finish{}, pulse.ErrFenced
	}
	result, err := encode(cleanResult(r))
	if err != nil {
		return finish{}, fmt.Errorf("finish task: %w", err)
	}
	status := pulse.TaskComplete
	if r.Error != "" {
		status = pulse.TaskFailed
	}
	return finish{Task: string(f.TaskID), Token: string(f.Token), Status: string(status), Result: json.RawMessage(result)}, nil
}

// Finish stores the result as complete (r.Error == "") or failed, and wakes
// the session. Repeating it with the same token is harmless. On PostgreSQL,
// results that come while others are being written go together.
func (s *Store) Finish(ctx context.Context, f pulse.Fence, r pulse.TaskResult) error {
	one, err := newFinish(f, r)
	if err != nil {
		return err
	}
	if s.pg && s.results.write(ctx, s, one) {
		return nil
	}
	return s.finishAlone(ctx, one)
}

// FinishMany is Finish for many tasks in one statement, or, on SQLite, in one
// commit. The answer has an error, or nil, for each, in their order: one that
// is kept out by its fence keeps none of the others out.
func (s *Store) FinishMany(ctx context.Context, many []Finished) []error {
	errs := make([]error, len(many))
	all, index := make([]finish, 0, len(many)), make([]int, 0, len(many))
	for i, m := range many {
		var one finish
		if one, errs[i] = newFinish(m.Fence, m.Result); errs[i] == nil {
			all, index = append(all, one), append(index, i)
		}
	}
	for len(all) > 0 {
		n := min(len(all), maxFinished)
		done := s.finishSome(ctx, all[:n])
		for k, ok := range done {
			if !ok {
				errs[index[k]] = s.finishAlone(ctx, all[k])
			}
		}
		all, index = all[n:], index[n:]
	}
	return errs
}

// maxFinished bounds one statement of results.
const maxFinished = 200

// finishSome writes what it can without waiting for anybody, and answers which.
func (s *Store) finishSome(ctx context.Context, all []finish) []bool {
	if s.pg {
		return s.finishTogether(ctx, all)
	}
	done := make([]bool, len(all))
	err := s.write(ctx, "finish tasks", func(ctx context.Context, w *work) (err error) {
		for i, f := range all {
			if done[i], err = w.finishLite(ctx, f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		clear(done)
	}
	return done
}

// finishAlone does what Finish does whatever stands in the way, and finds out
// why it cannot.
func (s *Store) finishAlone(ctx context.Context, f finish) error {
	err := s.queue(ctx, "finish task", func(ctx context.Context, w *work) error {
		if !w.pg {
			done, err := w.finishLite(ctx, f)
			if done || err != nil {
				return err
			}
		}
		h, err := w.held(ctx, f.fence())
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
			f.Task, f.Token, f.Status, string(f.Result)))
		if err != nil {
			return err
		}
		if n == 0 {
			return pulse.ErrFenced
		}
		return nil
	})
	if errors.Is(err, pulse.ErrFenced) && s.finished(ctx, f.fence()) {
		return nil // the same call won meanwhile, over another connection
	}
	return s.late("finish", f.fence(), err)
}

// finishLite writes the task before its session, which is as good where
// there is one writer. It answers false when the fence kept it out: then it
// wrote nothing.
func (w *work) finishLite(ctx context.Context, f finish) (bool, error) {
	var session key
	err := w.raw.QueryRowContext(ctx, "UPDATE inbox_tasks SET status = $3, result = $4, ended_at = "+w.clock(0)+" WHERE id = $1 AND"+live(w)+" RETURNING session_id",
		f.Task, f.Token, f.Status, string(f.Result)).Scan(&session)
	if err != nil {
		return false, none(err, nil)
	}
	return true, w.stir(ctx, string(session))
}

// finishAtOnce does on PostgreSQL what Finish does, in one statement instead
// of a transaction of five: the way from daemon to database and back is most
// of what it costs. It answers false when it wrote nothing, whatever the
// reason: Finish then finds out. The session's row is locked before the
// task's, as everywhere, because the task's update waits for the count.
func (s *Store) finishAtOnce(ctx context.Context, f finish) bool {
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
			f.Task, f.Token, f.Status, string(f.Result)).Scan(&n)
	})
	if err != nil || n == 0 {
		return false
	}
	if n > 1 {
		s.announce(topicSet{pulse.TopicSessions: {}})
	}
	return true
}

// finishTogether writes many results in one statement. It locks sessions
// before tasks, as everywhere, and waits for no session that somebody decides
// on at this moment: such a task is left to Finish by itself, as is one whose
// fence does not hold. It answers which were written.
func (s *Store) finishTogether(ctx context.Context, all []finish) []bool {
	done := make([]bool, len(all))
	if len(all) == 1 {
		done[0] = s.finishAtOnce(ctx, all[0])
		return done
	}
	list, err := encode(all)
	if err != nil {
		return done
	}
	var written map[pulse.Fence]bool
	err = s.queueOne(ctx, "finish tasks", func(ctx context.Context, w *work) (err error) {
		written, err = w.finishAll(ctx, list)
		return err
	})
	if err != nil {
		return done // whatever the reason: who is left finds out alone
	}
	for i, f := range all {
		done[i] = written[f.fence()]
	}
	return done
}

// finishAll is the statement of finishTogether for a list as JSON.
func (w *work) finishAll(ctx context.Context, list string) (map[pulse.Fence]bool, error) {
	now := w.clock(0)
	found, err := w.raw.QueryContext(ctx, "WITH f AS MATERIALIZED (SELECT * FROM json_to_recordset($1::json) AS f (id uuid, token text, state text, result jsonb)),"+
		" free AS MATERIALIZED (SELECT id FROM pulse_sessions WHERE id = ANY(ARRAY(SELECT session_id FROM inbox_tasks WHERE id = ANY(ARRAY(SELECT id FROM f))))"+
		" FOR NO KEY UPDATE SKIP LOCKED),"+
		" done AS (UPDATE inbox_tasks t SET status = f.state, result = f.result, ended_at = "+now+
		" FROM f WHERE t.id = f.id AND t.id = ANY(ARRAY(SELECT id FROM f)) AND t.claim_token = f.token AND t.status IN ('claimed', 'running') AND t.lease_until > "+now+
		" AND (t.session_id IS NULL OR t.session_id IN (SELECT id FROM free)) RETURNING t.id, t.claim_token, t.session_id),"+
		" stirred AS (UPDATE pulse_sessions SET due_at = "+now+", updated_at = "+now+", version = version + 1"+
		" WHERE id = ANY(ARRAY(SELECT session_id FROM done)))"+
		" SELECT id, claim_token, session_id IS NOT NULL FROM done", list)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	written := map[pulse.Fence]bool{}
	for found.Next() {
		var id key
		var token string
		var stirred bool
		if err := found.Scan(&id, &token, &stirred); err != nil {
			return nil, err
		}
		if stirred {
			w.wake(pulse.TopicSessions)
		}
		written[finish{Task: string(id), Token: token}.fence()] = true
	}
	return written, found.Err()
}

// lanes is how many statements of results of one process are under way at
// once: one would have each wait for the disk twice, and with many there is
// nothing left to go together.
const lanes = 2

// results gathers what is finished while other results are being written:
// there is no timer, and one that comes alone goes at once.
type results struct {
	mu      sync.Mutex
	busy    int
	waiting []*pending
}

type pending struct {
	finish finish
	done   chan bool
}

// write answers whether the result is stored; if not, nothing was learnt.
func (r *results) write(ctx context.Context, s *Store, f finish) bool {
	mine := &pending{finish: f, done: make(chan bool, 1)}
	r.mu.Lock()
	if r.busy < lanes {
		r.busy++
		r.mu.Unlock()
		ok := s.finishAtOnce(ctx, f)
		r.next(s)
		return ok
	}
	r.waiting = append(r.waiting, mine)
	r.mu.Unlock()
	select {
	case ok := <-mine.done:
		return ok
	case <-ctx.Done():
		return false
	}
}

// next gives the lane to those who wait meanwhile.
func (r *results) next(s *Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.busy--
		return
	}
	n := min(len(r.waiting), maxFinished)
	group := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	go func() {
		all := make([]finish, len(group))
		for i, p := range group {
			all[i] = p.finish
		}
		for i, ok := range s.finishTogether(context.Background(), all) { // bounded by the store's time-out
			group[i].done <- ok
		}
		r.next(s)
	}()
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
