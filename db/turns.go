package db

import (
	"context"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type turnRow struct {
	bun.BaseModel `bun:"table:turns,alias:t"`

	ID          uid `bun:",pk"`
	SessionID   uid
	ProjectID   uid
	IterationID uid
	ParentID    uid
	Role        text
	Status      text
	Depth       int
	CreatedAt   stamp
	EndedAt     stamp
	Text        string `bun:",scanonly"`
}

func (r turnRow) value() pulse.Turn {
	return pulse.Turn{ID: pulse.TurnID(r.ID), SessionID: pulse.SessionID(r.SessionID), ProjectID: pulse.ProjectID(r.ProjectID),
		IterationID: pulse.IterationID(r.IterationID), ParentID: pulse.TurnID(r.ParentID), Role: pulse.TurnRole(r.Role),
		Status: pulse.TurnStatus(r.Status), Depth: r.Depth, Text: r.Text, CreatedAt: r.CreatedAt.Time, EndedAt: r.EndedAt.Time}
}

type messageRow struct {
	bun.BaseModel `bun:"table:turn_messages,alias:m"`

	TurnID uid `bun:",pk"`
	Seq    int `bun:",pk"`
	Text   text
	At     stamp
}

func (r messageRow) value() pulse.TurnMessage {
	return pulse.TurnMessage{TurnID: pulse.TurnID(r.TurnID), Seq: r.Seq, Text: string(r.Text), At: r.At.Time}
}

type thoughtRow struct {
	bun.BaseModel `bun:"table:turn_thoughts,alias:h"`

	TurnID uid `bun:",pk"`
	Seq    int `bun:",pk"`
	Text   text
	At     stamp
}

func (r thoughtRow) value() pulse.TurnThought {
	return pulse.TurnThought{TurnID: pulse.TurnID(r.TurnID), Seq: r.Seq, Text: string(r.Text), At: r.At.Time}
}

type toolRow struct {
	bun.BaseModel `bun:"table:turn_tools,alias:l"`

	TurnID  uid  `bun:",pk"`
	CallID  text `bun:",pk"`
	Seq     int
	Name    text
	Summary text
	Input   text
	Output  text
	Status  text
	At      stamp
	EndedAt stamp
}

func (r toolRow) value() pulse.TurnTool {
	return pulse.TurnTool{TurnID: pulse.TurnID(r.TurnID), Seq: r.Seq, CallID: string(r.CallID), Name: string(r.Name), Summary: string(r.Summary),
		Input: string(r.Input), Output: string(r.Output), Status: pulse.ToolStatus(r.Status), At: r.At.Time, EndedAt: r.EndedAt.Time}
}

// putTurns writes turns by key. A turn never changes its session, and one
// that is over does not start again.
func (w *work) putTurns(ctx context.Context, turns []pulse.Turn) error {
	for _, t := range turns {
		depth := t.Depth
		if depth == 0 && t.ParentID != "" {
			err := w.db.NewRaw("SELECT depth + 1 FROM turns WHERE id = ?", uid(t.ParentID)).Scan(ctx, &depth)
			if none(err, nil) != nil {
				return err
			}
		}
		row := turnRow{ID: uid(t.ID), SessionID: uid(t.SessionID), ProjectID: uid(t.ProjectID), IterationID: uid(t.IterationID), ParentID: uid(t.ParentID),
			Role: text(t.Role), Status: text(t.Status), Depth: depth, CreatedAt: w.orNow(t.CreatedAt), EndedAt: at(t.EndedAt)}
		_, err := w.db.NewInsert().Model(&row).On(`CONFLICT (id) DO UPDATE SET status = EXCLUDED.status, ended_at = EXCLUDED.ended_at
			WHERE t.session_id = EXCLUDED.session_id AND (t.status = 'streaming' OR EXCLUDED.status <> 'streaming')`).Exec(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// putBlocks appends messages and thoughts and writes tools by key. A batch
// whose commit was in doubt may come twice.
func (w *work) putBlocks(ctx context.Context, messages []pulse.TurnMessage, tools []pulse.TurnTool, thoughts []pulse.TurnThought) error {
	if len(messages) > 0 {
		out := make([]messageRow, 0, len(messages))
		for _, m := range messages {
			out = append(out, messageRow{TurnID: uid(m.TurnID), Seq: m.Seq, Text: text(m.Text), At: w.orNow(m.At)})
		}
		if _, err := w.db.NewInsert().Model(&out).On("CONFLICT DO NOTHING").Exec(ctx); err != nil {
			return err
		}
	}
	if len(thoughts) > 0 {
		out := make([]thoughtRow, 0, len(thoughts))
		for _, m := range thoughts {
			out = append(out, thoughtRow{TurnID: uid(m.TurnID), Seq: m.Seq, Text: text(m.Text), At: w.orNow(m.At)})
		}
		if _, err := w.db.NewInsert().Model(&out).On("CONFLICT DO NOTHING").Exec(ctx); err != nil {
			return err
		}
	}
	for _, t := range tools { // one by one: a batch may start and end the same call
		row := toolRow{TurnID: uid(t.TurnID), CallID: text(t.CallID), Seq: t.Seq, Name: text(t.Name), Summary: text(t.Summary), Input: text(t.Input),
			Output: text(t.Output), Status: text(t.Status), At: w.orNow(t.At), EndedAt: at(t.EndedAt)}
		_, err := w.db.NewInsert().Model(&row).On(`CONFLICT (turn_id, call_id) DO UPDATE SET
			name = CASE WHEN EXCLUDED.name <> '' THEN EXCLUDED.name ELSE l.name END,
			summary = CASE WHEN EXCLUDED.summary <> '' THEN EXCLUDED.summary ELSE l.summary END,
			input = CASE WHEN EXCLUDED.input <> '' THEN EXCLUDED.input ELSE l.input END,
			output = EXCLUDED.output, status = EXCLUDED.status, ended_at = EXCLUDED.ended_at`).Exec(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *work) putTurnDetails(ctx context.Context, details []pulse.TurnDetail) error {
	var ids []uid
	for _, d := range details {
		if err := w.putTurns(ctx, []pulse.Turn{d.Turn}); err != nil {
			return err
		}
		if err := w.putBlocks(ctx, d.Messages, d.Tools, d.Thoughts); err != nil {
			return err
		}
		ids = append(ids, uid(d.Turn.ID))
	}
	return w.indexTurns(ctx, ids)
}

type sliceRow struct {
	bun.BaseModel `bun:"table:slices,alias:c"`

	ID        text `bun:",pk"`
	TurnIDs   list `bun:"turn_ids"`
	NodeCount int
	Tokens    int
	CreatedAt stamp
}

// putSlice stores a slice once: the same id is the same turns.
func (w *work) putSlice(ctx context.Context, s pulse.Slice) error {
	ids := make([]string, 0, len(s.TurnIDs))
	for _, id := range s.TurnIDs {
		ids = append(ids, string(id))
	}
	row := sliceRow{ID: text(s.ID), TurnIDs: list{ids}, NodeCount: s.NodeCount, Tokens: s.Tokens, CreatedAt: at(w.at)}
	_, err := w.db.NewInsert().Model(&row).On("CONFLICT (id) DO NOTHING").Exec(ctx)
	return err
}

// Slice reads a stored slice; pulse.CodeNotFound.
func (s *Store) Slice(ctx context.Context, id pulse.SliceID) (pulse.Slice, error) {
	var row sliceRow
	err := s.view(ctx, "read slice", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewSelect().Model(&row).Where("id = ?", text(id)).Scan(ctx), pulse.NotFound("there is no slice "+clip(string(id), 60), ""))
	})
	out := pulse.Slice{ID: pulse.SliceID(row.ID), NodeCount: row.NodeCount, Tokens: row.Tokens}
	for _, t := range row.TurnIDs.V {
		out.TurnIDs = append(out.TurnIDs, pulse.TurnID(t))
	}
	return out, err
}

// turnColumns are a turn's own columns and its messages joined by newlines.
const turnColumns = "t.id, t.session_id, t.project_id, t.iteration_id, t.parent_id, t.role, t.status, t.depth, t.created_at, t.ended_at," +
	" (SELECT string_agg(m.text, '\n' ORDER BY m.seq) FROM turn_messages m WHERE m.turn_id = t.id) AS text"

// Turn reads a turn with its text; pulse.CodeNotFound.
func (s *Store) Turn(ctx context.Context, id pulse.TurnID) (pulse.Turn, error) {
	missing := pulse.NotFound("there is no turn "+clip(string(id), 60), "")
	if !pulse.ValidUUID(string(id)) {
		return pulse.Turn{}, missing
	}
	var row turnRow
	err := s.view(ctx, "read turn", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewRaw("SELECT "+turnColumns+" FROM turns t WHERE t.id = ?", uid(id)).Scan(ctx, &row), missing)
	})
	return row.value(), err
}

// Ancestors reads up to limit turns from the parent of id towards the root,
// nearest first, with their texts, all of one project.
func (s *Store) Ancestors(ctx context.Context, id pulse.TurnID, limit int) ([]pulse.Turn, error) {
	if !pulse.ValidUUID(string(id)) || limit <= 0 {
		return nil, nil
	}
	var out []turnRow
	err := s.view(ctx, "read ancestors", func(ctx context.Context, db bun.IDB) error {
		// steps ends the walk should the tree ever hold a circle.
		return db.NewRaw(`WITH RECURSIVE up (id, parent_id, project_id, steps) AS (
				SELECT id, parent_id, project_id, 0 FROM turns WHERE id = ?
				UNION ALL
				SELECT p.id, p.parent_id, p.project_id, up.steps + 1 FROM turns p JOIN up ON p.id = up.parent_id
				WHERE up.steps < ? AND coalesce(CAST(p.project_id AS text), '') = coalesce(CAST(up.project_id AS text), '')
			) SELECT `+turnColumns+` FROM up JOIN turns t ON t.id = up.id WHERE up.steps > 0 ORDER BY up.steps`, uid(id), limit).Scan(ctx, &out)
	})
	return values(out, turnRow.value), err
}

// LatestTurn reads the project's most recent completed turn, passing over what
// a person said in the session given; pulse.ErrNone.
func (s *Store) LatestTurn(ctx context.Context, project pulse.ProjectID, asking pulse.SessionID) (pulse.Turn, error) {
	if !pulse.ValidUUID(string(project)) {
		return pulse.Turn{}, pulse.ErrNone
	}
	if !pulse.ValidUUID(string(asking)) {
		asking = "00000000-0000-0000-0000-000000000000" // nobody's
	}
	var row turnRow
	err := s.view(ctx, "read latest turn", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewRaw("SELECT "+turnColumns+" FROM turns t WHERE t.project_id = ? AND t.status = 'completed'"+
			" AND NOT (t.role = 'user' AND t.session_id = ?) ORDER BY t.created_at DESC, t.id DESC LIMIT 1", uid(project), uid(asking)).Scan(ctx, &row), pulse.ErrNone)
	})
	return row.value(), err
}

// Turns reads a session's turns with everything in them, in order.
func (s *Store) Turns(ctx context.Context, id pulse.SessionID) ([]pulse.TurnDetail, error) {
	if !pulse.ValidUUID(string(id)) {
		return nil, nil
	}
	var turns []turnRow
	var messages []messageRow
	var tools []toolRow
	var thoughts []thoughtRow
	err := s.view(ctx, "read turns", func(ctx context.Context, db bun.IDB) error {
		if err := db.NewRaw("SELECT "+turnColumns+" FROM turns t WHERE t.session_id = ? ORDER BY t.created_at, t.id", uid(id)).Scan(ctx, &turns); err != nil {
			return err
		}
		const ofSession = "turn_id IN (SELECT id FROM turns WHERE session_id = ?)"
		if err := db.NewSelect().Model(&messages).Where(ofSession, uid(id)).Order("turn_id", "seq").Scan(ctx); err != nil {
			return err
		}
		if err := db.NewSelect().Model(&tools).Where(ofSession, uid(id)).Order("turn_id", "seq", "call_id").Scan(ctx); err != nil {
			return err
		}
		return db.NewSelect().Model(&thoughts).Where(ofSession, uid(id)).Order("turn_id", "seq").Scan(ctx)
	})
	if err != nil {
		return nil, err
	}
	out := make([]pulse.TurnDetail, len(turns))
	place := make(map[uid]*pulse.TurnDetail, len(turns))
	for i, t := range turns {
		out[i].Turn = t.value()
		place[t.ID] = &out[i]
	}
	for _, m := range messages {
		if d := place[m.TurnID]; d != nil { // a turn may have come between the reads
			d.Messages = append(d.Messages, m.value())
		}
	}
	for _, t := range tools {
		if d := place[t.TurnID]; d != nil {
			d.Tools = append(d.Tools, t.value())
		}
	}
	for _, h := range thoughts {
		if d := place[h.TurnID]; d != nil {
			d.Thoughts = append(d.Thoughts, h.value())
		}
	}
	return out, nil
}
