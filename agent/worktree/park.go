package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"pulseloop/internal/scratch"
)

// Kept is a tree as its record names it. No git is asked for it.
type Kept struct {
	Key    string
	Repo   string // top of the person's repository
	Branch string
	Path   string // of the working tree
	Store  string // directory of what we keep for the repository
}

// Kept lists the trees that are there, without those that were put away,
// sorted by key.
func (t *Trees) Kept(ctx context.Context) ([]Kept, error) {
	all, err := t.homes()
	if err != nil {
		return nil, err
	}
	kept := []Kept{}
	for _, h := range all {
		files, err := os.ReadDir(h.trees())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list trees: %w", err)
		}
		for _, f := range files {
			key, ok := strings.CutSuffix(f.Name(), ".json")
			if !ok {
				continue
			}
			rec, err := h.load(key)
			if err != nil {
				t.log.WarnContext(ctx, "tree record unreadable", "path", h.record(key), "error", err)
				continue
			}
			kept = append(kept, Kept{Key: key, Repo: rec.Repo, Branch: rec.Branch, Path: t.treePath(key), Store: h.dir})
		}
	}
	sort.Slice(kept, func(i, j int) bool { return kept[i].Key < kept[j].Key })
	return kept, nil
}

// Park puts a tree away whose work is all on its branch in the person's
// repository, or that has none: its files go, its record and its head stay, so
// that Ensure makes it again as it was. Files that git ignores are not work.
//
// over is asked while nobody else can open the tree: a reason to leave it is
// answered as it is. So is what would be lost: the reason is empty when the
// tree was put away, or with dry when it would be. Everything that is not
// surely safe is a reason.
func (t *Trees) Park(ctx context.Context, key string, dry bool, over func(context.Context) (reason string, err error)) (reason string, err error) {
	h, rec, release, err := t.open(ctx, key)
	if err != nil {
		return "", err
	}
	defer release()
	if reason, err := over(ctx); err != nil || reason != "" {
		return reason, err
	}
	if !rec.Ready {
		return "it was never finished", nil
	}
	head, err := t.refCommit(ctx, h, headRef(key))
	if err != nil {
		return "", err
	}
	if head == "" {
		return "our store has lost its work", nil
	}
	if head != rec.BaseCommit {
		if rec.Published, err = t.isIn(ctx, rec, head); err != nil {
			return "", err
		}
		if !rec.Published {
			return "its work is on no branch of " + rec.Repo, nil
		}
	}
	if isRealDir(t.treePath(key)) {
		if reason, err := t.unsaved(ctx, h, rec, head); err != nil || reason != "" {
			return reason, err
		}
	}
	if dry {
		return "", nil
	}
	return "", t.putAway(ctx, h, rec)
}

// isIn tells whether a branch of the person's repository holds the commit.
func (t *Trees) isIn(ctx context.Context, rec record, commit string) (bool, error) {
	if there, err := t.git.resolve(ctx, rec.GitDir, commit); err != nil || there == "" {
		return false, err
	}
	out, err := t.git.text(ctx, call{gitDir: rec.GitDir, args: []string{"for-each-ref", "--count=1", "--format=%(refname)", "--contains=" + commit, "refs/heads", "refs/remotes"}})
	if err != nil {
		return false, fmt.Errorf("look for the work in %s: %w", rec.Repo, err)
	}
	return out != "", nil
}

// unsaved says what of the tree is in no commit of ours. The tree is only
// looked at.
func (t *Trees) unsaved(ctx context.Context, h home, rec record, head string) (string, error) {
	if reason, err := t.inspectGit(h, rec); err != nil || reason != "" {
		return orReason(reason, "its .git is not the one made for it ("+reason+")"), err
	}
	git, err := os.OpenRoot(filepath.Join(t.treePath(rec.Key), ".git"))
	if err != nil {
		return "", fmt.Errorf("open .git: %w", err)
	}
	defer git.Close()
	said := readTips(git, rec.Format)
	if len(said.odd) > 0 {
		return strings.Join(said.odd, " "), nil
	}
	archive, err := t.refsBelow(ctx, h, archivePrefix(rec.Key))
	if err != nil {
		return "", err
	}
	have := map[string]bool{head: true, rec.BaseCommit: true}
	for _, id := range archive {
		have[id] = true
	}
	for _, id := range said.order("refs/heads/"+rec.Branch, have) {
		if known, err := t.refCommit(ctx, h, id); err != nil {
			return "", err
		} else if known == "" {
			return "the agent made commits in it that were not saved", nil
		}
		if loose, err := t.unreached(ctx, h, rec, id, head); err != nil {
			return "", err
		} else if loose {
			return "the agent made commits in it that were not saved", nil
		}
	}
	s := t.space(h, rec)
	if err := t.resetIndex(ctx, s, head); err != nil {
		return "", err
	}
	for _, which := range [][]string{{"--modified", "--deleted"}, {"--others", "--exclude-standard"}} {
		files, err := t.git.list(ctx, s.call(append([]string{"ls-files", "-z"}, which...)...))
		if err != nil {
			return "", fmt.Errorf("list changes: %w", err)
		}
		if len(files) > 0 {
			return "files in it were not saved: " + some(files), nil
		}
	}
	return "", nil
}

// orReason is text where there is a reason, else nothing.
func orReason(reason, text string) string {
	if reason == "" {
		return ""
	}
	return text
}

// putAway moves the record first: cut short after that, the tree is one that
// was put away and Ensure makes it again from nothing.
func (t *Trees) putAway(ctx context.Context, h home, rec record) error {
	if err := keepRecord(h.parked(rec.Key), rec); err != nil {
		return err
	}
	if err := os.Remove(h.record(rec.Key)); err != nil {
		return fmt.Errorf("put tree away: %w", err)
	}
	if err := t.clear(h, rec.Key); err != nil {
		return fmt.Errorf("put tree away: %w", err)
	}
	// One name is enough: the record has the base, and says whether the branch was there.
	var commands []string
	for _, ref := range []string{baseRef(rec.Key), publishedRef(rec.Key)} {
		if id, err := t.refCommit(ctx, h, ref); err != nil {
			return err
		} else if id != "" {
			commands = append(commands, "delete "+ref)
		}
	}
	t.log.InfoContext(ctx, "worktree put away", "key", rec.Key, "branch", rec.Branch)
	return t.updateRefs(ctx, h, commands)
}

// clear removes every file of a tree but its record.
func (t *Trees) clear(h home, key string) error {
	var err error
	for _, p := range []string{t.treePath(key), h.index(key), h.fresh(key), h.retired(key), h.intake(key), h.pushing(key)} {
		err = errors.Join(err, scratch.RemoveAll(p))
	}
	return err
}

// unpark gives a tree that was put away its record and its names back. The
// repository's lock is held.
func (t *Trees) unpark(ctx context.Context, key string) (home, record, error) {
	h, rec, err := t.findParked(key)
	if err != nil {
		return home{}, record{}, err
	}
	head, err := t.refCommit(ctx, h, headRef(key))
	if err != nil {
		return home{}, record{}, err
	}
	commands := []string{"update " + baseRef(key) + " " + rec.BaseCommit}
	if rec.Published && head != "" {
		commands = append(commands, "update "+publishedRef(key)+" "+head)
	}
	if err := t.updateRefs(ctx, h, commands); err != nil {
		return home{}, record{}, err
	}
	// What a removal that was cut short left of the files is no work of anybody's.
	if err := t.clear(h, key); err != nil {
		return home{}, record{}, fmt.Errorf("take tree back: %w", err)
	}
	rec.Published = false
	if err := h.keep(rec); err != nil {
		return home{}, record{}, err
	}
	if err := os.Remove(h.parked(key)); err != nil {
		return home{}, record{}, fmt.Errorf("take tree back: %w", err)
	}
	return h, rec, nil
}
