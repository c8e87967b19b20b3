package db

import (
	"context"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type iterationRow struct {
	bun.BaseModel `bun:"table:pulse_iterations,alias:i"`

	ID                 uid `bun:",pk"`
	SessionID          uid
	IterationNumber    int
	Attempt            int
	Run                int
	InboxTaskID        uid
	TaskContent        text
	Status             text
	Signal             opt
	SignalClaimed      opt
	SignalReason       text
	SignalInferred     bool
	OutputSummary      text
	OutputFull         text
	CommitHash         opt
	Commits            int
	FilesChanged       list
	AnchorTurnID       opt
	AnchorStrategy     opt
	AnchorResolutionMs float64
	Salience           float64
	Depth              int
	AnchorNote         text
	AnchorFound        bool
	AnchorHintNext     opt
	AnchorHintWhy      text
	ContextTokens      int
	SliceID            opt
	TurnID             uid
	InputTokens        int64
	OutputTokens       int64
	CacheReadTokens    int64
	CacheWriteTokens   int64
	CostMicros         int64
	Error              text
	CreatedAt          stamp
	StartedAt          stamp
	EndedAt            stamp
}

func (w *work) iterationRow(i pulse.Iteration) *iterationRow {
	return &iterationRow{
		ID: uid(i.ID), SessionID: uid(i.SessionID), IterationNumber: i.Number, Attempt: i.Attempt, Run: i.Run,
		InboxTaskID: uid(i.TaskID), TaskContent: text(i.TaskContent), Status: text(i.Status),
		Signal: opt(i.Signal), SignalClaimed: opt(i.SignalClaimed), SignalReason: text(i.SignalReason), SignalInferred: i.SignalInferred,
		OutputSummary: text(i.OutputSummary), OutputFull: text(i.OutputFull), CommitHash: opt(i.CommitHash), Commits: i.Commits,
		FilesChanged: list{i.FilesChanged}, AnchorTurnID: opt(i.Anchor.TurnID), AnchorStrategy: opt(i.Anchor.Strategy),
		AnchorResolutionMs: i.Anchor.Milliseconds, Salience: i.Anchor.Salience, Depth: i.Anchor.Depth,
		AnchorNote: text(i.Anchor.Note), AnchorFound: i.Anchor.Found, AnchorHintNext: opt(i.AnchorHintNext), AnchorHintWhy: text(i.AnchorHintWhy),
		ContextTokens: i.ContextTokens, SliceID: opt(i.SliceID), TurnID: uidOrNone(i.TurnID),
		InputTokens: i.Usage.InputTokens, OutputTokens: i.Usage.OutputTokens, CacheReadTokens: i.Usage.CacheReadTokens,
		CacheWriteTokens: i.Usage.CacheWriteTokens, CostMicros: i.Usage.CostMicros, Error: text(i.Error),
		CreatedAt: w.orNow(i.CreatedAt), StartedAt: at(i.StartedAt), EndedAt: at(i.EndedAt),
	}
}

// uidOrNone drops what is no UUID: the agent's side names that turn, and a
// bad name must not keep its result from being recorded.
func uidOrNone(id pulse.TurnID) uid {
	if !pulse.ValidUUID(string(id)) {
		return ""
	}
	return uid(id)
}

func (r iterationRow) value() pulse.Iteration {
	return pulse.Iteration{
		ID: pulse.IterationID(r.ID), SessionID: pulse.SessionID(r.SessionID), Number: r.IterationNumber, Attempt: r.Attempt, Run: r.Run,
		TaskID: pulse.TaskID(r.InboxTaskID), TaskContent: string(r.TaskContent), Status: pulse.IterationStatus(r.Status),
		Signal: pulse.Signal(r.Signal), SignalClaimed: pulse.Signal(r.SignalClaimed), SignalReason: string(r.SignalReason), SignalInferred: r.SignalInferred,
		OutputSummary: string(r.OutputSummary), OutputFull: string(r.OutputFull), CommitHash: string(r.CommitHash), Commits: r.Commits,
		FilesChanged: r.FilesChanged.V,
		Anchor: pulse.Anchor{TurnID: pulse.TurnID(r.AnchorTurnID), Strategy: pulse.AnchorStrategy(r.AnchorStrategy), Milliseconds: r.AnchorResolutionMs,
			Salience: r.Salience, Depth: r.Depth, Note: string(r.AnchorNote), Found: r.AnchorFound},
		AnchorHintNext: pulse.TurnID(r.AnchorHintNext), AnchorHintWhy: string(r.AnchorHintWhy),
		ContextTokens: r.ContextTokens, SliceID: pulse.SliceID(r.SliceID), TurnID: pulse.TurnID(r.TurnID),
		Usage: pulse.Usage{InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CacheReadTokens: r.CacheReadTokens,
			CacheWriteTokens: r.CacheWriteTokens, CostMicros: r.CostMicros},
		Error: string(r.Error), CreatedAt: r.CreatedAt.Time, StartedAt: r.StartedAt.Time, EndedAt: r.EndedAt.Time,
	}
}

// putIteration inserts an iteration, or writes it whole if its state allows.
func (w *work) putIteration(ctx context.Context, i pulse.Iteration) error {
	row := w.iterationRow(i)
	res, err := w.db.NewInsert().Model(row).On("CONFLICT DO NOTHING").Exec(ctx)
	if n, err := rows(res, err); err != nil || n > 0 {
		return err
	}
	res, err = w.db.NewUpdate().Model(row).ExcludeColumn("id", "session_id", "created_at").
		Where("i.id = ?", row.ID).Where("i.session_id = ?", row.SessionID).
		Where("i.status IN (?)", bun.List(append(pulse.IterationTransitions.From(i.Status), i.Status))).Exec(ctx)
	if n, err := rows(res, err); err != nil || n > 0 {
		return err
	}
	return pulse.ErrStale
}

// rows is how many rows a statement changed.
func rows(res affected, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// CurrentIteration reads the session's latest iteration with its task;
// pulse.ErrNone before the first.
func (s *Store) CurrentIteration(ctx context.Context, id pulse.SessionID) (pulse.Iteration, pulse.Task, error) {
	if !pulse.ValidUUID(string(id)) {
		return pulse.Iteration{}, pulse.Task{}, pulse.ErrNone
	}
	var row iterationRow
	var task taskRow
	err := s.view(ctx, "read current iteration", func(ctx context.Context, db bun.IDB) error {
		err := db.NewSelect().Model(&row).Where("session_id = ?", uid(id)).
			Order("run DESC", "iteration_number DESC", "attempt DESC").Limit(1).Scan(ctx)
		if err != nil {
			return none(err, pulse.ErrNone)
		}
		if row.InboxTaskID == "" {
			return nil
		}
		return db.NewSelect().Model(&task).ColumnExpr("k.*").ColumnExpr(s.sqlNow(0)+" AS read_at").Where("id = ?", row.InboxTaskID).Scan(ctx)
	})
	return row.value(), task.value(), err
}

// Iterations lists a session's iterations in the order they were dispatched.
func (s *Store) Iterations(ctx context.Context, id pulse.SessionID) ([]pulse.Iteration, error) {
	var out []iterationRow
	if !pulse.ValidUUID(string(id)) {
		return nil, nil
	}
	err := s.view(ctx, "list iterations", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&out).Where("session_id = ?", uid(id)).Order("run", "iteration_number", "attempt").Scan(ctx)
	})
	return values(out, iterationRow.value), err
}

// Prompt reads the exact prompt of a session's iteration number n, of its
// latest run and attempt; pulse.CodeNotFound, also when it is not kept any
// more.
func (s *Store) Prompt(ctx context.Context, id pulse.SessionID, n int) (string, error) {
	missing := pulse.NotFound("the session has no such iteration", "see its iterations with: pulse show")
	if !pulse.ValidUUID(string(id)) {
		return "", missing
	}
	var prompt text
	err := s.view(ctx, "read prompt", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewRaw("SELECT task_content FROM pulse_iterations WHERE session_id = ? AND iteration_number = ?"+
			" ORDER BY run DESC, attempt DESC LIMIT 1", uid(id), n).Scan(ctx, &prompt), missing)
	})
	if err == nil && prompt == "" {
		err = pulse.NotFound("the prompt of this iteration is not kept any more", "retention.prompts says how long prompts are kept")
	}
	return string(prompt), err
}
