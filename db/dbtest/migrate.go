package dbtest

import (
	"testing"
	"time"

	"pulseloop/db"
	"pulseloop/pulse"
)

func testMigrations(t *testing.T, open func(testing.TB) Place) {
	t.Run("an empty database says so", func(t *testing.T) {
		s := open(t).Open(t, nil)
		v, err := s.Version(t.Context())
		mustBe(t, err, nil, "version")
		equal(t, v, 0, "version")
		_, err = s.Projects(t.Context())
		mustCode(t, err, pulse.CodeUnavailable, "a read without a schema")
		mustBe(t, s.Ping(t.Context()), nil, "ping")
	})
	t.Run("existing data stays", func(t *testing.T) { migrateTwice(t, open(t)) })
	t.Run("two at once", func(t *testing.T) { migrateTogether(t, open(t)) })
	t.Run("interrupted", func(t *testing.T) { migrateInterrupted(t, open(t)) })
	t.Run("a newer schema is refused", func(t *testing.T) { newerSchema(t, open(t)) })
}

func migrateTwice(t *testing.T, place Place) {
	f := newFixture(t, place)
	s := f.addSession()
	n, err := f.Migrate(t.Context())
	mustBe(t, err, nil, "migrate again")
	equal(t, n, 0, "steps applied")
	mustBe(t, f.Close(), nil, "close")
	mustBe(t, f.Close(), nil, "close again")
	again := place.Open(t, f.clock.Now)
	n, err = again.Migrate(t.Context())
	mustBe(t, err, nil, "migrate after a restart")
	equal(t, n, 0, "steps applied")
	got, err := again.Session(t.Context(), s.ID)
	mustBe(t, err, nil, "read")
	equal(t, got.Goal, s.Goal, "goal")
}

func migrateTogether(t *testing.T, place Place) {
	stores := []*db.Store{place.Open(t, nil)}
	if place.Postgres { // a SQLite file has one process
		stores = append(stores, place.Open(t, nil), place.Open(t, nil))
	}
	applied := make([]int, 6)
	noErrors(t, together(len(applied), func(i int) (err error) {
		applied[i], err = stores[i%len(stores)].Migrate(t.Context())
		return err
	}))
	sum := 0
	for _, n := range applied {
		sum += n
	}
	v, err := stores[0].Version(t.Context())
	mustBe(t, err, nil, "version")
	equal(t, sum, v, "every step applied once")
}

// migrateInterrupted has the first step fail half way: a table of it exists.
func migrateInterrupted(t *testing.T, place Place) {
	s := place.Open(t, nil)
	place.Exec(t, "CREATE TABLE audit_head (id int)")
	_, err := s.Migrate(t.Context())
	if err == nil {
		t.Fatal("a step that cannot be applied was reported as applied")
	}
	_, err = s.Projects(t.Context())
	mustCode(t, err, pulse.CodeUnavailable, "nothing of the failed step is left")
	place.Exec(t, "DROP TABLE audit_head")
	n, err := s.Migrate(t.Context())
	mustBe(t, err, nil, "migrate when the obstacle is gone")
	equal(t, n > 0, true, "steps applied")
}

func newerSchema(t *testing.T, place Place) {
	s := migrated(t, place, time.Now)
	place.Exec(t, "INSERT INTO schema_migrations (version, name, applied_at) VALUES (999, 'of the future', '')")
	_, err := s.Migrate(t.Context())
	mustCode(t, err, pulse.CodeConflict, "migrate")
	mustBe(t, s.Close(), nil, "close")
	_, err = db.Open(t.Context(), place.Config)
	mustCode(t, err, pulse.CodeConflict, "open")
}
