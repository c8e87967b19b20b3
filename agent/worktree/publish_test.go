package worktree

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPublishedAndNotNoted is a process that died between moving the branch and noting where it left it: the branch goes on
// from there, and a branch that somebody put elsewhere still does not.
func TestPublishedAndNotNoted(t *testing.T) {
	for name, first := range map[string]bool{"the first time": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			tree := f.ensure()
			noted := ""
			if !first {
				f.write(tree.Path, "x", "0")
				noted = f.checkpoint().Commit
			}
			f.write(tree.Path, "x", "1")
			left := f.checkpoint().Commit
			h, _, err := f.trees.find("s1")
			f.must(err)
			forget := func() {
				if first {
					f.git(h.store(), "update-ref", "-d", publishedRef("s1"))
					return
				}
				f.git(h.store(), "update-ref", publishedRef("s1"), noted)
			}
			forget()
			f.write(tree.Path, "x", "2")
			cp := f.checkpoint()
			if !cp.Published || f.git(f.repo, "rev-parse", branch) != cp.Commit || f.git(f.repo, "rev-parse", branch+"~1") != left {
				t.Errorf("checkpoint = %+v", cp)
			}

			forget()
			f.git(f.repo, "branch", "-f", branch, f.git(f.repo, "commit-tree", "-p", left, "-m", "a person's", left+"^{tree}"))
			same := f.untouched()
			f.write(tree.Path, "x", "3")
			if cp = f.checkpoint(); cp.Published {
				t.Errorf("a person's commit was passed over: %+v", cp)
			}
			same()
		})
	}
}

// TestLockOfAKilledGit is a git of ours that was killed while it moved the branch.
func TestLockOfAKilledGit(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.write(tree.Path, "x", "1")
	f.checkpoint()
	lock := filepath.Join(f.repo, ".git/refs/heads", branch+".lock")
	f.write(f.repo, ".git/refs/heads/"+branch+".lock", "")
	other := filepath.Join(f.repo, ".git/index.lock")
	f.write(f.repo, ".git/index.lock", "")
	old := time.Now().Add(-time.Minute)
	f.must(os.Chtimes(lock, old, old))
	f.must(os.Chtimes(other, old, old))
	h, _, err := f.trees.find("s1")
	f.must(err)
	f.must(os.WriteFile(h.pushing("s1"), nil, 0o600))
	f.write(tree.Path, "x", "2")
	if cp := f.checkpoint(); !cp.Published || f.git(f.repo, "rev-parse", branch) != cp.Commit {
		t.Errorf("checkpoint = %+v", cp)
	}
	if _, err := os.Lstat(other); err != nil {
		t.Errorf("a lock that is not ours: %v", err)
	}
}
