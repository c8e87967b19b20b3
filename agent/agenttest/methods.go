package agenttest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"pulseloop/pulse"
)

// Enlist notes the daemon and serves every route.
func (q *Queue) Enlist(ctx context.Context, d pulse.Daemon) (routes []string, err error) {
	err = q.call(ctx, OpEnlist, func() error {
		if d.ID == "" {
			q.t.Error("queue: a daemon without an id enlists")
		}
		q.daemons[d.ID] = d
		routes = append([]string{pulse.DaemonRoute(d.ID)}, q.routes...)
		return nil
	})
	return routes, err
}

// Claim takes the most urgent queued task of the routes.
func (q *Queue) Claim(ctx context.Context, daemon pulse.DaemonID, routes []string, lease time.Duration) (pulse.Claim, error) {
	some, err := q.ClaimMany(ctx, daemon, routes, 1, lease)
	if err != nil {
		return pulse.Claim{}, err
	}
	return some[0], nil
}

// ClaimMany takes the n most urgent queued tasks of the routes.
func (q *Queue) ClaimMany(ctx context.Context, daemon pulse.DaemonID, routes []string, n int, lease time.Duration) (claims []pulse.Claim, err error) {
	err = q.call(ctx, OpClaim, func() error {
		for range n {
			best := q.mostUrgent(routes)
			if best == nil {
				break
			}
			q.tokens++
			t := &best.task
			t.Status, t.ClaimedBy, t.ClaimToken = pulse.TaskClaimed, daemon, pulse.ClaimToken(fmt.Sprintf("token-%d", q.tokens))
			t.LeaseUntil = q.clock().Add(lease)
			t.Attempt++
			claims = append(claims, pulse.Claim{Task: *t, Token: t.ClaimToken})
		}
		if len(claims) == 0 {
			return pulse.ErrNone
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claims, nil
}

func (q *Queue) mostUrgent(routes []string) (best *entry) {
	for _, id := range q.order {
		e := q.tasks[id]
		if e.task.Status == pulse.TaskQueued && slices.Contains(routes, e.task.Route) && (best == nil || e.task.Priority > best.task.Priority) {
			best = e
		}
	}
	return best
}

// Heartbeat renews the lease.
func (q *Queue) Heartbeat(ctx context.Context, f pulse.Fence, lease time.Duration) (cancelled bool, err error) {
	err = q.call(ctx, OpHeartbeat, func() error {
		if e := q.tasks[f.TaskID]; e != nil && e.task.Status == pulse.TaskCancelled && e.task.ClaimToken == f.Token {
			if _, told := e.refused[f.Token]; !told {
				e.refused[f.Token] = q.clock()
			}
			cancelled = true
			return nil
		}
		e, err := q.live(OpHeartbeat, f)
		if err == nil {
			e.task.LeaseUntil = q.clock().Add(lease)
		}
		return err
	})
	return cancelled, err
}

// Running marks the task as running.
func (q *Queue) Running(ctx context.Context, f pulse.Fence) error {
	return q.call(ctx, OpRunning, func() error {
		e, err := q.live(OpRunning, f)
		if err != nil {
			return err
		}
		e.task.Status = pulse.TaskRunning
		if e.task.StartedAt.IsZero() {
			e.task.StartedAt = q.clock()
		}
		return nil
	})
}

// maxBatch is more than a daemon may let gather.
const maxBatch = 2500

// Append stores a batch, whole or not at all.
func (q *Queue) Append(ctx context.Context, f pulse.Fence, b pulse.StreamBatch) error {
	return q.call(ctx, OpAppend, func() error {
		e, err := q.live(OpAppend, f)
		if err != nil {
			return err
		}
		if e.task.Status != pulse.TaskRunning {
			q.t.Errorf("queue: append to task %s, which is %s", f.TaskID, e.task.Status)
		}
		if b.Empty() {
			q.t.Error("queue: an empty batch is appended")
		}
		if n := len(b.Messages) + len(b.Thoughts) + len(b.Tools) + len(b.Deltas) + len(b.Events); n > maxBatch {
			q.t.Errorf("queue: a batch of %d rows: what waits is not bounded", n)
		}
		for _, t := range b.Turns {
			if old, ok := e.turns[t.ID]; !ok || old.Status == pulse.TurnStreaming || t.Status != pulse.TurnStreaming {
				e.turns[t.ID] = t
			}
		}
		return q.appendBlocks(e, f, b)
	})
}

func (q *Queue) appendBlocks(e *entry, f pulse.Fence, b pulse.StreamBatch) error {
	place := func(turn pulse.TurnID, seq int, what string) bool {
		if _, ok := e.turns[turn]; !ok {
			q.t.Errorf("queue: a %s refers to turn %q, which was never stored", what, turn)
		}
		key := fmt.Sprintf("%s/%d", turn, seq)
		taken := e.seqs[key]
		e.seqs[key] = true
		return !taken
	}
	for _, m := range b.Messages {
		if place(m.TurnID, m.Seq, "message") {
			e.stream.Messages = append(e.stream.Messages, m)
		}
	}
	for _, m := range b.Thoughts {
		if place(m.TurnID, m.Seq, "thought") {
			e.stream.Thoughts = append(e.stream.Thoughts, m)
		}
	}
	for _, t := range b.Tools {
		place(t.TurnID, t.Seq, "tool call")
		i := slices.IndexFunc(e.stream.Tools, func(o pulse.TurnTool) bool { return o.TurnID == t.TurnID && o.CallID == t.CallID })
		if i < 0 {
			e.stream.Tools = append(e.stream.Tools, t)
		} else {
			e.stream.Tools[i] = t
		}
	}
	for _, d := range b.Deltas {
		last := e.deltaN[f.Token]
		if d.N <= last {
			continue // it came before, and the answer was lost
		}
		if d.N != last+1 && q.fault == nil || d.Text == "" {
			q.t.Errorf("queue: delta %d %q follows %d", d.N, d.Text, last)
		}
		e.deltaN[f.Token] = d.N
		e.stream.Deltas = append(e.stream.Deltas, d)
	}
	for _, ev := range b.Events {
		if ev.SessionID != e.task.SessionID {
			q.t.Errorf("queue: event %s of session %q is appended to a task of %q", ev.Type, ev.SessionID, e.task.SessionID)
		}
		e.stream.Events = append(e.stream.Events, ev)
	}
	if b.Sign.IsZero() && b.Phase != "" {
		q.t.Errorf("queue: phase %q without a sign of life", b.Phase)
	}
	if b.Sign.After(e.task.LastSign) {
		e.task.LastSign = b.Sign
	}
	if !b.Sign.IsZero() {
		e.task.Phase = b.Phase
	}
	return nil
}

// Finish stores the result; the same result again is harmless.
func (q *Queue) Finish(ctx context.Context, f pulse.Fence, r pulse.TaskResult) error {
	return q.call(ctx, OpFinish, func() error {
		r.Notes, r.FilesChanged = slices.Clone(r.Notes), slices.Clone(r.FilesChanged)
		e := q.tasks[f.TaskID]
		if e != nil && e.task.ClaimToken == f.Token && e.task.Result != nil {
			if !sameFacts(e.task.Result, &r) {
				q.t.Errorf("queue: task %s is finished twice with different facts: %+v, then %+v", f.TaskID, *e.task.Result, r)
			}
			return nil
		}
		e, err := q.live(OpFinish, f)
		if err != nil {
			return err
		}
		if e.task.Status != pulse.TaskRunning && r.Error == "" {
			q.t.Errorf("queue: task %s is complete without having run", f.TaskID)
		}
		for id := range maps.Keys(e.turns) {
			if e.turns[id].Status == pulse.TurnStreaming && r.TurnID == id {
				q.t.Errorf("queue: task %s is finished while its turn goes on", f.TaskID)
			}
		}
		e.task.Status = pulse.TaskComplete
		if r.Error != "" {
			e.task.Status = pulse.TaskFailed
		}
		e.task.Result, e.task.EndedAt = &r, q.clock()
		q.wake()
		return nil
	})
}

// Release queues the task again; the attempt does not count.
func (q *Queue) Release(ctx context.Context, f pulse.Fence) error {
	return q.call(ctx, OpRelease, func() error {
		e, err := q.live(OpRelease, f)
		if err != nil {
			return err
		}
		q.requeue(e)
		e.task.Attempt--
		q.wake()
		return nil
	})
}
