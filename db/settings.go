package db

import (
	"context"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

// Setting reads a stored setting; pulse.ErrNone if it was never saved.
func (s *Store) Setting(ctx context.Context, key string) (string, error) {
	var value string
	err := s.view(ctx, "read setting", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewRaw("SELECT value FROM settings WHERE key = ?", text(key)).Scan(ctx, &value), pulse.ErrNone)
	})
	return value, err
}

// SaveSetting stores a setting.
func (s *Store) SaveSetting(ctx context.Context, key, value string) error {
	return s.write(ctx, "save setting", func(ctx context.Context, w *work) error {
		_, err := w.db.NewRaw("INSERT INTO settings (key, value, updated_at) VALUES (?, ?, "+w.now(0)+")"+
			" ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, updated_at = EXCLUDED.updated_at", text(key), text(value)).Exec(ctx)
		return err
	})
}

// Counts says how many records are in which state, under names such as
// "sessions_running", "tasks_queued", "notices_dead", "inbound_pending".
func (s *Store) Counts(ctx context.Context) (map[string]int64, error) {
	var out []struct {
		Name string
		N    int64
	}
	err := s.view(ctx, "count records", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw(`SELECT 'sessions_' || status AS name, count(*) AS n FROM pulse_sessions GROUP BY status
			UNION ALL SELECT 'tasks_' || status, count(*) FROM inbox_tasks GROUP BY status
			UNION ALL SELECT 'notices_' || status, count(*) FROM notifications GROUP BY status
			UNION ALL SELECT 'gates_' || status, count(*) FROM gates GROUP BY status
			UNION ALL SELECT 'inbound_pending', count(*) FROM inbound_updates WHERE handled_at IS NULL
			UNION ALL SELECT 'operators', count(*) FROM operators`).Scan(ctx, &out)
	})
	counts := make(map[string]int64, len(out))
	for _, c := range out {
		counts[c.Name] = c.N
	}
	return counts, err
}
