package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pulseloop/internal/scratch"
	"pulseloop/pulse"
)

// Store is what we keep for one of the person's repositories.
type Store struct {
	Dir    string // of ours
	Repo   string // top of the person's repository when it was last used, or its git directory
	Trees  int    // that are there
	Parked int    // that were put away
}

// Stores lists what we keep, a repository each.
func (t *Trees) Stores(ctx context.Context) ([]Store, error) {
	all, err := t.homes()
	if err != nil {
		return nil, err
	}
	out := make([]Store, 0, len(all))
	for _, h := range all {
		s := Store{Dir: h.dir}
		recs, parked, err := h.records()
		if err != nil {
			return nil, err
		}
		s.Trees, s.Parked = len(recs)-parked, parked
		if len(recs) > 0 {
			s.Repo = recs[len(recs)-1].Repo
		} else if from, err := t.git.text(ctx, call{gitDir: h.store(), args: []string{"config", "--get", "remote.origin.url"}}); err == nil {
			s.Repo = from
		}
		out = append(out, s)
	}
	return out, nil
}

// StoreOf tells where what we keep for a repository lies, or would lie.
func (t *Trees) StoreOf(ctx context.Context, repo string) (dir string, err error) {
	info, err := t.git.inspectRepo(ctx, repo)
	if err != nil {
		return "", err
	}
	return t.homeOf(info.common).dir, nil
}

// records gives every record of a repository, and how many of them are of
// trees that were put away. Those of trees that are there come last.
func (h home) records() (recs []record, parked int, err error) {
	err = filepath.WalkDir(filepath.Join(h.dir, "parked"), func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		key, ok := strings.CutSuffix(d.Name(), ".json")
		if !ok {
			return nil
		}
		rec, err := loadRecord(p, key)
		recs = append(recs, rec)
		return err
	})
	parked = len(recs)
	if err != nil {
		return nil, 0, fmt.Errorf("list trees that were put away: %w", err)
	}
	files, err := os.ReadDir(h.trees())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("list trees: %w", err)
	}
	for _, f := range files {
		if key, ok := strings.CutSuffix(f.Name(), ".json"); ok {
			rec, err := h.load(key)
			if err != nil {
				return nil, 0, err
			}
			recs = append(recs, rec)
		}
	}
	return recs, parked, nil
}

// RemoveStore deletes what we keep for a repository, if nothing is in it that
// is not in a branch of the person's. The reason says why it was left; with
// dry nothing is deleted.
func (t *Trees) RemoveStore(ctx context.Context, dir string, dry bool) (reason string, err error) {
	h := home{dir: filepath.Clean(dir)}
	if filepath.Dir(h.dir) != filepath.Join(t.dir, "repos") {
		return "", pulse.Invalid(dir+" is no store of pulse", "name one that `pulse clean` lists")
	}
	release, err := t.locks.acquire(ctx, h)
	if err != nil {
		return "", err
	}
	defer release()
	recs, parked, err := h.records()
	if err != nil {
		return "", err
	}
	if n := len(recs) - parked; n > 0 {
		return fmt.Sprintf("%d trees hang on it", n), nil
	}
	if kept, err := os.ReadDir(filepath.Join(h.dir, "refused")); err == nil && len(kept) > 0 {
		return "it holds .git directories of agents whose commits were refused: " + filepath.Join(h.dir, "refused"), nil
	}
	refs, err := t.refsBelow(ctx, h, "refs/pulse/")
	if err != nil {
		return "", err
	}
	from, err := t.git.text(ctx, call{gitDir: h.store(), args: []string{"config", "--get", "remote.origin.url"}})
	if err != nil || !filepath.IsAbs(from) {
		return "it is not known which repository it was made from", nil
	}
	if st, err := os.Stat(from); len(refs) > 0 && (err != nil || !st.IsDir()) {
		return fmt.Sprintf("the repository %s is gone, and this holds work of %d sessions", from, len(refs)), nil
	}
	checked := map[string]bool{}
	for name, id := range refs {
		if checked[id] {
			continue
		}
		if in, err := t.isIn(ctx, record{GitDir: from, Repo: from}, id); err != nil {
			return "", err
		} else if !in {
			return fmt.Sprintf("%s in %s is on no branch of %s", name, h.store(), from), nil
		}
		checked[id] = true
	}
	if dry {
		return "", nil
	}
	if err := scratch.RemoveAll(h.dir); err != nil {
		return "", fmt.Errorf("remove store: %w", err)
	}
	t.log.InfoContext(ctx, "store removed", "store", h.dir, "repository", from)
	return "", nil
}

// Bounds within which a store is left alone: beyond them every git command on
// it becomes slower, and it takes more room than it has to.
const (
	maxLooseObjects = 1000
	maxSmallPacks   = 20
	packTime        = 5 * time.Minute
	deadPack        = time.Hour
)

// Repack makes one pack of the many small things that sessions leave in the
// stores, where there are many. Nothing is ever dropped: trees borrow objects
// that no name leads to. The pack that came from the person's repository is
// the largest and stays as it is: it is theirs too, by hard links, and takes
// no room. It answers how many stores were packed.
func (t *Trees) Repack(ctx context.Context) (int, error) {
	all, err := t.homes()
	if err != nil {
		return 0, err
	}
	packed := 0
	var errs []error
	for _, h := range all {
		did, err := t.repack(ctx, h)
		if did {
			packed++
		}
		errs = append(errs, err)
	}
	return packed, errors.Join(errs...)
}

func (t *Trees) repack(ctx context.Context, h home) (bool, error) {
	loose, packs := h.pieces()
	if loose < maxLooseObjects && packs < maxSmallPacks {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, packTime)
	defer cancel()
	release, err := t.locks.acquire(ctx, h)
	if err != nil {
		return false, err
	}
	defer release()
	h.clearDeadPacks()
	for _, args := range [][]string{{"pack-refs", "--all"}, {"repack", "--quiet", "-d", "--geometric=2", "--no-write-bitmap-index"}} {
		if err := t.git.do(ctx, call{gitDir: h.store(), args: args, with: []string{"pack.threads=1", "pack.windowMemory=64m"}}); err != nil {
			return false, fmt.Errorf("repack %s: %w", h.store(), err)
		}
	}
	now, left := h.pieces()
	t.log.InfoContext(ctx, "store packed", "store", h.store(), "loose", loose, "packs", packs, "loose now", now, "packs now", left)
	return true, nil
}

// pieces counts loose objects and packs. Of 256 folders of loose objects one
// is looked at: names are spread evenly.
func (h home) pieces() (loose, packs int) {
	sample, _ := os.ReadDir(filepath.Join(h.store(), "objects", "17"))
	found, _ := filepath.Glob(filepath.Join(h.store(), "objects", "pack", "*.pack"))
	return 256 * len(sample), len(found)
}

// clearDeadPacks removes what a git that was killed left half written. The
// store's lock is held.
func (h home) clearDeadPacks() {
	found, _ := filepath.Glob(filepath.Join(h.store(), "objects", "pack", "tmp_*"))
	for _, p := range found {
		if st, err := os.Lstat(p); err == nil && st.Mode().IsRegular() && time.Since(st.ModTime()) > deadPack {
			_ = os.Remove(p)
		}
	}
}
