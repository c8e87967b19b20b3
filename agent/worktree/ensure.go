package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"pulseloop/internal/scratch"
	"pulseloop/pulse"
)

// Ensure makes the tree, or gives it back as it was, uncommitted work
// included. Called again after a crash at any point it finishes what was begun.
func (t *Trees) Ensure(ctx context.Context, w Want) (Tree, error) {
	if err := checkKey(w.Key); err != nil {
		return Tree{}, err
	}
	if err := t.git.checkBranch(ctx, t.dir, w.Branch); err != nil {
		return Tree{}, err
	}
	info, err := t.git.inspectRepo(ctx, w.Repo)
	if err != nil {
		return Tree{}, err
	}
	if strings.HasPrefix(info.common+"/", t.dir+"/") {
		return Tree{}, pulse.Invalid(info.root+" is a tree made by pulse", "name the repository it was made from")
	}
	h := t.homeOf(info.common)
	release, err := t.locks.acquire(ctx, h)
	if err != nil {
		return Tree{}, err
	}
	defer release()

	was, rec, err := t.find(w.Key)
	if errors.Is(err, fs.ErrNotExist) {
		was, rec, err = t.unpark(ctx, w.Key)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t.create(ctx, h, info, w)
	case err != nil:
		return Tree{}, err
	case was != h:
		return Tree{}, &pulse.Error{Code: pulse.CodeConflict, Message: fmt.Sprintf("worktree %s belongs to the repository %s", w.Key, rec.Repo),
			Hint: "if that repository was moved here, move it back or start a new session; the work so far is kept in " + was.store()}
	case rec.Branch != w.Branch:
		return Tree{}, &pulse.Error{Code: pulse.CodeConflict, Message: fmt.Sprintf("worktree %s is for branch %s, not %s", w.Key, rec.Branch, w.Branch),
			Hint: "use its branch, or another session"}
	case !rec.Ready:
		return t.create(ctx, h, info, w)
	}
	return t.reopen(ctx, h, rec)
}

// create runs from the first step also when an earlier try got half way: until
// the record says ready nobody has worked in the tree.
func (t *Trees) create(ctx context.Context, h home, info repoInfo, w Want) (Tree, error) {
	base, ref, err := t.findBase(ctx, info, w.Base)
	if err != nil {
		return Tree{}, err
	}
	if err := t.branchIsFree(ctx, h, info, w); err != nil {
		return Tree{}, err
	}
	rec := record{Key: w.Key, Repo: info.root, GitDir: info.common, Branch: w.Branch, Base: base, Format: info.format}
	if err := h.keep(rec); err != nil {
		return Tree{}, err
	}
	if err := t.ensureStore(ctx, h, info); err != nil {
		return Tree{}, err
	}
	if rec.BaseCommit, err = t.fetchBase(ctx, h, rec, ref); err != nil {
		return Tree{}, err
	}
	if err := t.updateRefs(ctx, h, []string{"update " + headRef(rec.Key) + " " + rec.BaseCommit}); err != nil {
		return Tree{}, err
	}
	if err := t.populate(ctx, h, rec, rec.BaseCommit); err != nil {
		return Tree{}, err
	}
	rec.Ready = true
	if err := h.keep(rec); err != nil {
		return Tree{}, err
	}
	t.log.InfoContext(ctx, "worktree made", "key", rec.Key, "branch", rec.Branch, "base", rec.Base, "commit", rec.BaseCommit)
	return t.describe(ctx, h, rec)
}

// findBase gives the name of the base and the full ref to fetch it by.
func (t *Trees) findBase(ctx context.Context, info repoInfo, base string) (name, ref string, err error) {
	if base == "" && info.head == "" {
		// By its id: "HEAD" of the common directory is another checkout's.
		if info.commit != "" {
			return "HEAD", info.commit, nil
		}
		return "", "", pulse.Invalid(info.root+" has no commit on the branch it is on", "name a base branch, or commit on this one")
	}
	base = or(base, info.head)
	for _, ns := range []string{"refs/heads/", "refs/remotes/", "refs/tags/"} {
		c, err := t.git.resolve(ctx, info.common, ns+base)
		if err != nil {
			return "", "", err
		}
		if c != "" && t.git.do(ctx, call{dir: t.dir, args: []string{"check-ref-format", ns + base}}) == nil {
			return base, ns + base, nil
		}
	}
	return "", "", pulse.Invalid(fmt.Sprintf("%s has no branch %q to start from", info.root, base), "list its branches with: git -C "+info.root+" branch --all")
}

// branchIsFree makes sure the branch will be ours: publishing onto a branch
// somebody else made would move their work.
func (t *Trees) branchIsFree(ctx context.Context, h home, info repoInfo, w Want) error {
	taken := func(what string) error {
		return &pulse.Error{Code: pulse.CodeConflict, Message: fmt.Sprintf("%s has %s", info.root, what), Hint: "choose another name for the branch"}
	}
	out, err := t.git.text(ctx, call{gitDir: info.common, args: []string{"for-each-ref", "--format=%(refname)", "refs/heads/" + w.Branch}})
	if err != nil {
		return fmt.Errorf("list branches: %w", err)
	}
	if first, _, _ := strings.Cut(out, "\n"); first == "refs/heads/"+w.Branch {
		return taken("a branch " + w.Branch + " already")
	} else if first != "" {
		return taken("the branch " + strings.TrimPrefix(first, "refs/heads/") + ", beside which git allows no " + w.Branch)
	}
	for i, c := range w.Branch {
		if c != '/' {
			continue
		}
		if got, err := t.git.resolve(ctx, info.common, "refs/heads/"+w.Branch[:i]); err != nil || got != "" {
			return errors.Join(err, taken("the branch "+w.Branch[:i]+", beside which git allows no "+w.Branch))
		}
	}
	others, err := os.ReadDir(h.trees())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list trees: %w", err)
	}
	for _, e := range others {
		key, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || key == w.Key {
			continue
		}
		if rec, err := h.load(key); err == nil && rec.Branch == w.Branch {
			return &pulse.Error{Code: pulse.CodeConflict, Message: fmt.Sprintf("branch %s is the branch of worktree %s", w.Branch, key), Hint: "choose another name for the branch"}
		}
	}
	return nil
}

// fetchBase brings the store up to date with the base. The person's repository
// is only read.
func (t *Trees) fetchBase(ctx context.Context, h home, rec record, ref string) (string, error) {
	err := t.git.do(ctx, call{gitDir: h.store(), local: true, args: fetchArgs(rec.GitDir, "+"+ref+":"+baseRef(rec.Key))})
	if err != nil {
		return "", fmt.Errorf("fetch base %s: %w", ref, err)
	}
	c, err := t.refCommit(ctx, h, baseRef(rec.Key))
	if err == nil && c == "" {
		err = fmt.Errorf("fetch base %s: nothing arrived", ref)
	}
	return c, err
}

// fetchArgs is a fetch that writes the given refs and nothing beside them.
func fetchArgs(from string, refspecs ...string) []string {
	return append([]string{"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
		"--no-recurse-submodules", "--no-prune", "--no-prune-tags", "--refmap=", "--atomic", "--", from}, refspecs...)
}

// populate makes the working tree and its .git from nothing.
func (t *Trees) populate(ctx context.Context, h home, rec record, commit string) error {
	path := t.treePath(rec.Key)
	if err := errors.Join(scratch.RemoveAll(path), scratch.RemoveAll(h.index(rec.Key))); err != nil {
		return fmt.Errorf("clear half a tree: %w", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("make tree: %w", err)
	}
	if err := t.git.do(ctx, call{gitDir: h.store(), workTree: path, index: h.index(rec.Key), dir: path,
		args: []string{"read-tree", "--reset", "-u", commit}}); err != nil {
		return fmt.Errorf("check out tree: %w", err)
	}
	return t.renewGit(h, rec, commit, nil, false)
}

// reopen leaves the files and a sound .git alone; only what is missing or no
// longer ours is made again.
func (t *Trees) reopen(ctx context.Context, h home, rec record) (Tree, error) {
	head, err := t.refCommit(ctx, h, headRef(rec.Key))
	if err == nil && head == "" {
		err = &pulse.Error{Code: pulse.CodeInternal, Message: "our store of " + rec.Repo + " lost the work of " + rec.Key,
			Hint: "restore " + h.store() + " from a backup, or start a new session"}
	}
	if err != nil {
		return Tree{}, err
	}
	if !isRealDir(t.treePath(rec.Key)) {
		t.log.InfoContext(ctx, "worktree gone, made again from its last checkpoint", "key", rec.Key)
		if err := t.populate(ctx, h, rec, head); err != nil {
			return Tree{}, err
		}
		return t.describe(ctx, h, rec)
	}
	if reason, err := t.inspectGit(h, rec); err != nil {
		return Tree{}, err
	} else if reason != "" {
		t.log.WarnContext(ctx, "worktree has no .git of ours, made again", "key", rec.Key, "reason", reason)
		return t.reopenGit(ctx, h, rec, head)
	}
	return t.describe(ctx, h, rec)
}

func (t *Trees) reopenGit(ctx context.Context, h home, rec record, head string) (Tree, error) {
	if err := t.resetIndex(ctx, t.space(h, rec), head); err != nil {
		return Tree{}, err
	}
	if err := t.renewGit(h, rec, head, nil, true); err != nil {
		return Tree{}, err
	}
	return t.describe(ctx, h, rec)
}

func isRealDir(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.IsDir()
}
