package worktree

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func (f *field) park(dry bool) string {
	f.t.Helper()
	reason, err := f.trees.Park(f.t.Context(), f.tree.Key, dry, func(context.Context) (string, error) { return "", nil })
	f.must(err)
	return reason
}

// TestAPublishedTreeIsPutAwayAndComesBack: the files go, and a follow-up finds everything as it was.
func TestAPublishedTreeIsPutAwayAndComesBack(t *testing.T) {
	f := newField(t)
	f.ensure()
	f.write(f.tree.Path, "work.txt", "one\n")
	f.write(f.tree.Path, "debug.log", "ignored, so no work")
	first := f.checkpoint()
	if reason := f.park(true); reason != "" {
		t.Fatalf("not to be put away: %s", reason)
	}
	if _, err := os.Stat(filepath.Join(f.tree.Path, "work.txt")); err != nil {
		t.Fatalf("a dry run took files: %v", err)
	}
	if reason := f.park(false); reason != "" {
		t.Fatalf("not put away: %s", reason)
	}
	if _, err := os.Lstat(f.tree.Path); !os.IsNotExist(err) {
		t.Errorf("the tree is still there: %v", err)
	}
	if kept, err := f.trees.Kept(t.Context()); err != nil || len(kept) != 0 {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	tree := f.ensure()
	if b, err := os.ReadFile(filepath.Join(tree.Path, "work.txt")); string(b) != "one\n" || tree.Head != first.Commit || tree.BaseCommit == "" || tree.BaseCommit == tree.Head {
		t.Fatalf("it came back as %+v with %q, %v", tree, b, err)
	}
	f.write(tree.Path, "more.txt", "two\n")
	f.reported = first.Commit
	cp := f.checkpoint()
	if !cp.Published || cp.Commits != 1 || f.show(branch, "more.txt") != "two\n" || f.show(branch, "work.txt") != "one\n" {
		t.Errorf("the follow-up's work: %+v", cp)
	}
	f.git(f.store(), "fsck", "--strict")
}

// TestATreeWithoutWorkIsPutAway: nothing was done in it, so nothing is lost.
func TestATreeWithoutWorkIsPutAway(t *testing.T) {
	f := newField(t)
	f.ensure()
	f.checkpoint()
	if reason := f.park(false); reason != "" {
		t.Fatalf("not put away: %s", reason)
	}
	if tree := f.ensure(); tree.Head != tree.BaseCommit {
		t.Errorf("it came back as %+v", tree)
	}
}

// TestWorkIsNeverPutAway leaves everything that is not on a branch of the person's where it is.
func TestWorkIsNeverPutAway(t *testing.T) {
	for name, c := range map[string]struct {
		leave  func(f *field)
		reason string
	}{
		"a changed file": {func(f *field) { f.checkpoint(); f.write(f.tree.Path, "README.md", "later\n") }, "were not saved: \"README.md\""},
		"a new file":     {func(f *field) { f.checkpoint(); f.write(f.tree.Path, "new.txt", "later\n") }, "were not saved: \"new.txt\""},
		"a file that is gone": {func(f *field) {
			f.checkpoint()
			f.must(os.Remove(filepath.Join(f.tree.Path, "README.md")))
		}, "were not saved: \"README.md\""},
		"a commit of the agent's": {func(f *field) {
			f.checkpoint()
			f.git(f.tree.Path, "commit", "-q", "--allow-empty", "-m", "later")
		}, "commits in it that were not saved"},
		"a side branch of the agent's": {func(f *field) {
			f.checkpoint()
			f.git(f.tree.Path, "checkout", "-q", "-b", "side")
			f.git(f.tree.Path, "commit", "-q", "--allow-empty", "-m", "later")
			f.git(f.tree.Path, "checkout", "-q", branch)
		}, "commits in it that were not saved"},
		"a stash": {func(f *field) {
			f.checkpoint()
			f.write(f.tree.Path, "README.md", "stashed\n")
			f.git(f.tree.Path, "stash", "-q")
		}, "commits in it that were not saved"},
		"another repository": {func(f *field) {
			f.checkpoint()
			f.newRepo(filepath.Join(f.tree.Path, "nested"))
		}, "were not saved: \"nested/\""},
		"a branch that was checked out": {func(f *field) {
			f.git(f.repo, "branch", branch)
			f.git(f.repo, "checkout", "-q", branch)
			f.checkpoint()
		}, "on no branch"},
		"a branch that was deleted": {func(f *field) { f.checkpoint(); f.git(f.repo, "branch", "-D", branch) }, "on no branch"},
		"a repository that is gone": {func(f *field) { f.checkpoint(); f.must(os.Rename(f.repo, f.repo+"-elsewhere")) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			f.ensure()
			f.write(f.tree.Path, "work.txt", "one\n")
			c.leave(f)
			reason, err := f.trees.Park(t.Context(), f.tree.Key, false, func(context.Context) (string, error) { return "", nil })
			if err == nil && (reason == "" || !strings.Contains(reason, c.reason)) {
				t.Errorf("put away: %q, want a reason with %q", reason, c.reason)
			}
			if _, err := os.Stat(filepath.Join(f.tree.Path, "work.txt")); err != nil {
				t.Errorf("the tree was touched: %v", err)
			}
			if kept, err := f.trees.Kept(t.Context()); err != nil || len(kept) != 1 {
				t.Errorf("kept: %+v, %v", kept, err)
			}
		})
	}
}

// TestMergedWorkIsOnABranch: a session's branch that was merged and deleted is not lost work.
func TestMergedWorkIsOnABranch(t *testing.T) {
	f := newField(t)
	f.ensure()
	f.write(f.tree.Path, "work.txt", "one\n")
	f.checkpoint()
	f.git(f.repo, "merge", "-q", "--no-ff", "-m", "merge", branch)
	f.git(f.repo, "branch", "-D", branch)
	if reason := f.park(false); reason != "" {
		t.Errorf("not put away: %s", reason)
	}
}

// TestATreeThatIsWantedStays: whoever knows that the session goes on is asked while nobody can open the tree.
func TestATreeThatIsWantedStays(t *testing.T) {
	f := newField(t)
	f.ensure()
	f.checkpoint()
	reason, err := f.trees.Park(t.Context(), f.tree.Key, false, func(context.Context) (string, error) { return "it runs", nil })
	if err != nil || reason != "it runs" {
		t.Errorf("answered %q, %v", reason, err)
	}
	if tree := f.ensure(); tree.Path != f.tree.Path {
		t.Errorf("the tree is %+v", tree)
	}
}

// TestPuttingAwayIsCutShort: at every step of it the program may die; the tree comes back whole.
func TestPuttingAwayIsCutShort(t *testing.T) {
	for _, step := range []string{"both records", "files left", "names left"} {
		t.Run(step, func(t *testing.T) {
			f := newField(t)
			f.ensure()
			f.write(f.tree.Path, "work.txt", "one\n")
			head := f.checkpoint().Commit
			h, rec, err := f.trees.find(f.tree.Key)
			f.must(err)
			rec.Published = true
			f.must(keepRecord(h.parked(rec.Key), rec))
			switch step {
			case "files left":
				f.must(os.Remove(h.record(rec.Key)))
				f.must(os.Remove(filepath.Join(f.tree.Path, "work.txt")))
			case "names left":
				f.must(os.Remove(h.record(rec.Key)))
				f.must(f.trees.clear(h, rec.Key))
			}
			tree := f.ensure()
			if b, _ := os.ReadFile(filepath.Join(tree.Path, "work.txt")); string(b) != "one\n" || tree.Head != head {
				t.Errorf("it came back as %+v with %q", tree, b)
			}
			f.write(tree.Path, "more.txt", "two\n")
			if cp := f.checkpoint(); !cp.Published {
				t.Errorf("its work is not published: %+v", cp)
			}
		})
	}
}
