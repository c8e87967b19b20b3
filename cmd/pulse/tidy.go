package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"pulseloop/agent/tidy"
	"pulseloop/agent/worktree"
	"pulseloop/configs"
	"pulseloop/db"
	"pulseloop/internal/scratch"
)

const purgeEvery = time.Hour

// purging removes what is older than the configuration keeps it: text on its
// way soon after its turn, the rest every hour.
func (a *app) purging(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for next := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			r := retention(a.cfg.Retention)
			if now.Before(next) {
				r = db.Retention{Deltas: r.Deltas}
			} else {
				next = now.Add(purgeEvery)
			}
			p, err := a.store.Purge(ctx, r)
			if err != nil && ctx.Err() == nil {
				a.log.Warn("purge what is old", "err", err)
			}
			if p.Deltas = 0; p.Any() {
				a.log.Info("purged what is old", "events", p.Events, "turns", p.Turns, "prompts", p.Prompts, "notices", p.Notices, "updates", p.Updates)
			}
		}
	}
}

func retention(r configs.Retention) db.Retention {
	return db.Retention{Events: r.Events.Duration(), Turns: r.Turns.Duration(), Prompts: r.Prompts.Duration(),
		Messages: r.Messages.Duration(), Deltas: r.Deltas.Duration()}
}

// tidies keeps this daemon's trees and files in order, from before its first
// task: what an earlier one left that was killed goes at once.
func (a *app) tidies(trees *worktree.Trees) {
	if swept, err := scratch.Sweep("pulse-"); err != nil {
		a.log.Warn("clear temporary directories of the dead", "err", err)
	} else if len(swept) > 0 {
		a.log.Info("cleared temporary directories of the dead", "count", len(swept))
	}
	release, err := tidy.ClearRuns(a.cfg.DataDir)
	if err != nil {
		a.log.Warn("clear the files of runs that were cut short", "err", err)
	}
	if release != nil {
		a.closers = append(a.closers, release)
	}
	a.runs["tidy"] = tidy.New(tidy.Config{Trees: trees, Store: a.store, Log: a.log,
		Keep: a.cfg.Retention.Worktrees.Duration(), Still: 2 * a.cfg.Daemon.Lease}).Run
}

// checkLeftovers counts what gathers over months, and looks whether there is
// a place for what does not.
func checkLeftovers(_ context.Context, cfg configs.Config) []finding {
	count := func(dir string) int {
		found, _ := os.ReadDir(filepath.Join(cfg.DataDir, dir)) // none yet
		return len(found)
	}
	text := fmt.Sprintf("%d worktrees, stores of %d repositories, build caches of %d: `pulse clean --dry-run` says which nobody needs",
		count("worktrees"), count("repos"), count("caches"))
	own, err := scratch.New("pulse-doctor-")
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err // the name in it is another one at each call
		}
		return []finding{fail("no temporary files can be made in "+os.TempDir()+", which agents and git need: "+err.Error(), "set TMPDIR to a directory you may write to")}
	}
	_ = own.Remove()
	left, err := scratch.Leftovers("pulse-")
	if err != nil {
		return []finding{warn(text+"; temporary directories cannot be listed: "+err.Error(), "set TMPDIR to a directory you may read")}
	}
	if len(left) > 0 {
		text += fmt.Sprintf("; %d temporary directories of killed programs, which the next start clears", len(left))
	}
	return []finding{ok(text)}
}
