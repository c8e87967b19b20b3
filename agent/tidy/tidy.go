// Package tidy keeps what a daemon leaves on its machine small: it puts the
// trees of sessions at their end away, has saved commits that nobody reported
// put on record, packs stores, and lists and removes what is left over.
//
// It never decides about a session, and never removes work that is on no
// branch of the person's repository: what is not surely safe is a reason to
// leave a thing where it is.
//
// A Tidier runs once in a process. Clean may be called at any time, also from
// another process beside a daemon.
package tidy

import (
	"context"
	"log/slog"
	"time"

	"pulseloop/agent/worktree"
	"pulseloop/pulse"
)

const (
	every = 10 * time.Minute
	first = time.Minute // the start belongs to the work that waits
)

// Sessions reads what decides about a session's tree.
type Sessions interface {
	Session(ctx context.Context, id pulse.SessionID) (pulse.Session, error)
}

// Ledger takes what was saved and not reported.
type Ledger interface {
	Sessions
	Reconcile(ctx context.Context, id pulse.SessionID, from, to string, commits int) (bool, error)
}

// Config is what a Tidier depends on.
type Config struct {
	Trees *worktree.Trees
	Store Ledger
	Log   *slog.Logger  // nil: discarded
	Keep  time.Duration // how long trees of sessions at their end are kept; 0: for ever
	Still time.Duration // how long after its end a session's agent may still be ending
}

// Tidier keeps the trees of a daemon in order.
type Tidier struct {
	cfg   Config
	tried map[string]time.Time // trees that had to stay
}

// New returns a Tidier; Run starts it.
func New(cfg Config) *Tidier {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Tidier{cfg: cfg, tried: map[string]time.Time{}}
}

// Run tidies until ctx ends.
func (t *Tidier) Run(ctx context.Context) error {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			if err := t.RunOnce(ctx); err != nil && ctx.Err() == nil {
				t.cfg.Log.Warn("tidy worktrees", "err", err)
			}
			timer.Reset(every)
		}
	}
}

// stuckFor is how long a tree that had to stay is not looked at again.
const stuckFor = 24 * time.Hour

// RunOnce puts on record what was saved and not reported, puts trees away and
// packs stores.
func (t *Tidier) RunOnce(ctx context.Context) error {
	kept, err := t.cfg.Trees.Kept(ctx)
	if err != nil {
		return err
	}
	heads, err := t.cfg.Trees.Heads(ctx)
	if err != nil {
		return err
	}
	for _, k := range kept {
		if err := t.look(ctx, k, heads[k.Key]); err != nil {
			t.cfg.Log.Warn("tidy a worktree", "key", k.Key, "err", err)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	_, err = t.cfg.Trees.Repack(ctx)
	return err
}

func (t *Tidier) look(ctx context.Context, k worktree.Kept, head string) error {
	s, err := t.cfg.Store.Session(ctx, pulse.SessionID(k.Key))
	if pulse.CodeOf(err) == pulse.CodeNotFound {
		return nil // of another database: `pulse clean` tells of it
	}
	if err != nil {
		return err
	}
	if !overFor(s, t.cfg.Still) {
		return nil
	}
	if head != "" && head != s.HeadCommit && final(s) {
		if err := t.report(ctx, k.Key, s); err != nil {
			return err
		}
	}
	if t.cfg.Keep <= 0 || !overFor(s, t.cfg.Keep) || time.Since(t.tried[k.Key]) < stuckFor {
		return nil
	}
	reason, err := t.cfg.Trees.Park(ctx, k.Key, false, stillOver(t.cfg.Store, k.Key, max(t.cfg.Keep, t.cfg.Still)))
	if reason != "" {
		t.tried[k.Key] = time.Now()
		t.cfg.Log.Info("worktree stays", "key", k.Key, "why", reason)
	}
	return err
}

// report puts commits on record that a killed program had saved.
func (t *Tidier) report(ctx context.Context, key string, s pulse.Session) error {
	cp, err := t.cfg.Trees.Unreported(ctx, key, s.HeadCommit)
	if err != nil || cp.Commits == 0 {
		return err
	}
	done, err := t.cfg.Store.Reconcile(ctx, s.ID, s.HeadCommit, cp.Commit, cp.Commits)
	if done {
		t.cfg.Log.Info("commits of a killed attempt put on record", "session", string(s.ID), "commits", cp.Commits, "commit", cp.Commit)
	}
	return err
}

// final reports whether nobody will count what an attempt of the session saved
// and could not report. One that has failed may be resumed, and then the next
// attempt counts it; what is complete is on record, and what other machines
// saved of attempts that were lost is not on its branch.
func final(s pulse.Session) bool { return s.Status == pulse.SessionAborted }

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
func stillOver(from Sessions, key string, d time.Duration) func(context.Context) (string, error) {
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
			return "its session ended " + time.Since(s.EndedAt).Round(time.Second).String() + " ago", nil
		}
		return "its session is " + string(s.Status), nil
	}
}
