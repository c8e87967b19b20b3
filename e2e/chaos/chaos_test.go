package chaos

import (
	"testing"

	"pulseloop/db/dbtest"
)

// TestStorm is the whole harness, once for each way of setting the program up.
func TestStorm(t *testing.T) {
	for _, s := range []setup{
		{name: "everything in one process on SQLite", share: 0.4},
		{name: "everything in one process on PostgreSQL", postgres: true, share: 0.24},
		{name: "a server and two daemons on PostgreSQL", postgres: true, split: true, share: 0.36},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			stormOf(t, s)
		})
	}
}

func postgres(t *testing.T) string { return dbtest.NewPostgres(t).Config.URL }
