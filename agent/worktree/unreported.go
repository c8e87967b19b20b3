package worktree

import (
	"context"
	"path"
)

// Heads gives the last checkpoint of every tree that is there, by key.
func (t *Trees) Heads(ctx context.Context) (map[string]string, error) {
	all, err := t.homes()
	if err != nil {
		return nil, err
	}
	heads := map[string]string{}
	for _, h := range all {
		refs, err := t.refsBelow(ctx, h, "refs/pulse/trees/")
		if err != nil {
			return nil, err
		}
		for name, id := range refs {
			heads[path.Base(name)] = id
		}
	}
	return heads, nil
}

// Unreported counts what checkpoints have saved since a commit that somebody
// has on record, as Checkpoint would, if it is on a branch of the
// person's; empty: since the tree was made. The tree
// itself is not looked at.
func (t *Trees) Unreported(ctx context.Context, key, since string) (Checkpoint, error) {
	h, rec, release, err := t.open(ctx, key)
	if err != nil {
		return Checkpoint{}, err
	}
	defer release()
	head, err := t.refCommit(ctx, h, headRef(key))
	if err != nil || head == "" {
		return Checkpoint{}, err
	}
	if on, err := t.isIn(ctx, rec, head); err != nil || !on {
		return Checkpoint{}, err // it was saved here and never published: the branch has another machine's work, or none
	}
	cp := Checkpoint{Commit: head}
	return cp, t.describeChange(ctx, h, t.countedFrom(ctx, h, rec, work{old: head, head: head}, since), head, &cp)
}
