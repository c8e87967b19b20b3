package tidy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"pulseloop/agent/worktree"
	"pulseloop/internal/scratch"
	"pulseloop/pulse"
)

// Leftover is something that may be in nobody's use any more.
type Leftover struct {
	Kind    string `json:"kind"` // worktree, run, temp, cache, store
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	What    string `json:"what"`
	Removed bool   `json:"removed"` // with --dry-run: would be
	Why     string `json:"why,omitempty"`
}

// Known is what the database knows.
type Known interface {
	Sessions
	Projects(ctx context.Context) ([]pulse.Project, error)
}

// CleanConfig says what is cleaned.
type CleanConfig struct {
	Data     string // the data directory
	Trees    *worktree.Trees
	Known    Known         // nil: there is no database, and no session is known
	Projects []string      // repositories of the configuration
	Still    time.Duration // how long after its end a session's agent may still be ending
	Dry      bool          // look, and remove nothing
	Stores   bool          // also stores of repositories that are no project any more
}

// cleaner is one call of Clean.
type cleaner struct {
	cfg   CleanConfig
	found []Leftover
}

// Clean lists what may be in nobody's use any more on this machine, and
// removes what surely is not. What stays has a reason.
func Clean(ctx context.Context, cfg CleanConfig) ([]Leftover, error) {
	c := &cleaner{cfg: cfg, found: []Leftover{}}
	for _, step := range []func(context.Context) error{c.worktrees, c.runs, c.temps, c.cachesAndStores} {
		if err := step(ctx); err != nil {
			return c.found, err
		}
	}
	if cfg.Dry {
		return c.found, nil
	}
	_, err := cfg.Trees.Repack(ctx)
	return c.found, err
}

// add notes something that is removed unless there is a reason to leave it.
func (c *cleaner) add(kind, path, what, reason string, remove func() error) error {
	l := Leftover{Kind: kind, Path: path, Bytes: scratch.Size(path), What: what, Why: reason}
	if reason == "" {
		l.Removed = true
		if !c.cfg.Dry {
			if err := remove(); err != nil {
				l.Removed, l.Why = false, err.Error()
			}
		}
	}
	c.found = append(c.found, l)
	return nil
}

func (c *cleaner) worktrees(ctx context.Context) error {
	kept, err := c.cfg.Trees.Kept(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, k := range kept {
		there[filepath.Base(k.Path)] = true
		size := scratch.Size(k.Path) // before it goes
		reason, err := c.park(ctx, k.Key)
		if err != nil {
			reason = err.Error()
		}
		c.found = append(c.found, Leftover{Kind: "worktree", Path: k.Path, Bytes: size, What: fmt.Sprintf("branch %s of %s", k.Branch, k.Repo), Removed: reason == "", Why: reason})
	}
	dirs, err := os.ReadDir(filepath.Join(c.cfg.Data, "worktrees"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list worktrees: %w", err)
	}
	for _, d := range dirs {
		if path := filepath.Join(c.cfg.Data, "worktrees", d.Name()); !there[d.Name()] {
			c.found = append(c.found, Leftover{Kind: "worktree", Path: path, Bytes: scratch.Size(path), What: "no session's", Why: "it is not known what it holds; look at it, and delete it by hand"})
		}
	}
	return nil
}

func (c *cleaner) park(ctx context.Context, key string) (string, error) {
	if c.cfg.Known == nil {
		return "there is no database that knows its session", nil
	}
	if reason, err := c.onRecord(ctx, key); err != nil || reason != "" {
		return reason, err
	}
	return c.cfg.Trees.Park(ctx, key, c.cfg.Dry, stillOver(c.cfg.Known, key, c.cfg.Still))
}

// onRecord sees to it that what was saved is counted before its tree goes:
// afterwards nobody would look.
func (c *cleaner) onRecord(ctx context.Context, key string) (string, error) {
	s, err := c.cfg.Known.Session(ctx, pulse.SessionID(key))
	if err != nil || !overFor(s, c.cfg.Still) || !final(s) {
		return "", nil // Park says why it stays, if it does
	}
	cp, err := c.cfg.Trees.Unreported(ctx, key, s.HeadCommit)
	if err != nil || cp.Commits == 0 {
		return "", err
	}
	to, ok := c.cfg.Known.(Ledger)
	switch {
	case !ok:
		return "the last commits in it are not on record yet; the daemon sees to that within minutes", nil
	case c.cfg.Dry:
		return "", nil
	}
	_, err = to.Reconcile(ctx, s.ID, s.HeadCommit, cp.Commit, cp.Commits)
	return "", err
}

// runs are what killed daemons left of their tasks.
func (c *cleaner) runs(context.Context) error {
	left, err := runs(c.cfg.Data)
	if err != nil || len(left) == 0 {
		return err
	}
	release, alone, err := scratch.Hold(runLock(c.cfg.Data))
	if err != nil {
		return err
	}
	defer func() { _ = release() }()
	reason := ""
	if !alone {
		reason = "a daemon runs here and may use it"
	}
	for _, dir := range left {
		if err := c.add("run", dir, "files of a task", reason, func() error { return scratch.RemoveAll(dir) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *cleaner) temps(context.Context) error {
	left, err := scratch.Leftovers("pulse-")
	if err != nil {
		return err
	}
	for _, dir := range left {
		if err := c.add("temp", dir, "temporary files of a program that was killed", "", func() error { return nil }); err != nil {
			return err
		}
	}
	if c.cfg.Dry || len(left) == 0 {
		return nil
	}
	_, err = scratch.Sweep("pulse-")
	return err
}

// cachesAndStores looks at what is kept by repository, for those that are no
// project any more.
func (c *cleaner) cachesAndStores(ctx context.Context) error {
	if c.cfg.Known == nil {
		return nil // nor is it known what is a project
	}
	paths, err := c.repositories(ctx)
	if err != nil {
		return err
	}
	caches, homes := map[string]bool{}, map[string]bool{}
	for path := range paths {
		sum := sha256.Sum256([]byte(path))
		caches[hex.EncodeToString(sum[:8])] = true
		if dir, err := c.cfg.Trees.StoreOf(ctx, path); err == nil {
			homes[dir] = true
		}
	}
	all, err := c.cfg.Trees.Stores(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if homes[s.Dir] || paths[s.Repo] {
			continue
		}
		what := fmt.Sprintf("store of %s, which is no project any more", s.Repo)
		reason := "`pulse clean --stores` removes it"
		if c.cfg.Stores {
			if reason, err = c.cfg.Trees.RemoveStore(ctx, s.Dir, true); err != nil {
				reason = err.Error()
			}
		}
		err := c.add("store", s.Dir, what, reason, func() error {
			if why, err := c.cfg.Trees.RemoveStore(ctx, s.Dir, false); err != nil || why != "" {
				return errors.Join(err, errors.New(why))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	dirs, err := os.ReadDir(filepath.Join(c.cfg.Data, "caches"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list caches: %w", err)
	}
	for _, d := range dirs {
		path := filepath.Join(c.cfg.Data, "caches", d.Name())
		if caches[d.Name()] {
			continue
		}
		if err := c.add("cache", path, "build caches of a repository that is no project any more", "", func() error { return scratch.RemoveAll(path) }); err != nil {
			return err
		}
	}
	return nil
}

// repositories are those of the configuration and of the database.
func (c *cleaner) repositories(ctx context.Context) (map[string]bool, error) {
	paths := map[string]bool{}
	for _, p := range c.cfg.Projects {
		paths[p] = true
	}
	list, err := c.cfg.Known.Projects(ctx)
	for _, p := range list {
		paths[p.Path] = true
	}
	return paths, err
}
