package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"pulseloop/agent/worktree"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
	"pulseloop/pulse/extract"
)

// run is one claimed task on its way to a result.
type run struct {
	d        *Daemon
	task     pulse.Task
	fence    pulse.Fence
	log      *slog.Logger
	observer *MultiObserver
	rec      *recorder
	refused  chan struct{}   // gets a value when a write was refused
	settling chan struct{}   // closed when the result is about to be stored
	alone    <-chan struct{} // closed when nothing else runs here; nil: the run need not be alone
}

// perform runs one claimed task to its end. Whatever happens is reported as
// facts, unless the claim is gone, in which case nothing is reported at all.
// When it returns, no process of the task is left.
func (d *Daemon) perform(work context.Context, c pulse.Claim, since time.Time, alone <-chan struct{}) {
	ctx, end := context.WithCancelCause(work)
	defer end(nil)
	t := c.Task
	r := &run{d: d, task: t, fence: pulse.Fence{TaskID: t.ID, Token: c.Token}, refused: make(chan struct{}, 1), settling: make(chan struct{}), alone: alone,
		log: d.cfg.Log.With("task", string(t.ID), "session", string(t.SessionID), "iteration", t.MediaContext.IterationNumber)}
	r.observer = r.observe()
	r.rec = newRecorder(r)
	holding := make(chan struct{})
	go func() {
		defer close(holding)
		d.hold(ctx, r.fence, since, r.refused, r.settling, end)
	}()
	bead := r.bead()
	r.observer.OnLoopStart("")
	r.observer.OnBeadStart(bead)
	res := r.attempt(ctx)
	stored := r.settle(ctx, res)
	took := d.cfg.Clock().Sub(since)
	cause := context.Cause(ctx)
	end(nil)
	<-holding
	if stored { // whatever ended the hold came after
		cause = nil
	}
	r.observeEnd(bead, res, cause, took)
}

// attempt does the work of the task. A panic in it is a failed attempt, not
// the end of the daemon.
func (r *run) attempt(ctx context.Context) pulse.TaskResult {
	res := r.guarded(func() pulse.TaskResult { return r.work(ctx) })
	res.Daemon = r.d.cfg.ID
	clean := r.d.cfg.Redactor.String
	for _, s := range []*string{&res.FinalText, &res.Error, &res.Hint, &res.Conversation, &res.Model} {
		*s = clean(*s)
	}
	for _, list := range [][]string{res.Notes, res.FilesChanged} {
		for i := range list {
			list[i] = clean(list[i])
		}
	}
	return res
}

func (r *run) guarded(work func() pulse.TaskResult) (res pulse.TaskResult) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("task panicked", "panic", p, "stack", string(debug.Stack()))
			res = pulse.TaskResult{ExitCode: -1, Error: fmt.Sprintf("an internal fault: %v", p), Hint: "this is a defect of pulse; the log has the details"}
		}
	}()
	return work()
}

func (r *run) work(ctx context.Context) pulse.TaskResult {
	d, t := r.d, r.task
	if t.Kind != pulse.TaskIterate {
		return pulse.TaskResult{Error: fmt.Sprintf("this daemon does not know tasks of kind %q", t.Kind), Hint: "update pulse where the daemon runs"}
	}
	backend, ok := d.cfg.Backends[t.Spec.Agent]
	if !ok {
		return pulse.TaskResult{Error: fmt.Sprintf("there is no agent named %q here", t.Spec.Agent), Hint: "choose one that `pulse doctor` lists"}
	}
	if err := r.waitAlone(ctx); err != nil {
		return failure(err)
	}
	// A session's earlier run may still be ending its agent in the same tree.
	leave, err := d.trees.enter(ctx, cmp.Or(string(t.SessionID), string(t.ID)))
	if err != nil {
		return failure(err)
	}
	defer leave()
	if err := r.markRunning(ctx); err != nil {
		return failure(fmt.Errorf("mark the task as running: %w", err))
	}
	// An earlier life of this task may have left processes in the tree.
	if n := proc.KillMarked(string(t.ID)); n > 0 {
		r.log.Warn("ended processes of an earlier attempt", "count", n)
	}
	tree, err := d.cfg.Trees.Ensure(ctx, worktree.Want{Repo: t.Spec.RepoPath, Key: string(t.SessionID), Branch: t.Spec.Branch, Base: t.Spec.BaseBranch})
	if err != nil {
		return failure(fmt.Errorf("make the worktree ready: %w", err))
	}
	res := r.guarded(func() pulse.TaskResult { return r.runAgent(ctx, backend, tree) })
	status := pulse.TurnCompleted
	if res.Error != "" || ctx.Err() != nil {
		status = pulse.TurnFailed
	}
	res.TurnID = r.rec.close(ctx, status)
	if ctx.Err() == nil {
		r.checkpoint(ctx, tree, &res)
	}
	return res
}

func (r *run) markRunning(ctx context.Context) error {
	atMost, cancel := context.WithTimeout(ctx, r.d.cfg.Lease)
	defer cancel()
	err := r.insist(atMost, "mark the task as running", func(ctx context.Context) error { return r.d.cfg.Queue.Running(ctx, r.fence) })
	if errors.Is(err, pulse.ErrFenced) {
		r.giveUp()
		<-ctx.Done()
	}
	return err
}

// giveUp has the run ended because a write was refused.
func (r *run) giveUp() {
	select {
	case r.refused <- struct{}{}:
	default:
	}
}

// checkpoint captures what the agent left in the tree, also after a failed run.
func (r *run) checkpoint(ctx context.Context, tree worktree.Tree, res *pulse.TaskResult) {
	body := extract.Summary(res.FinalText)
	if body != "" {
		body += "\n\n"
	}
	body += fmt.Sprintf("Pulse-Session: %s\nPulse-Iteration: %d", r.task.SessionID, r.task.MediaContext.IterationNumber)
	clean := r.d.cfg.Redactor.String
	cp, err := r.d.cfg.Trees.Checkpoint(ctx, tree, worktree.Save{Subject: clean(r.task.Spec.Subject), Body: clean(body), Since: r.task.Spec.Since})
	if err != nil {
		f := failure(fmt.Errorf("save the work: %w", err))
		if res.Error == "" {
			res.Error, res.Hint = f.Error, f.Hint
		}
		res.Notes = append(res.Notes, f.Error)
		return
	}
	res.Commit, res.Commits, res.FilesChanged, res.Published = cp.Commit, cp.Commits, cp.Files, cp.Published
	res.Notes = append(res.Notes, cp.Notes...)
}

// settle reports the result, or hands the task back, or lets go of it. It
// answers whether the result is stored.
func (r *run) settle(ctx context.Context, res pulse.TaskResult) bool {
	switch {
	case gone(ctx):
		r.log.Info("task given up", "cause", context.Cause(ctx))
	case ctx.Err() != nil:
		r.d.handBack(ctx, r.fence)
	default:
		close(r.settling)
		return r.finish(ctx, res)
	}
	return false
}

// finish stores the result, trying again while the database is away: the
// heartbeat keeps the claim as long as that can be of use.
func (r *run) finish(ctx context.Context, res pulse.TaskResult) bool {
	// A shutdown leaves it a moment.
	last, cancel := outliving(ctx, lastMoment)
	defer cancel()
	last, cancelTimeout := context.WithTimeout(last, r.d.cfg.Lease)
	defer cancelTimeout()
	err := r.insist(last, "store the result", func(c context.Context) error {
		if gone(ctx) {
			return pulse.ErrFenced
		}
		return r.d.cfg.Queue.Finish(c, r.fence, res)
	})
	if err != nil {
		r.log.Warn("result not stored", "err", err)
		return false
	}
	r.log.Info("task finished", "commits", res.Commits, "error", res.Error)
	return true
}

// handBack returns a task to the queue at shutdown.
func (d *Daemon) handBack(ctx context.Context, f pulse.Fence) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastMoment)
	defer cancel()
	if err := d.cfg.Queue.Release(ctx, f); err != nil {
		d.cfg.Log.Warn("hand the task back", "task", string(f.TaskID), "err", err)
	}
}

// How soon a write that failed is made again: the slot of a run is taken until
// its result is stored, so what waits in the queue waits for this too.
const (
	insistFrom = 50 * time.Millisecond
	insistMost = 200 * time.Millisecond
)

// insist repeats a write while the database is away: until it is done or
// refused, or ctx ends.
func (r *run) insist(ctx context.Context, what string, write func(context.Context) error) error {
	told := false
	for wait := insistFrom; ; wait = min(wait*2, insistMost) {
		err := write(ctx)
		if err == nil || errors.Is(err, pulse.ErrFenced) || refused(err) || ctx.Err() != nil {
			return err
		}
		if !told { // once, not five times a second
			r.log.Warn(what+"; trying again until it is done", "err", err)
			told = true
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// refused reports whether trying again cannot help.
func refused(err error) bool {
	switch pulse.CodeOf(err) {
	case pulse.CodeInternal, pulse.CodeUnavailable, pulse.CodeRateLimited:
		return false
	}
	return true
}

// failure is a result that says what went wrong in words for people.
func failure(err error) pulse.TaskResult {
	var e *pulse.Error
	if errors.As(err, &e) {
		return pulse.TaskResult{ExitCode: -1, Error: e.Message, Hint: e.Hint}
	}
	return pulse.TaskResult{ExitCode: -1, Error: strings.TrimSpace(err.Error()), Hint: "the log has the details"}
}
