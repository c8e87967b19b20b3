package db

import (
	"context"
	"slices"
	"sync"
	"time"

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

// renewAfter is how old a daemon's row may grow before it is written again. A
// daemon asks for its routes whenever a task may be there, and that task
// should not wait for a commit that says the same as the one before.
const renewAfter = 5 * time.Second

// presence is what this process has written of its daemons.
type presence struct {
	mu      sync.Mutex
	written map[pulse.DaemonID]pulse.Daemon
}

func (p *presence) fresh(d pulse.Daemon) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.written[d.ID]
	age := d.SeenAt.Sub(w.SeenAt)
	return ok && age >= 0 && age < renewAfter && w.Host == d.Host && w.Version == d.Version && w.Slots == d.Slots && slices.Equal(w.Agents, d.Agents)
}

func (p *presence) note(d pulse.Daemon) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written == nil {
		p.written = map[pulse.DaemonID]pulse.Daemon{}
	}
	d.Agents = slices.Clone(d.Agents)
	p.written[d.ID] = d
}

// Enlist writes or renews the daemon's row and answers which routes it
// serves: its own, and those of every project.
func (s *Store) Enlist(ctx context.Context, d pulse.Daemon) ([]string, error) {
	if d.ID == "" {
		return nil, pulse.Invalid("a daemon has no name", "")
	}
	var projects []uid
	var err error
	if s.present.fresh(d) {
		err = s.view(ctx, "read routes", func(ctx context.Context, db bun.IDB) error {
			return db.NewRaw(projectIDs).Scan(ctx, &projects)
		})
	} else {
		projects, err = s.enlist(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	routes := []string{pulse.DaemonRoute(d.ID)}
	for _, p := range projects {
		routes = append(routes, pulse.ProjectRoute(pulse.ProjectID(p)))
	}
	return routes, nil
}

const projectIDs = "SELECT id FROM projects ORDER BY name"

func (s *Store) enlist(ctx context.Context, d pulse.Daemon) (projects []uid, err error) {
	err = s.write(ctx, "enlist daemon", func(ctx context.Context, w *work) error {
		projects = nil
		row := daemonRow{ID: text(d.ID), Host: text(d.Host), Version: text(d.Version), Slots: d.Slots, Agents: doc[[]string]{orEmpty(d.Agents)}, SeenAt: w.orNow(d.SeenAt)}
		_, err := w.db.NewInsert().Model(&row).On("CONFLICT (id) DO UPDATE").
			Set("host = EXCLUDED.host, version = EXCLUDED.version, slots = EXCLUDED.slots, agents = EXCLUDED.agents, seen_at = EXCLUDED.seen_at").Exec(ctx)
		if err != nil {
			return err
		}
		return w.db.NewRaw(projectIDs).Scan(ctx, &projects)
	})
	if err == nil {
		s.present.note(d)
	}
	return projects, err
}

// Daemons lists every daemon that was ever enlisted, last seen first.
func (s *Store) Daemons(ctx context.Context) ([]pulse.Daemon, error) {
	var out []daemonRow
	err := s.view(ctx, "list daemons", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&out).Order("seen_at DESC", "id").Scan(ctx)
	})
	return values(out, daemonRow.value), err
}
