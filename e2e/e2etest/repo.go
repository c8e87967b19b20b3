package e2etest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Repository is a person's git repository.
type Repository struct {
	t    testing.TB
	Path string
}

// Repo makes a small repository with one commit on main, some uncommitted work and an untracked file, as people have them.
func Repo(t testing.TB) *Repository { return RepoAt(t, filepath.Join(t.TempDir(), "my-app")) }

// RepoAt is Repo at a path.
func RepoAt(t testing.TB, path string) *Repository {
	t.Helper()
	r := &Repository{t: t, Path: path}
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	r.Git("init", "-q", "-b", "main")
	r.Write("README.md", "# my-app\n\nA sample.\n")
	r.Write("main.go", "package main\n\nfunc main() {}\n")
	r.Git("add", ".")
	r.Git("commit", "-q", "-m", "first commit")
	r.Write("main.go", "package main\n\nfunc main() { println(\"not committed yet\") }\n")
	r.Write("notes.txt", "untracked\n")
	return r
}

// Write writes a file of the checkout.
func (r *Repository) Write(name, content string) {
	r.t.Helper()
	file := filepath.Join(r.Path, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// Git runs git in the repository and gives what it printed, without the last line feed.
func (r *Repository) Git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.Path
	cmd.Env = append(base(r.t.TempDir()), "GIT_OPTIONAL_LOCKS=0", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.invalid", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.invalid")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// Branches are the branches that pulse made.
func (r *Repository) Branches() []string {
	r.t.Helper()
	return strings.Fields(r.Git("for-each-ref", "--format=%(refname:short)", "refs/heads/pulse/"))
}

// Subjects are those of the commits that a branch has and main has not, oldest first.
func (r *Repository) Subjects(branch string) []string {
	r.t.Helper()
	out := r.Git("log", "--reverse", "--format=%s", "main.."+branch)
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}

// File is the content of a file on a branch.
func (r *Repository) File(branch, name string) string {
	r.t.Helper()
	return r.Git("show", branch+":"+name)
}

// Snapshot is everything of the repository that is the person's: each file of the checkout with its content, the index, the
// configuration, hooks, HEAD and every reference but the branches of pulse. Two that are equal mean: nothing was touched.
func (r *Repository) Snapshot() string {
	r.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(r.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(r.Path, path)
		if err != nil {
			return err
		}
		switch {
		case rel == ".git/objects" || rel == ".git/logs" || rel == ".git/refs":
			return filepath.SkipDir
		case d.IsDir() || rel == ".git/packed-refs" || rel == ".git/FETCH_HEAD":
			return nil
		}
		content, err := os.ReadFile(path)
		b.WriteString(rel + "\n" + string(content) + "\n")
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, ref := range strings.Split(r.Git("for-each-ref", "--format=%(objectname) %(refname)"), "\n") {
		if !strings.Contains(ref, " refs/heads/pulse/") {
			b.WriteString(ref + "\n")
		}
	}
	return b.String()
}
