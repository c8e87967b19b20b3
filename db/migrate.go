package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"pulseloop/migrations"
	"pulseloop/pulse"
)

// Keys of advisory locks: arbitrary, but the same in every version.
const (
	migrateLock = 7_085_720_001
	noticeLock  = 7_085_720_002
)

// Version is the number of the last migration applied, 0 for none.
func (s *Store) Version(ctx context.Context) (int, error) {
	var version int
	err := s.view(ctx, "read schema version", func(ctx context.Context, db bun.IDB) error {
		exists, err := s.hasMigrations(ctx, db)
		if err != nil || !exists {
			return err
		}
		return db.NewRaw("SELECT coalesce(max(version), 0) FROM schema_migrations").Scan(ctx, &version)
	})
	return version, err
}

func (s *Store) hasMigrations(ctx context.Context, db bun.IDB) (bool, error) {
	query := "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations'"
	if s.pg {
		query = "SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('schema_migrations')"
	}
	var n int
	err := db.NewRaw(query).Scan(ctx, &n)
	return n > 0, err
}

func (s *Store) migrations() ([]migrations.Migration, error) {
	if s.pg {
		return migrations.List(migrations.Postgres)
	}
	return migrations.List(migrations.SQLite)
}

func (s *Store) refuseNewer(version int) error {
	list, err := s.migrations()
	if err != nil {
		return err
	}
	if version <= len(list) {
		return nil
	}
	return &pulse.Error{Code: pulse.CodeConflict,
		Message: fmt.Sprintf("the database has schema version %d, this pulse knows %d", version, len(list)),
		Hint:    "install the newer pulse again, or restore a backup from before the update"}
}

// Migrate applies what is missing, each step in a transaction of its own that
// also records it: an interrupted run goes on where it ended. Two at once
// take turns.
func (s *Store) Migrate(ctx context.Context) (int, error) {
	list, err := s.migrations()
	if err != nil {
		return 0, err
	}
	applied := 0
	for {
		var did bool
		err := s.write(ctx, "migrate database", func(ctx context.Context, w *work) error {
			did, err = s.migrateOne(ctx, w, list)
			return err
		})
		if err != nil {
			return applied, err
		}
		if !did {
			break
		}
		applied++
	}
	if applied > 0 && !s.pg {
		s.log.Info("database migrated", "steps", applied)
		return applied, s.settleLog(ctx)
	}
	return applied, nil
}

// migrateOne applies the next step, if there is one.
func (s *Store) migrateOne(ctx context.Context, w *work, list []migrations.Migration) (bool, error) {
	if s.pg {
		// Held until the end of the transaction.
		if _, err := w.raw.ExecContext(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", migrateLock)); err != nil {
			return false, err
		}
	}
	if _, err := w.raw.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS schema_migrations (
		version int PRIMARY KEY, name text NOT NULL, applied_at text NOT NULL)`); err != nil {
		return false, err
	}
	var version int
	err := w.raw.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM schema_migrations").Scan(&version)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	if err := s.refuseNewer(version); err != nil || version == len(list) {
		return false, err
	}
	next := list[version]
	if _, err := w.raw.ExecContext(ctx, next.SQL); err != nil {
		return false, fmt.Errorf("apply migration %d (%s): %w", next.Version, next.Name, err)
	}
	_, err = w.db.NewRaw("INSERT INTO schema_migrations (version, name, applied_at) VALUES (?, ?, ?)",
		next.Version, next.Name, w.at.Format(stampLayout)).Exec(ctx)
	return true, err
}

// settleLog moves the schema from the write-ahead log into the file, so that
// the file by itself is never an empty database.
func (s *Store) settleLog(ctx context.Context) error {
	db, err := openLite(s.lite.path, false, 1)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "PRAGMA wal_checkpoint(FULL)")
	return errors.Join(err, db.Close())
}
