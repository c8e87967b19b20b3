package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pulseloop/agent/worktree"
	"pulseloop/api/client"
	"pulseloop/configs"
	"pulseloop/db"
	"pulseloop/internal/scratch"
	"pulseloop/pulse"
)

// leftover is something that may be in nobody's use any more.
type leftover struct {
	Kind    string `json:"kind"` // worktree, run, temp, cache, store
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	What    string `json:"what"`
	Removed bool   `json:"removed"` // with --dry-run: would be
	Why     string `json:"why,omitempty"`
}

// cleaning is one call of `pulse clean`.
type cleaning struct {
	cfg    configs.Config
	trees  *worktree.Trees
	known  known
	dry    bool
	stores bool
	found  []leftover
}

// known is what the database knows, asked of it or of the program that has it.
type known interface {
	sessionSource
	Projects(ctx context.Context) ([]pulse.Project, error)
}

func newClean(o *options) *cobra.Command {
	c := &cleaning{}
	cmd := &cobra.Command{
		Use: "clean", Short: "Remove what is left over: worktrees whose work is on its branch, temporary files, caches", Args: cobra.NoArgs,
		Long: "Removes what nobody uses any more on this machine, and says how much room it took: worktrees of sessions at their end, once all of\n" +
			"their work is on a branch of your repository (a follow-up makes them again), what killed programs left, and caches of\n" +
			"repositories that are no project any more. Work that is on no branch is never removed: it is listed, with the reason.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.run(cmd.Context(), o); err != nil {
				return err
			}
			if o.json {
				return o.printJSON(append([]leftover{}, c.found...))
			}
			return o.printLeftovers(c)
		},
	}
	cmd.Flags().BoolVar(&c.dry, "dry-run", false, "say what would be removed, and remove nothing")
	cmd.Flags().BoolVar(&c.stores, "stores", false, "also remove what is kept for repositories that are no project any more, if all of it is on their branches")
	return cmd
}

func (c *cleaning) run(ctx context.Context, o *options) (err error) {
	if c.cfg, err = o.load(); err != nil {
		return err
	}
	if _, err := os.Stat(c.cfg.DataDir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if c.trees, err = worktree.New(worktree.Config{Dir: c.cfg.DataDir}); err != nil {
		return err
	}
	done, err := c.ask(ctx, o)
	if err != nil {
		return err
	}
	defer done()
	for _, step := range []func(context.Context) error{c.worktrees, c.runs, c.temps, c.cachesAndStores} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if !c.dry {
		_, err = c.trees.Repack(ctx)
	}
	return err
}

// ask finds out who knows the sessions: the program that runs, else the
// database itself.
func (c *cleaning) ask(ctx context.Context, o *options) (done func(), err error) {
	if c.cfg.DatabaseURL == "" && running(ctx, c.cfg) {
		api, _, err := o.connect()
		c.known = overAPI{api}
		return func() {}, err
	}
	if _, err := os.Stat(sqliteFile(c.cfg)); c.cfg.DatabaseURL == "" && errors.Is(err, os.ErrNotExist) {
		c.known = nobody{}
		return func() {}, nil
	}
	store, err := db.Open(ctx, db.Config{URL: c.cfg.DatabaseURL.Reveal(), Path: sqliteFile(c.cfg), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	c.known = store
	return func() { _ = store.Close() }, nil
}

// add notes something that is removed unless there is a reason to leave it.
func (c *cleaning) add(kind, path, what, reason string, remove func() error) error {
	l := leftover{Kind: kind, Path: path, Bytes: scratch.Size(path), What: what, Why: reason}
	if reason == "" {
		l.Removed = true
		if !c.dry {
			if err := remove(); err != nil {
				l.Removed, l.Why = false, err.Error()
			}
		}
	}
	c.found = append(c.found, l)
	return nil
}

func (c *cleaning) worktrees(ctx context.Context) error {
	kept, err := c.trees.Kept(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, k := range kept {
		there[filepath.Base(k.Path)] = true
		size := scratch.Size(k.Path) // before it goes
		reason, err := c.trees.Park(ctx, k.Key, c.dry, stillOver(c.known, k.Key, 2*c.cfg.Daemon.Lease))
		if err != nil {
			reason = err.Error()
		}
		c.found = append(c.found, leftover{Kind: "worktree", Path: k.Path, Bytes: size, What: fmt.Sprintf("branch %s of %s", k.Branch, k.Repo), Removed: reason == "", Why: reason})
	}
	dirs, err := os.ReadDir(filepath.Join(c.cfg.DataDir, "worktrees"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list worktrees: %w", err)
	}
	for _, d := range dirs {
		if path := filepath.Join(c.cfg.DataDir, "worktrees", d.Name()); !there[d.Name()] {
			c.found = append(c.found, leftover{Kind: "worktree", Path: path, Bytes: scratch.Size(path), What: "no session's", Why: "it is not known what it holds; look at it, and delete it by hand"})
		}
	}
	return nil
}

// runs are what killed daemons left of their tasks.
func (c *cleaning) runs(context.Context) error {
	left, err := leftRuns(c.cfg)
	if err != nil || len(left) == 0 {
		return err
	}
	release, alone, err := scratch.Hold(runLock(c.cfg))
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

func (c *cleaning) temps(context.Context) error {
	left, err := scratch.Leftovers("pulse-")
	if err != nil {
		return err
	}
	for _, dir := range left {
		if err := c.add("temp", dir, "temporary files of a program that was killed", "", func() error { return nil }); err != nil {
			return err
		}
	}
	if c.dry || len(left) == 0 {
		return nil
	}
	_, err = scratch.Sweep("pulse-")
	return err
}

// cachesAndStores looks at what is kept by repository, for those that are no
// project any more.
func (c *cleaning) cachesAndStores(ctx context.Context) error {
	if _, is := c.known.(nobody); is {
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
		if dir, err := c.trees.StoreOf(ctx, path); err == nil {
			homes[dir] = true
		}
	}
	all, err := c.trees.Stores(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if homes[s.Dir] || paths[s.Repo] {
			continue
		}
		what := fmt.Sprintf("store of %s, which is no project any more", s.Repo)
		reason := "`pulse clean --stores` removes it"
		if c.stores {
			if reason, err = c.trees.RemoveStore(ctx, s.Dir, true); err != nil {
				reason = err.Error()
			}
		}
		err := c.add("store", s.Dir, what, reason, func() error {
			if why, err := c.trees.RemoveStore(ctx, s.Dir, false); err != nil || why != "" {
				return errors.Join(err, errors.New(why))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	dirs, err := os.ReadDir(filepath.Join(c.cfg.DataDir, "caches"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list caches: %w", err)
	}
	for _, d := range dirs {
		path := filepath.Join(c.cfg.DataDir, "caches", d.Name())
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
func (c *cleaning) repositories(ctx context.Context) (map[string]bool, error) {
	paths := map[string]bool{}
	for _, p := range c.cfg.Projects {
		paths[p.Path] = true
	}
	list, err := c.known.Projects(ctx)
	for _, p := range list {
		paths[p.Path] = true
	}
	return paths, err
}

// overAPI asks the program that has the database.
type overAPI struct{ c *client.Client }

func (a overAPI) Session(ctx context.Context, id pulse.SessionID) (pulse.Session, error) {
	d, err := a.c.Get(ctx, string(id))
	s := pulse.Session{ID: d.Session.ID, Status: d.Session.Status, HeadCommit: d.Session.HeadCommit}
	if d.Session.EndedAt != nil {
		s.EndedAt = *d.Session.EndedAt
	}
	return s, err
}

func (a overAPI) Projects(ctx context.Context) ([]pulse.Project, error) {
	list, err := a.c.Projects(ctx)
	var out []pulse.Project
	for _, p := range list {
		out = append(out, pulse.Project{ID: p.ID, Name: p.Name, Path: p.Path})
	}
	return out, err
}

// nobody knows any session: there is no database yet.
type nobody struct{}

func (nobody) Session(_ context.Context, id pulse.SessionID) (pulse.Session, error) {
	return pulse.Session{}, pulse.NotFound("there is no session "+string(id), "")
}

func (nobody) Projects(context.Context) ([]pulse.Project, error) { return nil, nil }

func (o *options) printLeftovers(c *cleaning) error {
	var freed int64
	removed := 0
	w := tabwriter.NewWriter(o.out, 0, 4, 2, ' ', 0)
	for _, l := range c.found {
		sign := "kept"
		if l.Removed {
			sign = "removed"
			if c.dry {
				sign = "would go"
			}
			removed++
			freed += l.Bytes
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", sign, l.Kind, inBytes(l.Bytes), l.Path)
		fmt.Fprintf(w, "\t\t\t%s\n", l.What)
		if l.Why != "" {
			fmt.Fprintf(w, "\t\t\t→ %s\n", l.Why)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	verb := "Removed"
	if c.dry {
		verb = "Would remove"
	}
	if removed == 0 {
		o.printf("Nothing to remove.\n")
		return nil
	}
	o.printf("%s %d, %s.\n", verb, removed, inBytes(freed))
	return nil
}

// inBytes is a size as people say it.
func inBytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}
