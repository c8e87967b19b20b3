package worktree

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// field is a person's repository, our trees, an agent's place in one of them,
// and what must not be run or read.
type field struct {
	t      testing.TB
	dir    string
	trees  *Trees
	repo   string // the person's
	home   string // of the person and the agent
	canary string // a file that exists once something of the agent's was run
	script string // a program that makes the canary
	tree   Tree

	reported string // the last checkpoint that the caller heard of
}

const branch = "pulse/work-1"

func newField(t testing.TB) *field {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &field{t: t, dir: dir, repo: filepath.Join(dir, "person"), home: filepath.Join(dir, "home"),
		canary: filepath.Join(dir, "canary"), script: filepath.Join(dir, "canary.sh")}
	f.must(os.MkdirAll(f.home, 0o755))
	f.must(os.WriteFile(f.script, []byte("#!/bin/sh\necho \"$0 $*\" >> '"+f.canary+"'\ncat 2>/dev/null\n"), 0o755))
	f.newRepo(f.repo)
	f.trees = f.open(Config{})
	return f
}

func (f *field) open(cfg Config) *Trees {
	f.t.Helper()
	cfg.Dir = filepath.Join(f.dir, "data")
	trees, err := New(cfg)
	f.must(err)
	return trees
}

func (f *field) newRepo(dir string) {
	f.t.Helper()
	f.must(os.MkdirAll(dir, 0o755))
	f.git(dir, "init", "-q", "-b", "main")
	f.write(dir, "README.md", "hello\n")
	f.write(dir, "src/a.go", "package a\n")
	f.write(dir, ".gitignore", "*.log\n")
	f.git(dir, "add", "-A")
	f.git(dir, "commit", "-q", "-m", "first")
}

func (f *field) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// git is what a person or an agent runs: with its own config and hooks.
func (f *field) git(dir string, args ...string) string {
	f.t.Helper()
	out, err := f.try(dir, args...)
	if err != nil {
		f.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

func (f *field) try(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.org", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.org"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (f *field) write(dir, name, content string) {
	f.t.Helper()
	p := filepath.Join(dir, name)
	f.must(os.MkdirAll(filepath.Dir(p), 0o755))
	f.must(os.WriteFile(p, []byte(content), 0o644))
}

func (f *field) want(key string) Want { return Want{Repo: f.repo, Key: key, Branch: branch} }

func (f *field) ensure() Tree {
	f.t.Helper()
	tree, err := f.trees.Ensure(f.t.Context(), f.want("s1"))
	f.must(err)
	f.tree = tree
	return tree
}

func (f *field) checkpoint() Checkpoint {
	f.t.Helper()
	cp, err := f.trees.Checkpoint(f.t.Context(), f.tree, Save{Subject: "feat: work", Body: "why", Since: f.reported})
	f.must(err)
	f.reported = cp.Commit
	return cp
}

func (f *field) store() string {
	h, _, err := f.trees.find(f.tree.Key)
	f.must(err)
	return h.store()
}

// show gives a file of a commit in the person's repository, byte for byte.
func (f *field) show(commit, name string) string {
	f.t.Helper()
	cmd := exec.Command("git", "-C", f.repo, "cat-file", "blob", commit+":"+name)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.home}
	out, err := cmd.Output()
	if err != nil {
		f.t.Errorf("%s is not in %s: %v", name, commit, err)
	}
	return string(out)
}

func (f *field) has(repo, object string) bool {
	_, err := f.try(repo, "cat-file", "-e", object)
	return err == nil
}

func (f *field) ran() bool {
	_, err := os.Stat(f.canary)
	return err == nil
}

func (f *field) nothingRan() {
	f.t.Helper()
	if b, err := os.ReadFile(f.canary); err == nil {
		f.t.Errorf("a program of the agent's was run: %s", b)
	}
}

func hasNote(cp Checkpoint, part string) bool {
	return slices.ContainsFunc(cp.Notes, func(n string) bool { return strings.Contains(n, part) })
}

func (f *field) wantNote(cp Checkpoint, part string) {
	f.t.Helper()
	if !hasNote(cp, part) {
		f.t.Errorf("no note says %q: %q", part, cp.Notes)
	}
}

// untouched takes a picture of the person's repository and gives a function
// that fails when anything but the branch, its log and objects is different.
func (f *field) untouched(branches ...string) func() {
	f.t.Helper()
	before := f.picture(branches)
	return func() {
		f.t.Helper()
		after := f.picture(branches)
		for name := range maps.Keys(after) {
			if before[name] != after[name] {
				f.t.Errorf("the person's repository changed: %s: %q -> %q", name, before[name], after[name])
			}
		}
		for name := range before {
			if _, ok := after[name]; !ok {
				f.t.Errorf("the person's repository lost %s", name)
			}
		}
	}
}

func (f *field) picture(branches []string) map[string]string {
	f.t.Helper()
	ours := func(rel string, dir bool) bool {
		if strings.HasPrefix(rel, ".git/objects/") {
			return true
		}
		for _, b := range branches {
			for _, at := range []string{".git/refs/heads/" + b, ".git/logs/refs/heads/" + b} {
				if rel == at || dir && strings.HasPrefix(at, rel+"/") {
					return true
				}
			}
		}
		return false
	}
	seen := map[string]string{}
	f.must(filepath.WalkDir(f.repo, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(f.repo, p)
		if err != nil || ours(rel, d.IsDir()) {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		what := st.Mode().String()
		switch {
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			what += fmt.Sprintf(" %d %s %s", st.Size(), st.ModTime(), hex.EncodeToString(sum[:6]))
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			what += " -> " + to
		}
		seen[rel] = what
		return nil
	}))
	return seen
}

func (f *field) shell(dir, line string) (string, error) {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	out, err := cmd.Output()
	return string(out), err
}

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o644) }
