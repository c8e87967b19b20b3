package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pulseloop/configs"
	"pulseloop/db"
)

func TestDoctorCountsWhatGathers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	cfg := configs.Config{DataDir: t.TempDir()}
	says := func(parts ...string) {
		t.Helper()
		f := checkLeftovers(t.Context(), cfg)[0]
		for _, part := range parts {
			if f.State != stateOK || !strings.Contains(f.Detail, part) {
				t.Errorf("%+v does not say %q", f, part)
			}
		}
	}
	says("0 worktrees", "stores of 0")
	for _, dir := range []string{"worktrees/a", "worktrees/b", "repos/x", "caches/y"} {
		if err := os.MkdirAll(filepath.Join(cfg.DataDir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(os.TempDir(), "pulse-1.lock"), []byte("scratch directory of pulse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says("2 worktrees", "stores of 1", "caches of 1", "1 temporary directories of killed programs")
}

// TestRetentionReachesTheStore: each key is the one of its name.
func TestRetentionReachesTheStore(t *testing.T) {
	got := retention(configs.Retention{Events: "1d", Turns: "2d", Prompts: "3d", Messages: "4d", Deltas: "5m", Worktrees: "6d"})
	day := 24 * time.Hour
	if want := (db.Retention{Events: day, Turns: 2 * day, Prompts: 3 * day, Messages: 4 * day, Deltas: 5 * time.Minute}); got != want {
		t.Errorf("the store is told %+v", got)
	}
}
