package db

import (
	"context"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type gateRow struct {
	bun.BaseModel `bun:"table:gates,alias:g"`

	ID          uid `bun:",pk"`
	SessionID   uid
	IterationID uid
	Kind        text
	Prompt      text
	Options     doc[[]pulse.GateOption]
	Status      text
	Choice      text
	Text        text
	DecidedBy   opt
	DecidedName text
	CreatedAt   stamp
	DecidedAt   stamp
}

func (r gateRow) value() pulse.Gate {
	return pulse.Gate{ID: pulse.GateID(r.ID), SessionID: pulse.SessionID(r.SessionID), IterationID: pulse.IterationID(r.IterationID),
		Kind: pulse.GateKind(r.Kind), Prompt: string(r.Prompt), Options: r.Options.V, Status: pulse.GateStatus(r.Status),
		Choice: string(r.Choice), Text: string(r.Text), DecidedBy: pulse.OperatorID(r.DecidedBy), DecidedName: string(r.DecidedName),
		CreatedAt: r.CreatedAt.Time, DecidedAt: r.DecidedAt.Time}
}

// putGate opens a gate or changes an open one. A gate that was decided stays
// as it is: the second decision is stale.
func (w *work) putGate(ctx context.Context, g pulse.Gate) error {
	row := &gateRow{ID: uid(g.ID), SessionID: uid(g.SessionID), IterationID: uid(g.IterationID), Kind: text(g.Kind), Prompt: text(g.Prompt),
		Options: doc[[]pulse.GateOption]{orEmpty(g.Options)}, Status: text(g.Status), Choice: text(g.Choice), Text: text(g.Text),
		DecidedBy: opt(g.DecidedBy), DecidedName: text(g.DecidedName), CreatedAt: w.orNow(g.CreatedAt), DecidedAt: at(g.DecidedAt)}
	n, err := rows(w.db.NewInsert().Model(row).On("CONFLICT (id) DO NOTHING").Exec(ctx))
	if err != nil || n > 0 {
		return err
	}
	from := pulse.GateTransitions.From(g.Status)
	if g.Status == pulse.GateOpen {
		from = append(from, pulse.GateOpen)
	}
	n, err = rows(w.db.NewUpdate().Model(row).ExcludeColumn("id", "session_id", "created_at").
		Where("g.id = ?", row.ID).Where("g.session_id = ?", row.SessionID).Where("g.status IN (?)", bun.List(from)).Exec(ctx))
	if err == nil && n == 0 {
		return pulse.ErrStale
	}
	return err
}

// Gate reads a gate; pulse.CodeNotFound.
func (s *Store) Gate(ctx context.Context, id pulse.GateID) (pulse.Gate, error) {
	missing := pulse.NotFound("there is no such question", "it may belong to another database")
	if !pulse.ValidUUID(string(id)) {
		return pulse.Gate{}, missing
	}
	var row gateRow
	err := s.view(ctx, "read gate", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewSelect().Model(&row).Where("id = ?", uid(id)).Scan(ctx), missing)
	})
	return row.value(), err
}

// OpenGate reads the session's open gate, the newest if there are several;
// pulse.ErrNone without one.
func (s *Store) OpenGate(ctx context.Context, id pulse.SessionID) (pulse.Gate, error) {
	if !pulse.ValidUUID(string(id)) {
		return pulse.Gate{}, pulse.ErrNone
	}
	var row gateRow
	err := s.view(ctx, "read open gate", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewSelect().Model(&row).Where("session_id = ?", uid(id)).Where("status = 'open'").
			Order("created_at DESC", "id DESC").Limit(1).Scan(ctx), pulse.ErrNone)
	})
	return row.value(), err
}
