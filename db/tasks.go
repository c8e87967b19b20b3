package db

import (
	"context"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type taskRow struct {
	bun.BaseModel `bun:"table:inbox_tasks,alias:k"`

	ID           uid `bun:",pk"`
	Kind         text
	Route        text
	Priority     int
	Status       text
	Source       text
	SessionID    uid
	IterationID  uid
	Content      text
	MediaContext doc[pulse.MediaContext]
	Spec         doc[pulse.TaskSpec]
	Attempt      int
	Claims       int
	MaxAttempts  int
	ClaimToken   opt
	ClaimedBy    opt
	LeaseUntil   stamp
	LastSign     stamp
	Phase        text
	Result       *doc[pulse.TaskResult]
	CreatedAt    stamp
	StartedAt    stamp
	EndedAt      stamp
	ReadAt       stamp `bun:",scanonly"`
}

func (r taskRow) value() pulse.Task {
	t := pulse.Task{
		ID: pulse.TaskID(r.ID), Kind: pulse.TaskKind(r.Kind), Route: string(r.Route), Priority: r.Priority, Status: pulse.TaskStatus(r.Status),
		Source: string(r.Source), SessionID: pulse.SessionID(r.SessionID), IterationID: pulse.IterationID(r.IterationID), Content: string(r.Content),
		MediaContext: r.MediaContext.V, Spec: r.Spec.V, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts,
		ClaimToken: pulse.ClaimToken(r.ClaimToken), ClaimedBy: pulse.DaemonID(r.ClaimedBy), LeaseUntil: r.LeaseUntil.Time, LastSign: r.LastSign.Time, Phase: pulse.Phase(r.Phase),
		CreatedAt: r.CreatedAt.Time, StartedAt: r.StartedAt.Time, EndedAt: r.EndedAt.Time, ReadAt: r.ReadAt.Time,
	}
	if r.Result != nil {
		t.Result = &r.Result.V
	}
	return t
}

func (w *work) insertTask(ctx context.Context, t pulse.Task) error {
	if t.Status == "" {
		t.Status = pulse.TaskQueued
	}
	if t.Status != pulse.TaskQueued {
		return pulse.Conflict("a new task is queued, not "+string(t.Status), "")
	}
	source := t.Source
	if source == "" {
		source = "pulse"
	}
	row := taskRow{
		ID: uid(t.ID), Kind: text(t.Kind), Route: text(t.Route), Priority: t.Priority, Status: text(t.Status), Source: text(source),
		SessionID: uid(t.SessionID), IterationID: uid(t.IterationID), Content: text(t.Content),
		MediaContext: doc[pulse.MediaContext]{t.MediaContext}, Spec: doc[pulse.TaskSpec]{t.Spec},
		Attempt: t.Attempt, MaxAttempts: t.MaxAttempts, CreatedAt: w.orNow(t.CreatedAt),
	}
	_, err := w.db.NewInsert().Model(&row).Exec(ctx)
	return err
}

// cancelTasks ends tasks that are not over, and the turns of their agents.
// The claim token stays, so that the daemon learns of it at its next heartbeat.
func (w *work) cancelTasks(ctx context.Context, ids []pulse.TaskID) error {
	keys := make([]uid, 0, len(ids))
	for _, id := range ids {
		keys = append(keys, uid(id))
	}
	var ended []taskRow
	err := w.db.NewRaw("UPDATE inbox_tasks SET status = ?, ended_at = "+w.now(0)+" WHERE id IN (?) AND status IN (?) RETURNING session_id, iteration_id",
		pulse.TaskCancelled, bun.List(keys), bun.List(pulse.TaskTransitions.From(pulse.TaskCancelled))).Scan(ctx, &ended)
	if none(err, nil) != nil {
		return err
	}
	for _, t := range ended {
		if err := w.endTurns(ctx, string(t.SessionID), string(t.IterationID)); err != nil {
			return err
		}
	}
	return nil
}
