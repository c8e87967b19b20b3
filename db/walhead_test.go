package db_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"pulseloop/db"
	"pulseloop/db/dbtest"
)

// TestADamagedLogIsRefused damages a killed program's write-ahead log, of which SQLite itself says nothing.
func TestADamagedLogIsRefused(t *testing.T) {
	from := dbtest.NewSQLite(t)
	live := from.Open(t, nil)
	if _, err := live.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		damage  func(log []byte) []byte
		refused bool
	}{
		"none":          {func(log []byte) []byte { return log }, false},
		"never written": {func([]byte) []byte { return make([]byte, 4096) }, false},
		"too short":     {func(log []byte) []byte { return log[:20] }, false},
		"magic":         {func(log []byte) []byte { log[0] ^= 1; return log }, true},
		"salt":          {func(log []byte) []byte { log[17] ^= 1; return log }, true},
		"sum":           {func(log []byte) []byte { log[31] ^= 1; return log }, true},
		"a first page":  {func(log []byte) []byte { log[32+24+5] ^= 1; return log }, true},
		"a page within": {func(log []byte) []byte { log[len(log)/2] ^= 1; return log }, true},
		"the last page": {func(log []byte) []byte { log[len(log)-1] ^= 1; return log }, false}, // as a power cut may leave it
		"torn":          {func(log []byte) []byte { return log[:len(log)-1000] }, false},
	} {
		t.Run(name, func(t *testing.T) {
			place := dbtest.NewSQLite(t)
			for _, suffix := range []string{"", "-wal", ".lock"} { // as a kill now would leave them
				content, err := os.ReadFile(from.Config.Path + suffix)
				if err != nil {
					t.Fatal(err)
				}
				if suffix == "-wal" {
					if len(content) < 4096 {
						t.Fatalf("the log has %d bytes: nothing would be shown", len(content))
					}
					content = c.damage(content)
				}
				if err := os.WriteFile(place.Config.Path+suffix, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := db.Open(context.Background(), place.Config)
			if err == nil {
				defer s.Close()
			}
			if c.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "damaged") {
				t.Errorf("refused: %v, want %v", err, c.refused)
			}
		})
	}
}
