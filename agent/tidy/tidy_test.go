package tidy_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"pulseloop/agent/tidy"
	"pulseloop/agent/worktree"
	"pulseloop/internal/scratch"
	"pulseloop/pulse"
)

// book is a ledger in memory.
type book struct {
	sessions map[string]pulse.Session
	reported map[string]int
	projects []pulse.Project
}

func (b *book) Session(_ context.Context, id pulse.SessionID) (pulse.Session, error) {
	s, ok := b.sessions[string(id)]
	if !ok {
		return s, pulse.NotFound("no session", "")
	}
	return s, nil
}

func (b *book) Reconcile(_ context.Context, id pulse.SessionID, from, to string, commits int) (bool, error) {
	s := b.sessions[string(id)]
	if s.HeadCommit != from {
		return false, nil
	}
	s.HeadCommit = to
	b.sessions[string(id)], b.reported[string(id)] = s, b.reported[string(id)]+commits
	return true, nil
}

// yard is a data directory with trees of sessions.
type yard struct {
	t     *testing.T
	repo  string
	data  string
	trees *worktree.Trees
	book  *book
}

func newYard(t *testing.T) *yard {
	t.Helper()
	repo := filepath.Join(t.TempDir(), "repo")
	for _, args := range [][]string{{"init", "-q", "-b", "main", repo}, {"-C", repo, "-c", "user.name=ann", "-c", "user.email=ann@localhost", "commit", "-q", "--allow-empty", "-m", "first"}} {
		cmd := exec.Command("git", args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	data := t.TempDir()
	trees, err := worktree.New(worktree.Config{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	return &yard{t: t, repo: repo, data: data, trees: trees, book: &book{sessions: map[string]pulse.Session{}, reported: map[string]int{}}}
}

// tree makes a session's tree with one saved commit, and gives its path and the commit.
func (y *yard) tree(key string, status pulse.SessionStatus, ended time.Duration) (path, head string) {
	y.t.Helper()
	tree, err := y.trees.Ensure(y.t.Context(), worktree.Want{Repo: y.repo, Key: key, Branch: "pulse/" + key})
	if err != nil {
		y.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree.Path, key+".txt"), []byte(key), 0o600); err != nil {
		y.t.Fatal(err)
	}
	cp, err := y.trees.Checkpoint(y.t.Context(), tree, worktree.Save{Subject: key})
	if err != nil {
		y.t.Fatal(err)
	}
	s := pulse.Session{ID: pulse.SessionID(key), Status: status, HeadCommit: cp.Commit}
	if ended > 0 {
		s.EndedAt = time.Now().Add(-ended)
	}
	y.book.sessions[key] = s
	return tree.Path, cp.Commit
}

func (y *yard) tidier(keep time.Duration) *tidy.Tidier {
	return tidy.New(tidy.Config{Trees: y.trees, Store: y.book, Keep: keep, Still: time.Minute})
}

func TestTreesGoWhenTheirSessionsAreLongOver(t *testing.T) {
	y := newYard(t)
	old, _ := y.tree("old", pulse.SessionComplete, 48*time.Hour)
	failed, _ := y.tree("failed", pulse.SessionFailed, 48*time.Hour)
	fresh, _ := y.tree("fresh", pulse.SessionComplete, 2*time.Hour)
	blocked, _ := y.tree("blocked", pulse.SessionBlocked, 0)
	dirty, _ := y.tree("dirty", pulse.SessionAborted, 48*time.Hour)
	strange, _ := y.tree("strange", pulse.SessionComplete, 48*time.Hour)
	delete(y.book.sessions, "strange")
	if err := os.WriteFile(filepath.Join(dirty, "precious.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []time.Duration{0, 24 * time.Hour} {
		if err := y.tidier(keep).RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		for path, stays := range map[string]bool{old: keep == 0, failed: keep == 0, fresh: true, blocked: true, dirty: true, strange: true} {
			if _, err := os.Stat(path); (err == nil) != stays {
				t.Errorf("kept for %s: %s is there: %v, want %v", keep, filepath.Base(path), err == nil, stays)
			}
		}
	}
	if len(y.book.reported) > 0 {
		t.Errorf("put on record again: %v", y.book.reported)
	}
}

// TestCommitsOfAKilledAttemptAreCounted: the attempt saved its work, was killed before it said so, and the session was aborted.
func TestCommitsOfAKilledAttemptAreCounted(t *testing.T) {
	y := newYard(t)
	_, first := y.tree("aborted", pulse.SessionAborted, time.Hour)
	_, none := y.tree("never", pulse.SessionAborted, time.Hour)
	_, running := y.tree("running", pulse.SessionRunning, 0)
	_, justNow := y.tree("now", pulse.SessionAborted, time.Second)
	_, failed := y.tree("failed", pulse.SessionFailed, time.Hour) // whoever resumes it counts
	_, complete := y.tree("complete", pulse.SessionComplete, time.Hour)
	for key := range y.book.sessions {
		s := y.book.sessions[key]
		s.HeadCommit = ""
		y.book.sessions[key] = s
	}
	tidier := y.tidier(0)
	for range 2 {
		if err := tidier.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]string{"aborted": first, "never": none, "running": "", "now": "", "failed": "", "complete": ""} {
		n := 0
		if want != "" {
			n = 1
		}
		if y.book.reported[key] != n || y.book.sessions[key].HeadCommit != want {
			t.Errorf("%s: %d commits put on record, up to %q; want %d", key, y.book.reported[key], y.book.sessions[key].HeadCommit, n)
		}
	}
	if running == "" || justNow == "" || failed == "" || complete == "" {
		t.Fatal("nothing was saved")
	}
}

func TestALiveDaemonsRunsAreLeftAlone(t *testing.T) {
	data := t.TempDir()
	run := filepath.Join(tidy.RunDir(data), "task")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	release, alone, err := scratch.Hold(filepath.Join(data, "run.lock"))
	if err != nil || !alone {
		t.Fatal(alone, err)
	}
	clear := func(left bool) {
		t.Helper()
		done, err := tidy.ClearRuns(data)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(run); (err == nil) != left {
			t.Errorf("the files of the run are there: %v, want %v", err == nil, left)
		}
		if err := done(); err != nil {
			t.Fatal(err)
		}
	}
	clear(true)
	if err := release(); err != nil {
		t.Fatal(err)
	}
	clear(false)
}
