package e2etest

import (
	"database/sql"
	"path/filepath"
	"testing"

	"pulseloop/db"
	"pulseloop/db/dbtest"
)

// Databases runs a test on SQLite and on PostgreSQL, at once. The address is for Options.Database; each PostgreSQL one is a
// schema of its own. Where there is no PostgreSQL that half is skipped with a message, and fails in CI.
func Databases(t *testing.T, test func(t *testing.T, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, Postgres(t))
	})
}

// Postgres is a schema of its own for Options.Database, for what needs PostgreSQL.
func Postgres(t testing.TB) string {
	t.Helper()
	return dbtest.NewPostgres(t).Config.URL
}

// DB opens the program's database past the program.
func (p *Pulse) DB() *sql.DB {
	p.t.Helper()
	place := dbtest.Place{Config: db.Config{Path: filepath.Join(p.DataDir, "pulse.db")}}
	if p.opt.Database != "" {
		place = dbtest.Place{Config: db.Config{URL: p.opt.Database}, Postgres: true}
	}
	return place.Raw(p.t)
}

// Count is the one number that a query gives.
func (p *Pulse) Count(query string, args ...any) int {
	p.t.Helper()
	var n int
	if err := p.DB().QueryRowContext(Context(p.t), query, args...).Scan(&n); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
	return n
}
