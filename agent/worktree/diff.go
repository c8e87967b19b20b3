package worktree

import (
	"context"
	"fmt"

	"pulseloop/pulse"
)

// maxPatch bounds the patch that Diff gives, in bytes.
const maxPatch = 64 << 20

// Diff compares the last checkpoint with where the tree started: a summary for
// people, and the patch. Both are made in our store, where no attribute of the
// agent's is seen and no program but git runs.
func (t *Trees) Diff(ctx context.Context, tree Tree) (stat string, patch []byte, err error) {
	h, rec, release, err := t.open(ctx, tree.Key)
	if err != nil {
		return "", nil, err
	}
	defer release()
	head, err := t.refCommit(ctx, h, headRef(rec.Key))
	if err != nil {
		return "", nil, err
	}
	if head == "" {
		return "", nil, &pulse.Error{Code: pulse.CodeConflict, Message: "worktree " + rec.Key + " is not finished", Hint: "open it again first"}
	}
	diff := func(form ...string) ([]byte, error) {
		args := append([]string{"diff-tree", "-r", "--find-renames", "--no-color", "--no-ext-diff", "--no-textconv",
			"--submodule=short", "--ignore-submodules=none", "--src-prefix=a/", "--dst-prefix=b/"}, form...)
		out, _, err := t.git.run(ctx, call{gitDir: h.store(), max: maxPatch, args: append(args, rec.BaseCommit, head)})
		return out, err
	}
	text, err := diff("--stat=100")
	if err != nil {
		return "", nil, fmt.Errorf("summarise changes: %w", err)
	}
	if patch, err = diff("--patch", "--full-index"); err != nil {
		return string(text), nil, fmt.Errorf("compare commits: %w", err)
	}
	return string(text), patch, nil
}
