package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/agent/worktree"
	"pulseloop/internal/proc"
	"pulseloop/internal/sandbox"
	"pulseloop/pulse"
)

// runAgent starts the CLI and speaks with it until it has ended.
func (r *run) runAgent(ctx context.Context, b cli.Backend, tree worktree.Tree) pulse.TaskResult {
	t := r.task
	state := filepath.Join(r.d.cfg.StateDir, string(t.ID))
	_ = os.RemoveAll(state) // of a life that was cut short
	if err := os.MkdirAll(state, 0o700); err != nil {
		return failure(fmt.Errorf("make the task's directory: %w", err))
	}
	defer os.RemoveAll(state)
	in := cli.Input{Prompt: t.Content, Dir: tree.Path, StateDir: state, Model: r.d.cfg.Models[t.Spec.Agent], Role: t.Spec.Role,
		SessionID: t.SessionID, Iteration: t.MediaContext.IterationNumber, TaskID: t.ID}
	policy, err := r.policy(ctx)
	if err != nil {
		return failure(err)
	}
	in.Sandboxed = policy.Level != "" && policy.Level != sandbox.None
	cmd, err := b.Command(in)
	if err != nil {
		return failure(fmt.Errorf("prepare %s: %w", b.Name(), err))
	}
	if ctx.Err() != nil {
		return failure(context.Cause(ctx))
	}
	walled, release, err := r.confine(policy, cmd, tree, state)
	if err != nil {
		return failure(fmt.Errorf("prepare %s: %w", b.Name(), err))
	}
	defer release()
	walled.Marker = string(t.ID)
	child, err := proc.Start(walled)
	if err != nil {
		return failure(fmt.Errorf("start %s: %w", b.Name(), err))
	}
	defer r.stop(ctx, child) // after a panic too: nobody else may find it in the tree
	r.log.Info("agent started", "agent", b.Name(), "pid", child.Pid(), "sandbox", policy.Level)
	r.rec.open(ctx)
	if in.Sandboxed {
		r.rec.take(cli.Event{Kind: cli.EventNote, Text: "sandbox: " + string(policy.Level)})
	}
	over := r.keepWithin(ctx, child, walled.Walls, tree.Path)
	defer over()
	end := r.converse(ctx, b, in, child)
	res := end.facts(r.await(ctx, child), b.Name())
	if why := over(); why != "" {
		res = overCap(res, b.Name(), why)
	}
	res.Sandbox = string(policy.Level)
	return res
}

// environment is the whole environment of the agent: an allow-list, what the
// CLI itself needs, and who it is.
func environment(cmd cli.Command, t pulse.Task) []string {
	env := proc.BaseEnv()
	for _, name := range cmd.Pass {
		if v, ok := os.LookupEnv(name); ok && !ours(name) {
			env = append(env, name+"="+v)
		}
	}
	env = append(env, cmd.Env...)
	return append(env, cli.EnvRole+"="+string(t.Spec.Role), cli.EnvSessionID+"="+string(t.SessionID),
		fmt.Sprintf("%s=%d", cli.EnvIteration, t.MediaContext.IterationNumber), cli.EnvTaskID+"="+string(t.ID))
}

// ours reports whether a variable holds what opens our own doors. No list of
// names to pass on, however it came about, hands it to an agent.
func ours(name string) bool {
	if name == "DATABASE_URL" {
		return true
	}
	rest, prefixed := strings.CutPrefix(name, "PULSE_")
	if !prefixed {
		return false
	}
	for _, end := range []string{"TOKEN", "SECRET", "PASSWORD", "KEY", "URL", "SID"} {
		if strings.HasSuffix(rest, end) {
			return true
		}
	}
	return false
}

// exitState is how the child ended, and whether nobody ended it.
type exitState struct {
	exit     proc.Exit
	byItself bool
}

// await gives the agent a little time to end by itself after its
// conversation, then ends it and everything it left behind. The end of a
// crashed agent's output comes a moment before its exit code: without the
// time, the reason would be lost.
func (r *run) await(ctx context.Context, child *proc.Process) exitState {
	grace := time.NewTimer(r.d.cfg.ExitGrace)
	defer grace.Stop()
	select {
	case <-child.Gone():
		byItself := ctx.Err() == nil
		return exitState{exit: r.stop(ctx, child), byItself: byItself}
	case <-ctx.Done():
	case <-grace.C:
	}
	return exitState{exit: r.stop(ctx, child)}
}

// stop ends the child and everything it started, and returns when they are
// dead.
func (r *run) stop(ctx context.Context, child *proc.Process) proc.Exit {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.d.patience(ctx))
	defer cancel()
	return child.Stop(ctx)
}
