package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pulseloop/agent/tidy"
	"pulseloop/agent/worktree"
	"pulseloop/api/client"
	"pulseloop/configs"
	"pulseloop/db"
	"pulseloop/pulse"
)

func newClean(o *options) *cobra.Command {
	var dry, stores bool
	cmd := &cobra.Command{
		Use: "clean", Short: "Remove what is left over: worktrees whose work is on its branch, temporary files, caches", Args: cobra.NoArgs,
		Long: "Removes what nobody uses any more on this machine, and says how much room it took: worktrees of sessions at their end, once all of\n" +
			"their work is on a branch of your repository (a follow-up makes them again), what killed programs left, and caches of\n" +
			"repositories that are no project any more. Work that is on no branch is never removed: it is listed, with the reason.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := o.clean(cmd.Context(), dry, stores)
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(found)
			}
			return o.printLeftovers(found, dry)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be removed, and remove nothing")
	cmd.Flags().BoolVar(&stores, "stores", false, "also remove what is kept for repositories that are no project any more, if all of it is on their branches")
	return cmd
}

func (o *options) clean(ctx context.Context, dry, stores bool) ([]tidy.Leftover, error) {
	cfg, err := o.load()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(cfg.DataDir); errors.Is(err, fs.ErrNotExist) {
		return []tidy.Leftover{}, nil
	}
	trees, err := worktree.New(worktree.Config{Dir: cfg.DataDir})
	if err != nil {
		return nil, err
	}
	known, done, err := o.known(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer done()
	c := tidy.CleanConfig{Data: cfg.DataDir, Trees: trees, Known: known, Still: 2 * cfg.Daemon.Lease, Dry: dry, Stores: stores}
	for _, p := range cfg.Projects {
		c.Projects = append(c.Projects, p.Path)
	}
	return tidy.Clean(ctx, c)
}

// known finds out who knows the sessions: the program that runs, else the
// database itself; nil where there is none yet.
func (o *options) known(ctx context.Context, cfg configs.Config) (k tidy.Known, done func(), err error) {
	if cfg.DatabaseURL == "" && running(ctx, cfg) {
		api, _, err := o.connect()
		return overAPI{api}, func() {}, err
	}
	if _, err := os.Stat(sqliteFile(cfg)); cfg.DatabaseURL == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, func() {}, nil
	}
	store, err := db.Open(ctx, db.Config{URL: cfg.DatabaseURL.Reveal(), Path: sqliteFile(cfg), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, err
	}
	return store, func() { _ = store.Close() }, nil
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

func (o *options) printLeftovers(found []tidy.Leftover, dry bool) error {
	var freed int64
	removed := 0
	w := tabwriter.NewWriter(o.out, 0, 4, 2, ' ', 0)
	for _, l := range found {
		sign := "kept"
		if l.Removed {
			sign = "removed"
			if dry {
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
	if dry {
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
