package db

import (
	"context"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type daemonRow struct {
	bun.BaseModel `bun:"table:daemons,alias:d"`

	ID      text `bun:",pk"`
	Host    text
	Version text
	Slots   int
	Agents  doc[[]string]
	SeenAt  stamp
}

func (r daemonRow) value() pulse.Daemon {
	return pulse.Daemon{ID: pulse.DaemonID(r.ID), Host: string(r.Host), Version: string(r.Version), Slots: r.Slots, Agents: r.Agents.V, SeenAt: r.SeenAt.Time}
}

// Enlist writes or renews the daemon's row and answers which routes it
// serves: its own, and those of every project.
func (s *Store) Enlist(ctx context.Context, d pulse.Daemon) ([]string, error) {
	if d.ID == "" {
		return nil, pulse.Invalid("a daemon has no name", "")
	}
	var projects []uid
	err := s.write(ctx, "enlist daemon", func(ctx context.Context, w *work) error {
		projects = nil
		row := daemonRow{ID: text(d.ID), Host: text(d.Host), Version: text(d.Version), Slots: d.Slots, Agents: doc[[]string]{orEmpty(d.Agents)}, SeenAt: w.orNow(d.SeenAt)}
		_, err := w.db.NewInsert().Model(&row).On("CONFLICT (id) DO UPDATE").
			Set("host = EXCLUDED.host, version = EXCLUDED.version, slots = EXCLUDED.slots, agents = EXCLUDED.agents, seen_at = EXCLUDED.seen_at").Exec(ctx)
		if err != nil {
			return err
		}
		return w.db.NewRaw("SELECT id FROM projects ORDER BY name").Scan(ctx, &projects)
	})
	if err != nil {
		return nil, err
	}
	routes := []string{pulse.DaemonRoute(d.ID)}
	for _, p := range projects {
		routes = append(routes, pulse.ProjectRoute(pulse.ProjectID(p)))
	}
	return routes, nil
}

// Daemons lists every daemon that was ever enlisted, last seen first.
func (s *Store) Daemons(ctx context.Context) ([]pulse.Daemon, error) {
	var out []daemonRow
	err := s.view(ctx, "list daemons", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&out).Order("seen_at DESC", "id").Scan(ctx)
	})
	return values(out, daemonRow.value), err
}
