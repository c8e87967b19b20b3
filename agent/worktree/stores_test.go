package worktree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAStoreIsPackedAndLosesNothing: many small things become few, and what no name leads to stays, since a tree may borrow it.
func TestAStoreIsPackedAndLosesNothing(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	if n, err := f.trees.Repack(t.Context()); n != 0 || err != nil {
		t.Errorf("a new store is packed %d times, %v", n, err)
	}
	for i := range 40 {
		f.write(tree.Path, fmt.Sprintf("f%d.txt", i), strings.Repeat("x", i))
		for j := range 40 {
			f.write(tree.Path, fmt.Sprintf("d%d/%d.txt", i, j), fmt.Sprint(i, " ", j))
		}
		if i%13 == 0 {
			f.checkpoint()
		}
	}
	cp := f.checkpoint()
	cmd := f.git(f.store(), "hash-object", "-w", "--stdin", "--path=x", filepath.Join(tree.Path, "f1.txt"))
	lost := strings.Fields(cmd)[0] // an object without a name
	dead := filepath.Join(f.store(), "objects", "pack", "tmp_pack_dead")
	f.must(os.WriteFile(dead, []byte("half"), 0o600))
	f.must(os.Chtimes(dead, time.Now().Add(-2*deadPack), time.Now().Add(-2*deadPack)))
	h, _, err := f.trees.find(tree.Key)
	f.must(err)
	before := f.git(f.store(), "count-objects")
	n, err := f.trees.Repack(t.Context())
	f.must(err)
	loose, packs := h.pieces()
	if n != 1 || loose >= maxLooseObjects || packs >= maxSmallPacks {
		t.Errorf("packed %d stores; %d loose objects and %d packs are left (before: %s)", n, loose, packs, before)
	}
	for _, id := range []string{lost, cp.Commit, tree.BaseCommit} {
		if !f.has(f.store(), id) {
			t.Errorf("%s is lost", id)
		}
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("what a killed git left is still there: %v", err)
	}
	f.git(f.store(), "fsck", "--strict")
	f.git(tree.Path, "fsck")
	f.write(tree.Path, "after.txt", "after\n")
	if cp := f.checkpoint(); !cp.Published {
		t.Errorf("after packing: %+v", cp)
	}
}

// TestAStoreWithWorkStays: a store goes only if all of it is on the person's branches.
func TestAStoreWithWorkStays(t *testing.T) {
	f := newField(t)
	f.ensure()
	f.write(f.tree.Path, "work.txt", "one\n")
	f.checkpoint()
	dir := filepath.Dir(f.store())
	remove := func(dry bool) string {
		t.Helper()
		reason, err := f.trees.RemoveStore(t.Context(), dir, dry)
		f.must(err)
		return reason
	}
	if reason := remove(false); !strings.Contains(reason, "1 trees hang on it") {
		t.Errorf("with a tree: %q", reason)
	}
	if reason := f.park(false); reason != "" {
		t.Fatal(reason)
	}
	all, err := f.trees.Stores(t.Context())
	f.must(err)
	if len(all) != 1 || all[0].Repo != f.repo || all[0].Trees != 0 || all[0].Parked != 1 || all[0].Dir != dir {
		t.Errorf("stores: %+v", all)
	}
	if at, err := f.trees.StoreOf(t.Context(), f.repo); err != nil || at != dir {
		t.Errorf("the store of the repository is %s, %v", at, err)
	}
	tip := f.git(f.repo, "rev-parse", branch)
	f.git(f.repo, "branch", "-D", branch)
	if reason := remove(false); !strings.Contains(reason, "is on no branch of") {
		t.Errorf("with work that is on no branch: %q", reason)
	}
	f.git(f.repo, "branch", "other", tip)
	f.must(os.Rename(f.repo, f.repo+"-away"))
	if reason := remove(false); !strings.Contains(reason, "is gone, and this holds work") {
		t.Errorf("without the repository: %q", reason)
	}
	f.must(os.Rename(f.repo+"-away", f.repo))
	if reason := remove(true); reason != "" {
		t.Errorf("would not be removed: %s", reason)
	}
	if _, err := os.Stat(filepath.Join(dir, "store.git")); err != nil {
		t.Errorf("a dry run removed it: %v", err)
	}
	if reason := remove(false); reason != "" {
		t.Errorf("not removed: %s", reason)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	for _, bad := range []string{"/", f.dir, filepath.Join(f.dir, "data", "repos"), filepath.Join(f.dir, "data", "repos", "..", "worktrees")} {
		if reason, err := f.trees.RemoveStore(t.Context(), bad, false); err == nil && reason == "" {
			t.Errorf("%s was removed as a store", bad)
		}
	}
}
