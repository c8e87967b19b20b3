package tidy_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pulseloop/agent/tidy"
	"pulseloop/pulse"
)

// Projects are those of the database.
func (b *book) Projects(context.Context) ([]pulse.Project, error) { return b.projects, nil }

func (y *yard) clean(cfg tidy.CleanConfig) map[string]tidy.Leftover {
	y.t.Helper()
	cfg.Data, cfg.Trees, cfg.Still = y.data, y.trees, time.Minute
	found, err := tidy.Clean(y.t.Context(), cfg)
	if err != nil {
		y.t.Fatal(err)
	}
	out := map[string]tidy.Leftover{}
	for _, l := range found {
		out[l.Path] = l
	}
	return out
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestWhatIsNoProjectAnyMore: its caches go, its store is told of and goes when that is asked for, if all of it is on its branches.
func TestWhatIsNoProjectAnyMore(t *testing.T) {
	y := newYard(t)
	tree, _ := y.tree("over", pulse.SessionComplete, time.Hour)
	cacheOf := func(repo string) string {
		sum := sha256.Sum256([]byte(repo))
		dir := filepath.Join(y.data, "caches", hex.EncodeToString(sum[:8]))
		if err := os.MkdirAll(filepath.Join(dir, "go-build"), 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	mine, other := cacheOf(y.repo), cacheOf("/gone")
	store, err := y.trees.StoreOf(t.Context(), y.repo)
	if err != nil {
		t.Fatal(err)
	}
	y.book.projects = []pulse.Project{{Name: "p", Path: y.repo}}
	found := y.clean(tidy.CleanConfig{Known: y.book, Stores: true})
	if _, listed := found[store]; listed || !there(mine) || there(other) || there(tree) {
		t.Errorf("with its project: %+v; caches %v %v, tree %v", found, there(mine), there(other), there(tree))
	}
	y.book.projects = nil
	if found = y.clean(tidy.CleanConfig{Known: y.book, Projects: []string{y.repo}, Stores: true}); !there(mine) || !there(store) {
		t.Errorf("with its project in the configuration: %+v", found)
	}
	if found = y.clean(tidy.CleanConfig{Known: y.book}); !strings.Contains(found[store].Why, "--stores") || found[store].Removed || !there(store) || there(mine) {
		t.Errorf("without: %+v", found)
	}
	if found = y.clean(tidy.CleanConfig{Known: y.book, Stores: true, Dry: true}); !found[store].Removed || !there(store) {
		t.Errorf("a dry run: %+v", found)
	}
	if found = y.clean(tidy.CleanConfig{Known: y.book, Stores: true}); !found[store].Removed || found[store].Bytes == 0 || there(store) {
		t.Errorf("asked for: %+v", found)
	}
}

// TestNothingIsTakenOnSuspicion: without a database, and for trees of nobody, nothing goes.
func TestNothingIsTakenOnSuspicion(t *testing.T) {
	y := newYard(t)
	tree, _ := y.tree("over", pulse.SessionComplete, time.Hour)
	strange := filepath.Join(y.data, "worktrees", "by-hand")
	cache := filepath.Join(y.data, "caches", "0123456789abcdef")
	for _, dir := range []string{strange, cache} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	found := y.clean(tidy.CleanConfig{Stores: true})
	for path, why := range map[string]string{tree: "no database", strange: "not known what it holds"} {
		if !strings.Contains(found[path].Why, why) || found[path].Removed || !there(path) {
			t.Errorf("%s: %+v", path, found[path])
		}
	}
	if !there(cache) || !there(filepath.Join(y.data, "repos")) {
		t.Error("something went")
	}
	delete(y.book.sessions, "over")
	if found = y.clean(tidy.CleanConfig{Known: y.book}); !strings.Contains(found[tree].Why, "not in this database") || !there(tree) {
		t.Errorf("a tree of another database: %+v", found[tree])
	}
}

// deaf knows sessions and takes no commits, as the API does.
type deaf struct{ b *book }

func (d deaf) Session(ctx context.Context, id pulse.SessionID) (pulse.Session, error) {
	return d.b.Session(ctx, id)
}
func (d deaf) Projects(ctx context.Context) ([]pulse.Project, error) { return d.b.Projects(ctx) }

// TestCommitsAreCountedBeforeTheirTreeGoes: who cannot count them leaves the tree to the daemon.
func TestCommitsAreCountedBeforeTheirTreeGoes(t *testing.T) {
	y := newYard(t)
	tree, head := y.tree("aborted", pulse.SessionAborted, time.Hour)
	s := y.book.sessions["aborted"]
	s.HeadCommit = ""
	y.book.sessions["aborted"] = s
	if l := y.clean(tidy.CleanConfig{Known: deaf{y.book}})[tree]; l.Removed || !strings.Contains(l.Why, "not on record yet") || !there(tree) {
		t.Errorf("nobody counts: %+v", l)
	}
	if l := y.clean(tidy.CleanConfig{Known: y.book})[tree]; !l.Removed || there(tree) || y.book.reported["aborted"] != 1 || y.book.sessions["aborted"].HeadCommit != head {
		t.Errorf("counted %v: %+v", y.book.reported, l)
	}
}
