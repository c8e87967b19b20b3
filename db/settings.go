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
