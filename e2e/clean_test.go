package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// leftover is one entry of `clean --json`.
type leftover struct {
	Kind, Path, What, Why string
	Bytes                 int64
	Removed               bool
}

func cleaned(t *testing.T, p *e2etest.Pulse, args ...string) map[string]leftover {
	t.Helper()
	out, errs, code := p.Run(append([]string{"clean", "--json"}, args...)...)
	var list []leftover
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		t.Fatalf("clean %q: exit code %d, %v\n%s%s", args, code, err, out, errs)
	}
	byPath := map[string]leftover{}
	for _, l := range list {
		byPath[l.Path] = l
	}
	return byPath
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestCleanTakesWhatNobodyNeedsAndNoWork: the tree of a finished session goes and comes back for a follow-up; what waits, what was not
// saved and what is in use stays.
func TestCleanTakesWhatNobodyNeedsAndNoWork(t *testing.T) {
	t.Parallel()
	repo := e2etest.Repo(t)
	tmp := t.TempDir()
	p := e2etest.Start(t, e2etest.Options{Projects: one(repo), Env: []string{"PULSE_DAEMON_LEASE=2s", "TMPDIR=" + tmp}, Script: `
sessions:
  ask: {iterations: [[{write: {path: half.txt, content: half}}, {say: "Which one?"}, {signal: BLOCKED}]]}
  leave: {iterations: [[{write: {path: unsaved.txt, content: precious}}, {run: '` + e2etest.Hold("work") + `'}, {say: x}, {signal: COMPLETE}]]}
iterations:
  - - {write: {path: one.txt, content: "1"}}
    - {say: Done.}
    - {signal: COMPLETE}
  - - {write: {path: two.txt, content: "2"}}
    - {say: Done again.}
    - {signal: COMPLETE}
`})
	s := &shell{t: t, p: p, used: map[string]bool{}}
	begin := func(goal string) (id, tree string) {
		id, _ = in(s.data("start", "--project", "my-app", goal), "id").(string)
		return id, filepath.Join(p.DataDir, "worktrees", id)
	}
	done, doneTree := begin("do it")
	asks, asksTree := begin("ask me")
	p.AwaitSession(done, pulse.SessionComplete)
	p.AwaitSession(asks, pulse.SessionBlocked)
	gone, goneTree := begin("leave it")
	p.AwaitHeld("work")
	s.run(0, "abort", gone)
	p.AwaitSession(gone, pulse.SessionAborted)
	cache := filepath.Join(p.DataDir, "caches", "0123456789abcdef")
	place(t, filepath.Join(cache, "go-build", "x"), strings.Repeat("x", 1<<20), 0o600)

	e2etest.Await(t, "the ended session to be long enough over", func() bool {
		found := cleaned(t, p, "--dry-run")
		return found[doneTree].Removed && strings.Contains(found[goneTree].Why, "not saved")
	})
	found := cleaned(t, p, "--dry-run")
	if l := found[asksTree]; l.Removed || !strings.Contains(l.Why, "its session is blocked") {
		t.Errorf("the tree of a session that waits: %+v", l)
	}
	if l := found[goneTree]; l.Removed || !strings.Contains(l.Why, "unsaved.txt") {
		t.Errorf("the tree with work that was not saved: %+v", l)
	}
	if l := found[cache]; !l.Removed || l.Kind != "cache" || l.Bytes < 1<<20 {
		t.Errorf("the cache of nobody: %+v", l)
	}
	if !isThere(doneTree) || !isThere(cache) {
		t.Error("a dry run removed something")
	}
	s.says([]string{"clean", "--dry-run"}, "would go", "worktree", doneTree, "branch pulse/", "kept", "Would remove ", "MiB.")

	found = cleaned(t, p)
	if !found[doneTree].Removed || found[doneTree].Bytes == 0 || isThere(doneTree) || isThere(cache) {
		t.Errorf("the tree of a session at its end: %+v", found[doneTree])
	}
	if !isThere(filepath.Join(asksTree, "half.txt")) || !isThere(filepath.Join(goneTree, "unsaved.txt")) {
		t.Error("work was removed")
	}
	branch, _ := in(s.data("show", done), "session.branch_name").(string)
	if repo.File(branch, "one.txt") != "1" {
		t.Error("the branch has lost its work")
	}

	s.run(0, "say", done, "more")
	p.AwaitSession(done, pulse.SessionComplete)
	if repo.File(branch, "one.txt") != "1" || repo.File(branch, "two.txt") != "2" || len(repo.Subjects(branch)) != 2 {
		t.Errorf("after a follow-up the branch has %q", repo.Subjects(branch))
	}

	// A program that is killed leaves the files of its run, which hold a login.
	run := filepath.Join(p.DataDir, "run", "0197c0de-0000-7000-8000-000000000001")
	place(t, filepath.Join(run, "home", "auth.json"), "{}", 0o600)
	if l := cleaned(t, p)[run]; l.Removed || !strings.Contains(l.Why, "a daemon runs here") {
		t.Errorf("the files of a run while a daemon lives: %+v", l)
	}
	p.Kill()
	s.says([]string{"clean", "--stores"}, "removed", "run", run, "Removed ")
	if isThere(run) || !isThere(asksTree) || !isThere(filepath.Join(p.DataDir, "repos")) {
		t.Error("the files of a dead run are there, or what is needed is not")
	}
	place(t, filepath.Join(run, "home", "auth.json"), "{}", 0o600)
	temp := filepath.Join(tmp, "pulse-123")
	place(t, filepath.Join(temp, "socket"), "x", 0o600)
	place(t, temp+".lock", "scratch directory of pulse\n", 0o600)
	if l := cleaned(t, p, "--dry-run")[temp]; !l.Removed || l.Kind != "temp" || !isThere(temp) {
		t.Errorf("what a killed program left: %+v", l)
	}
	p.Up()
	if isThere(run) || isThere(temp) || isThere(temp+".lock") {
		t.Error("a start leaves what a dead one left")
	}
}
