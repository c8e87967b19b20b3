package db

import (
	"context"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type projectRow struct {
	bun.BaseModel `bun:"table:projects,alias:p"`

	ID         uid `bun:",pk"`
	Name       text
	Path       text
	BaseBranch text
	Agent      text
	CreatedAt  stamp
}

func (r projectRow) value() pulse.Project {
	return pulse.Project{ID: pulse.ProjectID(r.ID), Name: string(r.Name), Path: string(r.Path),
		BaseBranch: string(r.BaseBranch), Agent: string(r.Agent), CreatedAt: r.CreatedAt.Time}
}

func (w *work) putProject(ctx context.Context, p pulse.Project) error {
	row := projectRow{ID: uid(p.ID), Name: text(p.Name), Path: text(p.Path), BaseBranch: text(p.BaseBranch),
		Agent: text(p.Agent), CreatedAt: w.orNow(p.CreatedAt)}
	_, err := w.db.NewInsert().Model(&row).On("CONFLICT (id) DO UPDATE").
		Set("name = EXCLUDED.name, path = EXCLUDED.path, base_branch = EXCLUDED.base_branch, agent = EXCLUDED.agent").Exec(ctx)
	return err
}

// Project reads a project; pulse.CodeNotFound.
func (s *Store) Project(ctx context.Context, id pulse.ProjectID) (pulse.Project, error) {
	missing := pulse.NotFound("there is no project "+clip(string(id), 60), "list them with: pulse projects")
	if !pulse.ValidUUID(string(id)) {
		return pulse.Project{}, missing
	}
	return s.project(ctx, missing, "id = ?", uid(id))
}

// ProjectByName reads a project; pulse.CodeNotFound.
func (s *Store) ProjectByName(ctx context.Context, name string) (pulse.Project, error) {
	missing := pulse.NotFound("there is no project "+clip(name, 60), "list them with: pulse projects")
	return s.project(ctx, missing, "name = ?", text(name))
}

func (s *Store) project(ctx context.Context, missing error, where string, arg any) (pulse.Project, error) {
	var row projectRow
	err := s.view(ctx, "read project", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewSelect().Model(&row).Where(where, arg).Scan(ctx), missing)
	})
	return row.value(), err
}

// Projects lists every project by name.
func (s *Store) Projects(ctx context.Context) ([]pulse.Project, error) {
	var rows []projectRow
	err := s.view(ctx, "list projects", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&rows).Order("name").Scan(ctx)
	})
	return values(rows, projectRow.value), err
}

// values turns rows into what callers see.
func values[R, V any](rows []R, value func(R) V) []V {
	out := make([]V, 0, len(rows))
	for _, r := range rows {
		out = append(out, value(r))
	}
	return out
}
