package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// publish brings the branch in the person's repository to head. It is never
// forced, never moves a branch that others moved, and never a branch that is
// checked out. note says why it did not happen; the work is safe in our store.
func (t *Trees) publish(ctx context.Context, h home, rec record, head string) (note string, published bool, err error) {
	if head == rec.BaseCommit {
		return "", false, nil // a branch without work would only be noise
	}
	ref := "refs/heads/" + rec.Branch
	refuse := func(why string) (string, bool, error) {
		return fmt.Sprintf("The branch %s was not published: %s. The work is kept in %s as %s.", rec.Branch, why, h.store(), headRef(rec.Key)), false, nil
	}
	if _, err := os.Stat(rec.GitDir); err != nil {
		return refuse("there is no repository at " + rec.Repo + " any more")
	}
	last, err := t.refCommit(ctx, h, publishedRef(rec.Key))
	if err != nil {
		return "", false, err
	}
	now, err := t.git.resolve(ctx, rec.GitDir, ref)
	if err != nil {
		return "", false, err
	}
	ours, err := t.leftByUs(ctx, h, or(last, rec.BaseCommit), now, head)
	if err != nil {
		return "", false, err
	}
	switch {
	case now == head:
		return "", true, t.markPublished(ctx, h, rec, head, last)
	case ours:
	case now != "" && last == "":
		return refuse("a branch of that name was made by somebody else")
	case now != "" && now != last:
		return refuse("it was moved by somebody else, to " + now)
	}
	where, err := t.checkedOut(ctx, rec, ref)
	if err != nil {
		return "", false, err
	}
	if where != "" {
		return refuse("it is checked out at " + where)
	}
	err = t.push(ctx, h, rec, ref)
	if exitCode(err) > 0 {
		return refuse("git refused it (" + firstLines(stderrOf(err)) + ")")
	}
	if err != nil {
		return "", false, fmt.Errorf("publish branch: %w", err)
	}
	return "", true, t.markPublished(ctx, h, rec, head, last)
}

// push moves the branch. While it does, a file says so: if that is there before, the process that wrote it died in the middle,
// and a lock on the branch is that process's.
func (t *Trees) push(ctx context.Context, h home, rec record, ref string) error {
	mark := h.pushing(rec.Key)
	_, err := os.Lstat(mark)
	died := err == nil
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return fmt.Errorf("note that the branch moves: %w", err)
	}
	fetch := call{gitDir: rec.GitDir, local: true, args: fetchArgs(h.store(), headRef(rec.Key)+":"+ref)}
	err = t.git.do(ctx, fetch)
	if exitCode(err) > 0 && died && t.unlockBranch(ctx, rec, ref) {
		err = t.git.do(ctx, fetch)
	}
	if err == nil || exitCode(err) > 0 { // else git was ended before it could clean up
		err = errors.Join(err, os.Remove(mark))
	}
	return err
}

// leftByUs tells whether the branch is where a process of ours left it that died before it could note so: on a commit of our
// own, ahead of what is noted. Moving on from there takes nothing from anybody.
func (t *Trees) leftByUs(ctx context.Context, h home, noted, now, head string) (bool, error) {
	if now == "" || now == noted || now == head {
		return false, nil
	}
	if known, err := t.refCommit(ctx, h, now); err != nil || known == "" {
		return false, err
	}
	if after, err := t.isAncestor(ctx, h, noted, now); err != nil || !after {
		return false, err
	}
	return t.isAncestor(ctx, h, now, head)
}

// deadLock is the age at which the lock of a branch of ours has no living owner: git holds it for milliseconds.
const deadLock = 3 * time.Second

// unlockBranch removes the lock that a git of ours left on the branch when it was killed, and tells whether it did. It touches
// no other lock of the person's repository.
func (t *Trees) unlockBranch(ctx context.Context, rec record, ref string) bool {
	lock := filepath.Join(rec.GitDir, filepath.FromSlash(ref)+".lock")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range int(2 * deadLock / (50 * time.Millisecond)) {
		st, err := os.Lstat(lock)
		if err != nil {
			return false
		}
		if st.Mode().IsRegular() && time.Since(st.ModTime()) > deadLock {
			t.log.WarnContext(ctx, "removed the lock of a git that was killed", "key", rec.Key, "lock", lock)
			return os.Remove(lock) == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return false
}

// markPublished remembers where we left the branch, to tell our moves from others'.
func (t *Trees) markPublished(ctx context.Context, h home, rec record, head, last string) error {
	if head == last {
		return nil
	}
	return t.updateRefs(ctx, h, []string{"update " + publishedRef(rec.Key) + " " + head})
}

// checkedOut gives the worktree of the person's that is on the branch.
func (t *Trees) checkedOut(ctx context.Context, rec record, ref string) (string, error) {
	fields, err := t.git.list(ctx, call{gitDir: rec.GitDir, args: []string{"worktree", "list", "--porcelain", "-z"}})
	if err != nil {
		return "", fmt.Errorf("list the repository's worktrees: %w", err)
	}
	at := ""
	for _, f := range fields {
		if p, ok := strings.CutPrefix(f, "worktree "); ok {
			at = p
		}
		if f == "branch "+ref {
			return at, nil
		}
	}
	return "", nil
}
