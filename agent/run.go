package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/agent/worktree"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
	"pulseloop/pulse/extract"
)

// perform runs one claimed task to its end. Whatever happens is reported as
// facts, unless the claim is gone, in which case nothing is reported at all.
func (d *Daemon) perform(work context.Context, c pulse.Claim) {
	t := c.Task
	log := d.cfg.Log.With("task", string(t.ID), "session", string(t.SessionID), "iteration", t.MediaContext.IterationNumber)
	fence := pulse.Fence{TaskID: t.ID, Token: c.Token}
	ctx, end := context.WithCancelCause(work)
	defer end(nil)
	holding := make(chan struct{})
	go func() {
		defer close(holding)
		d.hold(ctx, fence, end)
	}()
	began := d.cfg.Clock()
	d.cfg.Observer.OnLoopStart("")
	bead := beadOf(t, t.Spec.Subject)
	d.cfg.Observer.OnBeadStart(bead)
	res := d.attempt(ctx, c, log)
	d.settle(ctx, fence, res, log)
	end(nil)
	<-holding
	d.observeEnd(bead, res, d.cfg.Clock().Sub(began))
}

// attempt does the work of a task. A panic in it is a failed attempt, not
// the end of the daemon.
func (d *Daemon) attempt(ctx context.Context, c pulse.Claim, log *slog.Logger) (res pulse.TaskResult) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("task panicked", "panic", p)
			res = pulse.TaskResult{Error: fmt.Sprintf("an internal fault: %v", p), Hint: "this is a defect of pulse; the log has the details"}
		}
		res.Daemon = d.cfg.ID
		res.FinalText, res.Error = d.cfg.Redactor.String(res.FinalText), d.cfg.Redactor.String(res.Error)
	}()
	t := c.Task
	if t.Kind != pulse.TaskIterate {
		return pulse.TaskResult{Error: fmt.Sprintf("this daemon does not know tasks of kind %q", t.Kind), Hint: "update pulse where the daemon runs"}
	}
	backend, ok := d.cfg.Backends[t.Spec.Agent]
	if !ok {
		return pulse.TaskResult{Error: fmt.Sprintf("there is no agent named %q here", t.Spec.Agent), Hint: "choose one that `pulse doctor` lists"}
	}
	fence := pulse.Fence{TaskID: t.ID, Token: c.Token}
	if err := d.cfg.Queue.Running(ctx, fence); err != nil {
		return failure(fmt.Errorf("mark the task as running: %w", err))
	}
	// An earlier life of this task may have left processes in the tree.
	if n := proc.KillMarked(string(t.ID)); n > 0 {
		log.Warn("ended processes of an earlier attempt", "count", n)
	}
	tree, err := d.cfg.Trees.Ensure(ctx, worktree.Want{Repo: t.Spec.RepoPath, Key: string(t.SessionID), Branch: t.Spec.Branch, Base: t.Spec.BaseBranch})
	if err != nil {
		return failure(fmt.Errorf("make the worktree ready: %w", err))
	}
	rec := newRecorder(d, fence, t)
	res = d.runAgent(ctx, backend, t, tree, rec, log)
	if ctx.Err() != nil {
		rec.close(context.WithoutCancel(ctx), pulse.TurnFailed)
		return res
	}
	d.checkpoint(ctx, t, tree, &res)
	status := pulse.TurnCompleted
	if res.Error != "" {
		status = pulse.TurnFailed
	}
	rec.close(ctx, status)
	res.TurnID = rec.turn
	return res
}

// settle reports the result, or hands the task back, or lets go of it.
func (d *Daemon) settle(ctx context.Context, f pulse.Fence, res pulse.TaskResult, log *slog.Logger) {
	cause := context.Cause(ctx)
	// The report outlives the run's own end, but not the lease.
	report, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.Lease)
	defer cancel()
	switch {
	case errors.Is(cause, errCancelled), errors.Is(cause, errLost):
		log.Info("task given up", "cause", cause)
	case errors.Is(cause, errShutdown):
		if err := d.cfg.Queue.Release(report, f); err != nil {
			log.Warn("hand the task back", "err", err)
		}
	default:
		d.finish(report, f, res, log)
	}
}

// finish stores the result, trying again while the database is away: the
// heartbeat keeps the claim as long as that can be of use.
func (d *Daemon) finish(ctx context.Context, f pulse.Fence, res pulse.TaskResult, log *slog.Logger) {
	for wait := 50 * time.Millisecond; ; wait = min(wait*2, 2*time.Second) {
		err := d.cfg.Queue.Finish(ctx, f, res)
		if err == nil {
			log.Info("task finished", "commits", res.Commits, "error", res.Error)
			return
		}
		if errors.Is(err, pulse.ErrFenced) || ctx.Err() != nil {
			log.Warn("result not stored", "err", err)
			return
		}
		log.Warn("store the result; trying again", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// checkpoint captures what the agent left in the tree, also after a failed run.
func (d *Daemon) checkpoint(ctx context.Context, t pulse.Task, tree worktree.Tree, res *pulse.TaskResult) {
	body := extract.Summary(res.FinalText)
	if body != "" {
		body += "\n\n"
	}
	body += fmt.Sprintf("Pulse-Session: %s\nPulse-Iteration: %d", t.SessionID, t.MediaContext.IterationNumber)
	cp, err := d.cfg.Trees.Checkpoint(ctx, tree, worktree.Save{Subject: t.Spec.Subject, Body: d.cfg.Redactor.String(body)})
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

// runAgent starts the CLI and speaks with it until it has ended.
func (d *Daemon) runAgent(ctx context.Context, b cli.Backend, t pulse.Task, tree worktree.Tree, rec *recorder, log *slog.Logger) pulse.TaskResult {
	state := filepath.Join(d.cfg.StateDir, string(t.ID))
	if err := os.MkdirAll(state, 0o700); err != nil {
		return failure(fmt.Errorf("make the task's directory: %w", err))
	}
	defer os.RemoveAll(state)
	in := cli.Input{Prompt: t.Content, Dir: tree.Path, StateDir: state, Model: d.cfg.Models[t.Spec.Agent], Role: t.Spec.Role,
		SessionID: t.SessionID, Iteration: t.MediaContext.IterationNumber, TaskID: t.ID}
	cmd, err := b.Command(in)
	if err != nil {
		return failure(fmt.Errorf("prepare %s: %w", b.Name(), err))
	}
	child, err := proc.Start(proc.Spec{Path: cmd.Path, Args: cmd.Args, Dir: tree.Path, Env: environment(cmd, t), Marker: string(t.ID)})
	if err != nil {
		return failure(fmt.Errorf("start %s: %w", b.Name(), err))
	}
	log.Info("agent started", "agent", b.Name(), "pid", child.Pid())
	rec.open(ctx)
	end := d.converse(ctx, b, in, child, rec)
	exit := d.await(ctx, child, end.result != nil)
	return end.facts(exit, b.Name())
}

// environment is the whole environment of the agent: an allow-list, what the
// CLI itself needs, and who it is.
func environment(cmd cli.Command, t pulse.Task) []string {
	env := proc.BaseEnv()
	for _, name := range cmd.Pass {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	env = append(env, cmd.Env...)
	return append(env, "PULSE_ROLE="+string(t.Spec.Role), "PULSE_SESSION_ID="+string(t.SessionID),
		fmt.Sprintf("PULSE_ITERATION=%d", t.MediaContext.IterationNumber), "PULSE_TASK_ID="+string(t.ID))
}

// await gives the agent a little time to end by itself after its
// conversation, then ends it and everything it left behind.
func (d *Daemon) await(ctx context.Context, child *proc.Process, gaveResult bool) exitState {
	if gaveResult && ctx.Err() == nil {
		grace := time.NewTimer(d.cfg.ExitGrace)
		defer grace.Stop()
		select {
		case <-child.Done():
		case <-ctx.Done():
		case <-grace.C:
		}
	}
	var e exitState
	select {
	case <-child.Done():
		e.byItself = true
	default:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	e.exit = child.Stop(stop) // also ends what the child left running
	return e
}

type exitState struct {
	exit     proc.Exit
	byItself bool
}

// failure is a result that says what went wrong in words for people.
func failure(err error) pulse.TaskResult {
	var e *pulse.Error
	if errors.As(err, &e) {
		return pulse.TaskResult{Error: e.Message, Hint: e.Hint}
	}
	return pulse.TaskResult{Error: strings.TrimSpace(err.Error()), Hint: "the log has the details"}
}

func (d *Daemon) observeEnd(b Bead, res pulse.TaskResult, took time.Duration) {
	r := BeadResult{Bead: b, Outcome: OutcomeSuccess, Duration: took, ChatID: res.Conversation, ExitCode: res.ExitCode, Error: res.Error}
	sum := CoreResult{Duration: took}
	switch {
	case res.Error != "":
		r.Outcome = OutcomeFailure
		sum.Failed = 1
	case extract.Signal(res.FinalText).Signal == pulse.SignalBlocked:
		r.Outcome = OutcomeQuestion
		sum.Questions = 1
	default:
		sum.Succeeded = 1
	}
	d.cfg.Observer.OnBeadComplete(r)
	d.cfg.Observer.OnLoopEnd(&sum)
}
