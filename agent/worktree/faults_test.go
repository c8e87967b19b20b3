package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pulseloop/internal/scratch"
	"pulseloop/pulse"
)

func TestReopenGivesTheTreeAsItWas(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.ownCommit(tree.Path)
	f.write(tree.Path, "dirty", "dirty\n")
	head := f.git(tree.Path, "rev-parse", "HEAD")
	f.write(f.repo, "more", "x")
	f.git(f.repo, "add", "-A")
	f.git(f.repo, "commit", "-q", "-m", "base moved")
	f.trees = f.open(Config{}) // the program was started again
	again, err := f.trees.Ensure(t.Context(), f.want("s1"))
	f.must(err)
	if again != tree {
		t.Errorf("reopened %+v, want %+v", again, tree)
	}
	if f.git(tree.Path, "rev-parse", "HEAD") != head || f.git(tree.Path, "status", "--porcelain") != "?? dirty" {
		t.Error("the agent's work was touched")
	}
	if cp := f.checkpoint(); cp.Commits != 2 || f.git(f.repo, "merge-base", "main", branch) != tree.BaseCommit {
		t.Errorf("checkpoint = %+v", cp)
	}
	// A new tree starts where the base is now.
	w := f.want("s2")
	w.Branch = "pulse/two"
	two, err := f.trees.Ensure(t.Context(), w)
	f.must(err)
	if two.BaseCommit != f.git(f.repo, "rev-parse", "main") {
		t.Error("the second tree starts at the old base")
	}
}

func TestEnsureFinishesWhatWasBegun(t *testing.T) {
	for name, damage := range map[string]func(f *field, h home){
		"record only": func(f *field, h home) {
			f.must(errors.Join(scratch.RemoveAll(h.store()), scratch.RemoveAll(f.tree.Path)))
			f.unready(h)
		},
		"store half built": func(f *field, h home) { f.must(os.Rename(h.store(), h.store()+".new")); f.unready(h) },
		"tree half filled": func(f *field, h home) { f.must(os.RemoveAll(filepath.Join(f.tree.Path, "src"))); f.unready(h) },
		"no .git yet":      func(f *field, h home) { f.must(os.RemoveAll(filepath.Join(f.tree.Path, ".git"))); f.unready(h) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			f.ensure()
			h, _, err := f.trees.find("s1")
			f.must(err)
			damage(f, h)
			_, err = f.trees.Checkpoint(t.Context(), f.tree, Save{})
			if pulse.CodeOf(err) != pulse.CodeConflict {
				t.Errorf("checkpoint of a half made tree: %v", err)
			}
			again, err := f.trees.Ensure(t.Context(), f.want("s1"))
			f.must(err)
			if again != f.tree || f.git(again.Path, "status", "--porcelain") != "" {
				t.Errorf("finished %+v, want %+v", again, f.tree)
			}
			f.write(again.Path, "x", "1")
			if cp := f.checkpoint(); cp.Commits != 1 || !cp.Published {
				t.Errorf("checkpoint = %+v", cp)
			}
		})
	}
}

// unready makes the record say what it says while a tree is being made.
func (f *field) unready(h home) {
	rec, err := h.load("s1")
	f.must(err)
	rec.Ready = false
	f.must(h.keep(rec))
}

func TestReopenAfterDamage(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.write(tree.Path, "x", "1")
	cp := f.checkpoint()
	h, _, err := f.trees.find("s1")
	f.must(err)

	f.must(errors.Join(scratch.RemoveAll(tree.Path), scratch.RemoveAll(h.index("s1"))))
	again, err := f.trees.Ensure(t.Context(), f.want("s1"))
	f.must(err)
	if again.Head != cp.Commit || f.git(tree.Path, "rev-parse", "HEAD") != cp.Commit || f.git(tree.Path, "status", "--porcelain") != "" {
		t.Errorf("made again at %+v", again)
	}

	f.write(tree.Path, "dirty", "d")
	f.must(os.RemoveAll(filepath.Join(tree.Path, ".git")))
	f.must(os.WriteFile(h.index("s1"), []byte("not an index"), 0o600))
	_, err = f.trees.Ensure(t.Context(), f.want("s1"))
	f.must(err)
	if st := f.git(tree.Path, "status", "--porcelain"); st != "?? dirty" {
		t.Errorf("after the loss of .git: %q", st)
	}

	f.must(scratch.RemoveAll(tree.Path))
	if cp = f.checkpoint(); cp.Commits != 0 || !cp.Published {
		t.Errorf("checkpoint of a tree that is gone = %+v", cp)
	}
	f.wantNote(cp, "made again")

	f.must(scratch.RemoveAll(h.store()))
	_, err = f.trees.Ensure(t.Context(), f.want("s1"))
	if err == nil || !strings.Contains(err.Error(), "lost the work") {
		t.Errorf("without its store: %v", err)
	}
}

func TestCheckpointAfterACrashInTheMiddle(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.ownCommit(tree.Path)
	f.write(tree.Path, "left", "left")
	h, rec, err := f.trees.find("s1")
	f.must(err)
	// The refs moved and then the power went: the .git is still the old one,
	// and between its two renames it is nowhere.
	old := filepath.Join(f.dir, "old.git")
	f.must(os.CopyFS(old, os.DirFS(filepath.Join(tree.Path, ".git"))))
	w, err := f.trees.gather(t.Context(), h, rec, Save{Subject: "x"})
	f.must(err)
	f.must(os.Rename(filepath.Join(tree.Path, ".git"), h.retired("s1")))
	f.must(os.Rename(old, filepath.Join(tree.Path, ".git")))
	f.must(os.MkdirAll(h.intake("s1"), 0o700))
	cp := f.checkpoint()
	if cp.Commit != w.head || cp.Commits != 2 || !cp.Published || len(cp.Archived) != 0 {
		t.Errorf("checkpoint = %+v, want head %s", cp, w.head)
	}
	f.must(os.Rename(filepath.Join(tree.Path, ".git"), h.retired("s1")))
	_, err = f.trees.Ensure(t.Context(), f.want("s1"))
	f.must(err)
	if f.git(tree.Path, "status", "--porcelain") != "" {
		t.Error("dirty after the crash")
	}
}

func TestLocksLeftBehindAreCleared(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.write(tree.Path, "x", "1")
	h, _, err := f.trees.find("s1")
	f.must(err)
	for _, p := range []string{h.index("s1"), filepath.Join(h.store(), "packed-refs"), filepath.Join(h.store(), headRef("s1")), filepath.Join(h.store(), "HEAD"),
		filepath.Join(tree.Path, ".git/index"), filepath.Join(tree.Path, ".git/refs/heads", branch)} {
		f.must(os.MkdirAll(filepath.Dir(p), 0o755))
		f.must(os.WriteFile(p+".lock", nil, 0o600))
	}
	if cp := f.checkpoint(); cp.Commits != 1 || !cp.Published {
		t.Errorf("checkpoint = %+v", cp)
	}
	f.ownCommit(tree.Path) // the agent's locks are gone as well
}

func TestWaitingForTheRepositoryEnds(t *testing.T) {
	f := newField(t)
	f.ensure()
	h, _, err := f.trees.find("s1")
	f.must(err)
	other := newLocks() // another process
	release, err := other.acquire(t.Context(), h)
	f.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	if _, err := f.trees.Checkpoint(ctx, f.tree, Save{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	release()
	f.checkpoint()
}

func TestPublishingLeavesTheWorkOfOthersAlone(t *testing.T) {
	const moved = "moved by somebody else"
	for name, c := range map[string]struct {
		do   func(f *field)
		note string
	}{
		"checked out": {func(f *field) { f.git(f.repo, "checkout", "-q", branch) }, "checked out at"},
		"checked out in a worktree": {func(f *field) {
			f.git(f.repo, "worktree", "add", "-q", filepath.Join(f.dir, "elsewhere"), branch)
		}, "checked out at"},
		"moved on": {func(f *field) {
			f.git(f.repo, "branch", "-f", branch, f.git(f.repo, "commit-tree", "-p", branch, "-m", "theirs", branch+"^{tree}"))
		}, moved},
		"reset": {func(f *field) { f.git(f.repo, "branch", "-f", branch, "main") }, moved},
		"unlike": {func(f *field) {
			f.git(f.repo, "branch", "-f", branch, f.git(f.repo, "commit-tree", "-m", "other", "main^{tree}"))
		}, moved},
		"locked":    {func(f *field) { f.write(f.repo, ".git/refs/heads/"+branch+".lock", "") }, "git refused it"},
		"repo gone": {func(f *field) { f.must(os.Rename(f.repo, f.repo+"-moved")); f.must(os.MkdirAll(f.repo, 0o755)) }, "no repository at"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			tree := f.ensure()
			f.write(tree.Path, "x", "1")
			f.checkpoint()
			c.do(f)
			f.write(tree.Path, "x", "2")
			same := f.untouched()
			cp := f.checkpoint()
			same()
			if cp.Published || cp.Commits != 1 {
				t.Errorf("checkpoint = %+v", cp)
			}
			f.wantNote(cp, c.note)
			f.wantNote(cp, headRef("s1"))
			if f.git(f.store(), "cat-file", "blob", cp.Commit+":x") != "2" {
				t.Error("the work is not in our store")
			}
		})
	}
}

func TestABranchMadeMeanwhileIsNotMoved(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.git(f.repo, "branch", branch)
	f.write(tree.Path, "x", "1")
	same := f.untouched()
	cp := f.checkpoint()
	same()
	f.wantNote(cp, "made by somebody else")
	f.git(f.repo, "branch", "-D", branch)
	if cp = f.checkpoint(); !cp.Published || cp.Commits != 0 {
		t.Errorf("not published once it could be: %+v", cp)
	}
}

func TestPersonsHooksAndConfigStayQuiet(t *testing.T) {
	f := newField(t)
	f.plantHooks(filepath.Join(f.repo, ".git/hooks"))
	f.appendTo(filepath.Join(f.repo, ".git/config"), "[core]\n\tfsmonitor = "+f.script+"\n[fetch]\n\tprune = true\n\twriteCommitGraph = true\n[gc]\n\tauto = 1\n")
	f.git(f.repo, "-c", "core.hooksPath=/dev/null", "tag", "v1")
	same := f.untouched(branch)
	tree := f.ensure()
	for _, x := range []string{"1", "2"} {
		f.write(tree.Path, "x", x)
		if cp := f.checkpoint(); !cp.Published {
			t.Errorf("checkpoint = %+v", cp)
		}
	}
	f.must(f.trees.Remove(t.Context(), tree))
	f.nothingRan()
	same()
}

func TestEnsureRefusesWithAReason(t *testing.T) {
	f := newField(t)
	f.git(f.repo, "branch", "taken/by/me")
	tree := f.ensure()
	mk := func(name string, args ...string) string {
		dir := filepath.Join(f.dir, name)
		f.git(f.dir, append(args, dir)...)
		return dir
	}
	empty := mk("empty", "init", "-q")
	shallow := mk("shallow", "clone", "-q", "--depth=1", "file://"+f.repo)
	f.git(f.repo, "config", "uploadpack.allowFilter", "true")
	partial := mk("partial", "clone", "-q", "--filter=blob:none", "file://"+f.repo)
	f.newRepo(filepath.Join(f.dir, "other"))
	for name, c := range map[string]struct {
		w    Want
		says string
	}{
		"no repository":       {Want{Repo: filepath.Join(f.dir, "none"), Key: "k", Branch: "b"}, "its new path"},
		"not one":             {Want{Repo: f.home, Key: "k", Branch: "b"}, "git init"},
		"a file":              {Want{Repo: f.script, Key: "k", Branch: "b"}, "is a file"},
		"empty":               {Want{Repo: empty, Key: "k", Branch: "b"}, "commit --allow-empty"},
		"shallow":             {Want{Repo: shallow, Key: "k", Branch: "b"}, "fetch --unshallow"},
		"partial":             {Want{Repo: partial, Key: "k", Branch: "b"}, "without --filter"},
		"a tree of ours":      {Want{Repo: tree.Path, Key: "k", Branch: "b"}, "made by pulse"},
		"no such base":        {Want{Repo: f.repo, Key: "k", Branch: "b", Base: "nowhere"}, `no branch "nowhere"`},
		"base like an option": {Want{Repo: f.repo, Key: "k", Branch: "b", Base: "--all"}, `no branch "--all"`},
		"base with a walk":    {Want{Repo: f.repo, Key: "k", Branch: "b", Base: "main~1"}, `no branch "main~1"`},
		"branch exists":       {Want{Repo: f.repo, Key: "k", Branch: "main"}, "a branch main already"},
		"branch above":        {Want{Repo: f.repo, Key: "k", Branch: "main/x"}, "beside which"},
		"branch below":        {Want{Repo: f.repo, Key: "k", Branch: "taken/by"}, "taken/by/me"},
		"branch of a tree":    {Want{Repo: f.repo, Key: "k", Branch: branch}, "worktree s1"},
		"branch like option":  {Want{Repo: f.repo, Key: "k", Branch: "-f"}, "cannot name a branch"},
		"branch with control": {Want{Repo: f.repo, Key: "k", Branch: "a\nb"}, "cannot name a branch"},
		"branch with dots":    {Want{Repo: f.repo, Key: "k", Branch: "a/../b"}, "cannot name a branch"},
		"branch HEAD":         {Want{Repo: f.repo, Key: "k", Branch: "HEAD"}, "cannot name a branch"},
		"key with a path":     {Want{Repo: f.repo, Key: "../k", Branch: "b"}, "cannot name a worktree"},
		"key of another":      {Want{Repo: filepath.Join(f.dir, "other"), Key: "s1", Branch: branch}, "belongs to the repository"},
		"other branch":        {Want{Repo: f.repo, Key: "s1", Branch: "b"}, "is for branch " + branch},
	} {
		_, err := f.trees.Ensure(t.Context(), c.w)
		if code := pulse.CodeOf(err); err == nil || !strings.Contains(err.Error(), c.says) || code != pulse.CodeInvalid && code != pulse.CodeConflict {
			t.Errorf("%s: %v (%s), want %q", name, err, code, c.says)
		}
	}
	if list, err := f.trees.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("refused trees are listed: %+v, %v", list, err)
	}
	f.must(os.Rename(f.repo, f.repo+"-moved"))
	if _, err := f.trees.Ensure(t.Context(), f.want("s1")); err == nil || !strings.Contains(err.Error(), "its new path") {
		t.Errorf("moved repository: %v", err)
	}
	w := f.want("s1")
	w.Repo += "-moved"
	if _, err := f.trees.Ensure(t.Context(), w); err == nil || !strings.Contains(err.Error(), "move it back") {
		t.Errorf("moved repository by its new path: %v", err)
	}
}

func TestBasesAndKindsOfRepositories(t *testing.T) {
	f := newField(t)
	f.git(f.repo, "checkout", "-q", "-b", "dev")
	f.git(f.repo, "commit", "-q", "--allow-empty", "-m", "dev")
	f.git(f.repo, "tag", "v1", "main")
	bare, borrowed, linked := filepath.Join(f.dir, "bare.git"), filepath.Join(f.dir, "borrowed"), filepath.Join(f.dir, "linked")
	f.git(f.dir, "clone", "-q", "--bare", f.repo, bare)
	f.git(f.dir, "clone", "-q", "--shared", f.repo, borrowed)
	f.git(f.repo, "worktree", "add", "-q", "--detach", linked, "main")
	main, dev := f.git(f.repo, "rev-parse", "main"), f.git(f.repo, "rev-parse", "dev")
	for key, c := range map[string]struct{ repo, base, name, commit string }{
		"head":     {f.repo, "", "dev", dev},
		"named":    {f.repo, "main", "main", main},
		"tag":      {f.repo, "v1", "v1", main},
		"bare":     {bare, "main", "main", main},
		"remote":   {borrowed, "origin/main", "origin/main", main},
		"detached": {linked, "", "HEAD", main},
		"below":    {filepath.Join(f.repo, "src"), "", "dev", dev},
	} {
		tree, err := f.trees.Ensure(t.Context(), Want{Repo: c.repo, Key: key, Branch: "b-" + key, Base: c.base})
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if tree.Base != c.name || tree.BaseCommit != c.commit || tree.Head != c.commit {
			t.Errorf("%s: %+v", key, tree)
		}
		f.write(tree.Path, "x", key)
		cp, err := f.trees.Checkpoint(t.Context(), tree, Save{})
		if err != nil || !cp.Published || f.git(c.repo, "rev-parse", "b-"+key) != cp.Commit {
			t.Errorf("%s: %+v, %v", key, cp, err)
		}
		h, _, err := f.trees.find(key)
		f.must(err)
		if _, err := os.Stat(filepath.Join(h.store(), "objects/info/alternates")); err == nil {
			t.Errorf("%s: our store borrows from the person's", key)
		}
	}
}

func TestSha256Repository(t *testing.T) {
	f := newField(t)
	f.must(os.RemoveAll(f.repo))
	f.must(os.MkdirAll(f.repo, 0o755))
	f.git(f.repo, "init", "-q", "-b", "main", "--object-format=sha256")
	f.git(f.repo, "commit", "-q", "--allow-empty", "-m", "first")
	tree := f.ensure()
	f.ownCommit(tree.Path)
	f.git(tree.Path, "repack", "-q", "-a", "-d", "-l")
	f.write(tree.Path, "left", "left")
	if cp := f.checkpoint(); cp.Commits != 2 || !cp.Published || len(cp.Notes) != 0 {
		t.Errorf("checkpoint = %+v", cp)
	}
}

func TestCheckRepo(t *testing.T) {
	f := newField(t)
	root, head, err := CheckRepo(t.Context(), "", filepath.Join(f.repo, "src"))
	if root != f.repo || head != "main" || err != nil {
		t.Errorf("got %q, %q, %v", root, head, err)
	}
	f.git(f.repo, "checkout", "-q", "--detach")
	if _, head, err := CheckRepo(t.Context(), "", f.repo); head != "" || err != nil {
		t.Errorf("detached: %q, %v", head, err)
	}
}

func TestNewChecksGit(t *testing.T) {
	dir := t.TempDir()
	fake := filepath.Join(dir, "git")
	for version, ok := range map[string]bool{"git version 2.39.3": false, "git version 2.39.4": true, "git version 2.40.0": true, "git version 3.0": true,
		"git version 1.9.9": false, "git version 2.45.1.windows.1": true, "nonsense": false} {
		if err := os.WriteFile(fake, []byte("#!/bin/sh\necho '"+version+"'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := New(Config{Dir: filepath.Join(dir, "data"), Git: fake})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "2.39.4") {
			t.Errorf("%s: %v", version, err)
		}
	}
	if _, err := New(Config{Dir: dir, Git: filepath.Join(dir, "none")}); pulse.CodeOf(err) != pulse.CodeInvalid {
		t.Errorf("no git: %v", err)
	}
	if _, err := New(Config{}); err == nil {
		t.Error("no directory was taken")
	}
}

func TestUnreadableFilesStayAsTheyWere(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.write(tree.Path, "README.md", "closed\n")
	f.write(tree.Path, "fine", "fine")
	for _, name := range []string{"README.md", "src"} {
		p := filepath.Join(tree.Path, name)
		f.must(os.Chmod(p, 0))
		t.Cleanup(func() { _ = os.Chmod(p, 0o755) })
	}
	cp := f.checkpoint()
	if f.show(branch, "src/a.go") != "package a\n" || f.show(branch, "fine") != "fine" || !cp.Published {
		t.Errorf("checkpoint = %+v", cp)
	}
	if os.Geteuid() == 0 { // root reads everything
		if f.show(branch, "README.md") != "closed\n" {
			t.Error("root did not keep the file")
		}
		return
	}
	f.wantNote(cp, `"README.md"`)
	if f.show(branch, "README.md") != "hello\n" || f.trees.Remove(t.Context(), tree) == nil {
		t.Error("an unreadable file was lost")
	}
}
