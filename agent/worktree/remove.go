package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"

	"pulseloop/pulse"
)

// Remove deletes a tree. What it holds is kept first: uncommitted work as a
// commit, and the branch under an archive ref of our store. A tree with another
// repository in it, or with files that could not be kept, is not removed but
// reported. What was refused of it stays where it was put aside. Removing a tree that is not there is no error.
func (t *Trees) Remove(ctx context.Context, tree Tree) error {
	h, rec, release, err := t.open(ctx, tree.Key)
	if pulse.CodeOf(err) == pulse.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if rec.Ready {
		if err := t.keepAll(ctx, h, rec); err != nil {
			return err
		}
	}
	return t.erase(ctx, h, rec)
}

func (t *Trees) keepAll(ctx context.Context, h home, rec record) error {
	w, err := t.gather(ctx, h, rec, Save{Subject: "chore: keep uncommitted work of a removed worktree"})
	if err != nil {
		return fmt.Errorf("keep work of %s: %w", rec.Key, err)
	}
	stuck := func(why, hint string) error {
		return &pulse.Error{Code: pulse.CodeConflict, Message: "worktree " + rec.Key + " was not removed: " + why, Hint: hint}
	}
	if len(w.nested) > 0 {
		return stuck("another git repository lies in it: "+some(w.nested), "move it out of "+t.treePath(rec.Key)+" or delete it, then remove again")
	}
	if len(w.lost) > 0 {
		return stuck("some of its files cannot be kept: "+some(w.lost), "move them out of "+t.treePath(rec.Key)+" or delete them, then remove again")
	}
	if w.head == rec.BaseCommit {
		return nil
	}
	// Also when the branch is published: the person may delete it later.
	ref := archiveRef(rec.Key, w.head)
	t.log.InfoContext(ctx, "work of removed worktree archived", "key", rec.Key, "ref", ref, "store", h.store())
	return t.updateRefs(ctx, h, []string{"update " + ref + " " + w.head})
}

// erase takes the record away last, so that a removal cut short is seen and
// done again.
func (t *Trees) erase(ctx context.Context, h home, rec record) error {
	rec.Ready = false
	if err := errors.Join(h.keep(rec), t.clear(h, rec.Key)); err != nil {
		return fmt.Errorf("remove tree: %w", err)
	}
	var commands []string
	for _, ref := range []string{headRef(rec.Key), baseRef(rec.Key), publishedRef(rec.Key)} {
		if id, err := t.refCommit(ctx, h, ref); err != nil {
			return err
		} else if id != "" {
			commands = append(commands, "delete "+ref)
		}
	}
	if err := t.updateRefs(ctx, h, commands); err != nil {
		return err
	}
	if err := os.Remove(h.record(rec.Key)); err != nil {
		return fmt.Errorf("remove tree record: %w", err)
	}
	t.log.InfoContext(ctx, "worktree removed", "key", rec.Key)
	return nil
}
