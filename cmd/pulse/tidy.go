package main

import (
	"context"
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
