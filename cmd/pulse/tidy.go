package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"pulseloop/agent/worktree"
	"pulseloop/configs"
	"pulseloop/db"
	"pulseloop/internal/scratch"
	"pulseloop/pulse"
)

// What a program that runs for months does so that it stays small.

const (
	purgeEvery = time.Hour
	tidyEvery  = 10 * time.Minute
	tidyFirst  = time.Minute // the start belongs to the work that waits
)

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

// sessionSource reads what decides about a session's tree.
type sessionSource interface {
	Session(ctx context.Context, id pulse.SessionID) (pulse.Session, error)
}

// ledger takes what was saved and not reported.
type ledger interface {
	sessionSource
	Reconcile(ctx context.Context, id pulse.SessionID, from, to string, commits int) (bool, error)
}

// tidier keeps the trees of a daemon in order.
type tidier struct {
	trees *worktree.Trees
	store ledger
	log   *slog.Logger
	keep  time.Duration        // trees of sessions at their end; 0: for ever
	still time.Duration        // after its end a session's agent may still be ending
	tried map[string]time.Time // trees that had to stay
}

func (a *app) tidier(trees *worktree.Trees) *tidier {
	return &tidier{trees: trees, store: a.store, log: a.log, keep: a.cfg.Retention.Worktrees.Duration(), still: 2 * a.cfg.Daemon.Lease, tried: map[string]time.Time{}}
}

// Run tidies until ctx ends.
func (t *tidier) Run(ctx context.Context) error {
	timer := time.NewTimer(tidyFirst)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			if err := t.runOnce(ctx); err != nil && ctx.Err() == nil {
				t.log.Warn("tidy worktrees", "err", err)
			}
			timer.Reset(tidyEvery)
		}
	}
}

// stuckFor is how long a tree that had to stay is not looked at again.
const stuckFor = 24 * time.Hour

// runOnce puts on record what was saved and not reported, puts trees away and
// packs stores.
func (t *tidier) runOnce(ctx context.Context) error {
	kept, err := t.trees.Kept(ctx)
	if err != nil {
		return err
	}
	heads, err := t.trees.Heads(ctx)
	if err != nil {
		return err
	}
	for _, k := range kept {
		if err := t.look(ctx, k, heads[k.Key]); err != nil {
			t.log.Warn("tidy a worktree", "key", k.Key, "err", err)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	_, err = t.trees.Repack(ctx)
	return err
}

func (t *tidier) look(ctx context.Context, k worktree.Kept, head string) error {
	s, err := t.store.Session(ctx, pulse.SessionID(k.Key))
	if pulse.CodeOf(err) == pulse.CodeNotFound {
		return nil // of another database: `pulse clean` tells of it
	}
	if err != nil {
		return err
	}
	if !overFor(s, t.still) {
		return nil
	}
	if head != "" && head != s.HeadCommit {
		if err := t.report(ctx, k.Key, s); err != nil {
			return err
		}
	}
	if t.keep <= 0 || !overFor(s, t.keep) || time.Since(t.tried[k.Key]) < stuckFor {
		return nil
	}
	reason, err := t.trees.Park(ctx, k.Key, false, stillOver(t.store, k.Key, max(t.keep, t.still)))
	if reason != "" {
		t.tried[k.Key] = time.Now()
		t.log.Info("worktree stays", "key", k.Key, "why", reason)
	}
	return err
}

// report puts commits on record that a killed program had saved.
func (t *tidier) report(ctx context.Context, key string, s pulse.Session) error {
	cp, err := t.trees.Unreported(ctx, key, s.HeadCommit)
	if err != nil || cp.Commits == 0 {
		return err
	}
	done, err := t.store.Reconcile(ctx, s.ID, s.HeadCommit, cp.Commit, cp.Commits)
	if done {
		t.log.Info("commits of a killed attempt put on record", "session", string(s.ID), "commits", cp.Commits, "commit", cp.Commit)
	}
	return err
}

// overFor reports whether a session has been at its end for so long.
func overFor(s pulse.Session, d time.Duration) bool {
	switch s.Status {
	case pulse.SessionComplete, pulse.SessionFailed, pulse.SessionAborted:
		return !s.EndedAt.IsZero() && time.Since(s.EndedAt) >= d
	}
	return false
}

// stillOver is asked while nobody can open the tree: the session may have gone
// on since it was looked at.
func stillOver(from sessionSource, key string, d time.Duration) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		s, err := from.Session(ctx, pulse.SessionID(key))
		switch {
		case pulse.CodeOf(err) == pulse.CodeNotFound:
			return "its session is not in this database", nil
		case err != nil:
			return "", err
		case overFor(s, d):
			return "", nil
		case overFor(s, 0):
			return "its session ended " + inWords(time.Since(s.EndedAt)) + " ago", nil
		}
		return "its session is " + string(s.Status), nil
	}
}

// clearAfterTheDead removes what a daemon that was killed left of its runs: its
// temporary directories, and the files of its tasks, if no other daemon lives
// in this data directory. The lock is held until close.
func (a *app) clearAfterTheDead() error {
	if swept, err := scratch.Sweep("pulse-"); err != nil {
		a.log.Warn("clear temporary directories of the dead", "err", err)
	} else if len(swept) > 0 {
		a.log.Info("cleared temporary directories of the dead", "count", len(swept))
	}
	release, alone, err := scratch.Hold(runLock(a.cfg))
	if err != nil {
		return err
	}
	a.closers = append(a.closers, release)
	if !alone {
		return nil
	}
	left, err := leftRuns(a.cfg)
	for _, dir := range left {
		if err := scratch.RemoveAll(dir); err != nil {
			a.log.Warn("clear the files of a run that was cut short", "path", dir, "err", err)
		}
	}
	return err
}

func runDir(c configs.Config) string  { return filepath.Join(c.DataDir, "run") }
func runLock(c configs.Config) string { return filepath.Join(c.DataDir, "run.lock") }

// leftRuns are the directories of tasks. They are nobody's if no daemon lives.
func leftRuns(c configs.Config) ([]string, error) {
	found, err := os.ReadDir(runDir(c))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("list the files of runs: %w", err)
	}
	var out []string
	for _, e := range found {
		out = append(out, filepath.Join(runDir(c), e.Name()))
	}
	return out, nil
}
