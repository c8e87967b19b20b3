package worktree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pulseloop/pulse"
)

func TestFilesAndCommitsReachTheBranch(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	same := f.untouched(branch)
	if st := f.git(tree.Path, "status", "--porcelain"); st != "" {
		t.Errorf("a new tree is dirty: %s", st)
	}
	if got := f.git(tree.Path, "symbolic-ref", "HEAD"); got != "refs/heads/"+branch {
		t.Errorf("HEAD = %s", got)
	}
	f.write(tree.Path, "own.txt", "own\n")
	f.git(tree.Path, "add", "own.txt")
	f.git(tree.Path, "commit", "-q", "-m", "feat: own")
	f.write(tree.Path, "README.md", "changed\n")
	f.write(tree.Path, "new/b.go", "package b\n")
	f.write(tree.Path, "debug.log", "noise")
	f.must(os.Remove(filepath.Join(tree.Path, "src/a.go")))
	cp := f.checkpoint()
	same()
	if cp.Commits != 2 || !cp.Published || len(cp.Notes) != 0 || len(cp.Archived) != 0 {
		t.Errorf("checkpoint = %+v", cp)
	}
	if want := []string{"README.md", "new/b.go", "own.txt", "src/a.go"}; !slices.Equal(cp.Files, want) {
		t.Errorf("files = %q, want %q", cp.Files, want)
	}
	if got := f.git(f.repo, "rev-parse", branch); got != cp.Commit {
		t.Errorf("branch at %s, want %s", got, cp.Commit)
	}
	if got := f.git(f.repo, "log", "--format=%s|%an|%ae|%b", "main.."+branch); got != "feat: work|pulse|pulse@localhost|why\n\nfeat: own|Ann|ann@example.org|" {
		t.Errorf("log = %q", got)
	}
	if got := f.git(f.repo, "ls-tree", "-r", "--name-only", branch); got != ".gitignore\nREADME.md\nnew/b.go\nown.txt" {
		t.Errorf("files of the branch = %q", got)
	}
	if st := f.git(tree.Path, "status", "--porcelain"); st != "" {
		t.Errorf("dirty after a checkpoint: %s", st)
	}
	f.git(f.repo, "fsck", "--strict")
	f.git(f.store(), "fsck", "--strict")
}

func TestCheckpointWithoutChanges(t *testing.T) {
	f := newField(t)
	f.ensure()
	same := f.untouched()
	cp := f.checkpoint()
	same()
	if cp.Commit != f.tree.Head || cp.Commits != 0 || len(cp.Files) != 0 || cp.Published || len(cp.Notes) != 0 {
		t.Errorf("nothing was done, checkpoint = %+v", cp)
	}
	f.write(f.tree.Path, "x", "1")
	first := f.checkpoint()
	again := f.checkpoint()
	if again.Commit != first.Commit || again.Commits != 0 || len(again.Files) != 0 || !again.Published {
		t.Errorf("second checkpoint = %+v", again)
	}
	f.write(f.tree.Path, "x", "2")
	if next := f.checkpoint(); next.Commits != 1 || !slices.Equal(next.Files, []string{"x"}) || f.show(branch, "x") != "2" {
		t.Errorf("third checkpoint = %+v", next)
	}
}

// TestWorkNobodyHeardOf counts what a process saved before it died and could not report.
func TestWorkNobodyHeardOf(t *testing.T) {
	f := newField(t)
	f.ensure()
	f.write(f.tree.Path, "x", "1")
	first := f.checkpoint()
	f.write(f.tree.Path, "y", "2")
	lost := f.checkpoint()
	save := func(since string) Checkpoint {
		t.Helper()
		cp, err := f.trees.Checkpoint(t.Context(), f.tree, Save{Since: since})
		f.must(err)
		return cp
	}
	for since, want := range map[string][]string{first.Commit: {"y"}, "": {"x", "y"}, lost.Commit: {}, "no commit": {}, strings.Repeat("a", 40): {}} {
		if cp := save(since); cp.Commit != lost.Commit || cp.Commits != len(want) || !slices.Equal(cp.Files, want) {
			t.Errorf("since %q: %+v, want %q", since, cp, want)
		}
	}
	f.write(f.tree.Path, "z", "3")
	if cp := save(first.Commit); cp.Commits != 2 || !slices.Equal(cp.Files, []string{"y", "z"}) {
		t.Errorf("with work of the second attempt: %+v", cp)
	}
}

func TestContentIsStoredByteForByte(t *testing.T) {
	f := newField(t)
	f.write(f.repo, ".gitattributes", "* text=auto eol=crlf\n*.bin filter=lfs diff=lfs merge=lfs -text\n*.k ident\n*.u working-tree-encoding=UTF-16\n")
	f.write(f.repo, "crlf.txt", "a\nb\n")
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
	f.write(f.repo, "big.bin", pointer)
	f.git(f.repo, "add", "-A")
	f.git(f.repo, "commit", "-q", "-m", "attributes")
	f.git(f.repo, "config", "core.autocrlf", "true")
	tree := f.ensure()
	got, err := os.ReadFile(filepath.Join(tree.Path, "crlf.txt"))
	f.must(err)
	if string(got) != "a\nb\n" {
		t.Errorf("checked out as %q", got)
	}
	files := map[string]string{"dos.txt": "a\r\nb\r\n", "mixed.txt": "a\r\nb\nc\r", "key.k": "$Id$ $Id: x $\n", "x.u": "plain\xff\xfe", "other.bin": "raw\r\n\x00"}
	for name, content := range files {
		f.write(tree.Path, name, content)
	}
	cp := f.checkpoint()
	if len(cp.Files) != len(files) {
		t.Errorf("files = %q", cp.Files)
	}
	files["big.bin"] = pointer
	for name, content := range files {
		if got := f.show(branch, name); got != content {
			t.Errorf("%s stored as %q, want %q", name, got, content)
		}
	}
}

func TestModesLinksAndNamesSurvive(t *testing.T) {
	f := newField(t)
	outside := filepath.Join(f.dir, "outside")
	f.write(f.dir, "outside/secret", "do not read")
	tree := f.ensure()
	f.write(tree.Path, "run.sh", "#!/bin/sh\n")
	f.must(os.Chmod(filepath.Join(tree.Path, "run.sh"), 0o755))
	f.must(os.Symlink(outside, filepath.Join(tree.Path, "link")))
	f.must(os.Symlink("nowhere", filepath.Join(tree.Path, "dangling")))
	names := []string{"-rf", "--output=x", "new\nline", "tab\tquote\"", "caf\xe9", " space ", "*", ":(exclude)x", "back\\slash"}
	for _, n := range names {
		f.write(tree.Path, n, n)
	}
	// A tracked directory gives way to a link, and a file to a directory.
	f.must(os.RemoveAll(filepath.Join(tree.Path, "src")))
	f.must(os.Symlink(outside, filepath.Join(tree.Path, "src")))
	f.write(outside, "a.go", "secret twin of a tracked file")
	f.must(os.Remove(filepath.Join(tree.Path, "README.md")))
	f.write(tree.Path, "README.md/inner", "x")
	cp := f.checkpoint()
	for _, n := range names {
		if got := f.show(branch, n); got != n {
			t.Errorf("%q stored as %q", n, got)
		}
		if !slices.Contains(cp.Files, n) {
			t.Errorf("%q is not among the changed files %q", n, cp.Files)
		}
	}
	list := f.git(f.repo, "ls-tree", "-r", branch)
	for _, want := range []string{"100755 blob", "\trun.sh", "\tREADME.md/inner"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	if strings.Count(list, "120000 blob") != 3 || strings.Contains(list, "src/a.go") {
		t.Errorf("links are not stored as links:\n%s", list)
	}
	if f.show(branch, "link") != outside || f.show(branch, "src") != outside {
		t.Error("a link was followed")
	}
	if !slices.IsSorted(cp.Files) {
		t.Errorf("files not sorted: %q", cp.Files)
	}
}

func TestRewrittenHistoryIsArchived(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.write(tree.Path, "x", "1")
	first := f.checkpoint()
	f.write(tree.Path, "x", "2")
	f.git(tree.Path, "commit", "-q", "-a", "--amend", "-m", "amended")
	amended := f.git(tree.Path, "rev-parse", "HEAD")
	cp := f.checkpoint()
	if len(cp.Archived) != 1 || !hasNote(cp, cp.Archived[0]) {
		t.Fatalf("checkpoint = %+v", cp)
	}
	if got := f.git(f.store(), "rev-parse", cp.Archived[0]); got != amended {
		t.Errorf("archived %s, want %s", got, amended)
	}
	if got := f.git(f.repo, "rev-parse", branch+"~1"); got != first.Commit || f.show(branch, "x") != "2" {
		t.Errorf("the branch does not continue the last checkpoint: %s", got)
	}
	if f.has(f.repo, amended) {
		t.Error("the archived commit came into the person's repository")
	}
	if again := f.checkpoint(); len(again.Archived) != 0 || again.Commit != cp.Commit {
		t.Errorf("archived twice: %+v", again)
	}
}

func TestSideBranchesAndStashAreKept(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.write(tree.Path, "stashed", "s")
	f.git(tree.Path, "add", "-A")
	f.git(tree.Path, "stash", "-q")
	stash := f.git(tree.Path, "rev-parse", "refs/stash")
	f.git(tree.Path, "checkout", "-q", "-b", "try/one")
	f.git(tree.Path, "commit", "-q", "--allow-empty", "-m", "one")
	side := f.git(tree.Path, "rev-parse", "HEAD")
	f.git(tree.Path, "checkout", "-q", branch)
	f.git(tree.Path, "commit", "-q", "--allow-empty", "-m", "two")
	f.git(tree.Path, "pack-refs", "--all")
	cp := f.checkpoint()
	if len(cp.Archived) != 2 || cp.Commits != 1 || !f.has(f.store(), side) || !f.has(f.store(), stash) {
		t.Errorf("checkpoint = %+v", cp)
	}
	if got := f.git(tree.Path, "rev-parse", "try/one"); got != side {
		t.Errorf("the agent lost its branch: %s", got)
	}
}

func TestTreeLeftAtAnOlderCommit(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.write(tree.Path, "x", "1")
	f.git(tree.Path, "add", "-A")
	f.git(tree.Path, "commit", "-q", "-m", "one")
	f.git(tree.Path, "checkout", "-q", "--detach", "HEAD~1")
	cp := f.checkpoint()
	if cp.Commits != 1 || f.show(branch, "x") != "1" {
		t.Errorf("checkpoint = %+v", cp)
	}
	f.wantNote(cp, "put back")
	if _, err := os.Stat(filepath.Join(tree.Path, "x")); err != nil {
		t.Error("the tree was not put back")
	}
}

func TestPackedObjectsAreTaken(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	text := strings.Repeat("some line of text that makes a delta worth while\n", 400)
	for i := range 6 {
		f.write(tree.Path, "big.txt", text+strings.Repeat("x", i))
		f.git(tree.Path, "add", "-A")
		f.git(tree.Path, "commit", "-q", "-m", "step")
	}
	f.git(tree.Path, "-c", "gc.auto=1", "gc", "-q")
	packs, _ := filepath.Glob(filepath.Join(tree.Path, ".git/objects/pack/*.pack"))
	if len(packs) == 0 {
		t.Fatal("gc made no pack")
	}
	if cp := f.checkpoint(); cp.Commits != 6 || len(cp.Notes) != 0 {
		t.Errorf("checkpoint = %+v", cp)
	}
}

func TestExcludedPathsAreNotCommitted(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.must(f.trees.Exclude(tree, "/.pulse/", "dev-log/"))
	f.must(f.trees.Exclude(tree, "/.pulse/"))
	for range 2 {
		f.write(tree.Path, ".pulse/rules.md", "rules")
		f.write(tree.Path, "dev-log/1", "log")
		if st := f.git(tree.Path, "status", "--porcelain"); st != "" {
			t.Errorf("the agent's git sees %s", st)
		}
		if cp := f.checkpoint(); cp.Commits != 0 {
			t.Errorf("committed %q", cp.Files)
		}
	}
	b, err := os.ReadFile(filepath.Join(f.store(), "info/exclude"))
	f.must(err)
	if strings.Count(string(b), "/.pulse/\n") != 1 {
		t.Errorf("store's excludes = %q", b)
	}
	if f.trees.Exclude(tree, "a\nb") == nil {
		t.Error("a pattern of two lines was taken")
	}
}

func TestDiff(t *testing.T) {
	f := newField(t)
	f.write(f.repo, ".gitattributes", "*.md diff=evil\n")
	f.git(f.repo, "add", "-A")
	f.git(f.repo, "commit", "-q", "-m", "attr")
	tree := f.ensure()
	f.write(tree.Path, "README.md", "changed\n")
	f.checkpoint()
	stat, patch, err := f.trees.Diff(t.Context(), tree)
	f.must(err)
	if !strings.Contains(stat, "README.md | 2 +-") || !strings.Contains(string(patch), "-hello\n+changed\n") {
		t.Errorf("stat = %q, patch = %q", stat, patch)
	}
}

func TestRemoveKeepsWork(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.write(tree.Path, "x", "1")
	f.checkpoint()
	f.write(tree.Path, "x", "dirty")
	f.write(tree.Path, "ro/y", "y")
	f.must(os.Chmod(filepath.Join(tree.Path, "ro"), 0o555))
	store := f.store()
	same := f.untouched()
	f.must(f.trees.Remove(t.Context(), tree))
	f.must(f.trees.Remove(t.Context(), tree))
	same()
	refs := f.git(store, "for-each-ref", "--format=%(refname)", "refs/pulse")
	if !strings.HasPrefix(refs, "refs/pulse/archive/s1/") || strings.Contains(refs, "\n") {
		t.Fatalf("refs left = %q", refs)
	}
	if got := f.git(store, "cat-file", "blob", refs+":x"); got != "dirty" {
		t.Errorf("archived x = %q", got)
	}
	if _, err := os.Lstat(tree.Path); err == nil {
		t.Error("the tree is still there")
	}
	if list, err := f.trees.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("list = %v, %v", list, err)
	}
	_, err := f.trees.Checkpoint(t.Context(), tree, Save{})
	if pulse.CodeOf(err) != pulse.CodeNotFound {
		t.Errorf("checkpoint of a removed tree: %v", err)
	}
}

func TestRemoveRefusesNestedRepository(t *testing.T) {
	f := newField(t)
	tree := f.ensure()
	f.newRepo(filepath.Join(tree.Path, "vendor/lib"))
	err := f.trees.Remove(t.Context(), tree)
	if pulse.CodeOf(err) != pulse.CodeConflict || !strings.Contains(err.Error(), "vendor/lib") {
		t.Fatalf("err = %v", err)
	}
	if _, err := os.Stat(filepath.Join(tree.Path, "vendor/lib/README.md")); err != nil {
		t.Error("the nested repository is gone")
	}
}

func TestList(t *testing.T) {
	f := newField(t)
	f.ensure()
	w := Want{Repo: f.repo, Key: "s0", Branch: "other"}
	if _, err := f.trees.Ensure(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	list, err := f.trees.List(t.Context())
	f.must(err)
	if len(list) != 2 || list[0].Key != "s0" || list[1] != f.tree {
		t.Errorf("list = %+v", list)
	}
}

func TestConcurrentEnsure(t *testing.T) {
	f := newField(t)
	second := f.open(Config{}) // another process would have its own
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		wg.Go(func() {
			trees := f.trees
			if i%2 == 1 {
				trees = second
			}
			w := Want{Repo: f.repo, Key: "k" + string(rune('a'+i/2)), Branch: "b/" + string(rune('a'+i/2))}
			_, errs[i] = trees.Ensure(t.Context(), w)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("ensure %d: %v", i, err)
		}
	}
	if list, err := f.trees.List(t.Context()); err != nil || len(list) != 3 {
		t.Errorf("list = %v, %v", list, err)
	}
}
