package worktree

import (
	"context"
	"fmt"
	"os"
	"strings"
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
	switch {
	case now == head:
		return "", true, t.markPublished(ctx, h, rec, head, last)
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
	err = t.git.do(ctx, call{gitDir: rec.GitDir, local: true, args: fetchArgs(h.store(), headRef(rec.Key)+":"+ref)})
	if exitCode(err) > 0 {
		return refuse("git refused it (" + firstLines(stderrOf(err)) + ")")
	}
	if err != nil {
		return "", false, fmt.Errorf("publish branch: %w", err)
	}
	return "", true, t.markPublished(ctx, h, rec, head, last)
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
