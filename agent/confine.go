package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"pulseloop/agent/cli"
	"pulseloop/agent/worktree"
	"pulseloop/internal/proc"
	"pulseloop/internal/sandbox"
)

// envSandbox tells the agent which walls it is behind.
const envSandbox = "PULSE_SANDBOX"

// policy is behind which walls this run's agent goes.
func (r *run) policy(ctx context.Context) (sandbox.Policy, error) {
	if r.d.cfg.Confine == nil {
		return sandbox.Policy{}, nil
	}
	return r.d.cfg.Confine(ctx, r.task)
}

// confine gives the command that starts the agent behind the walls of p. To
// what p says it adds what every agent needs: its tree, the objects that the
// tree borrows, a home for the CLI and caches for what it runs. release is
// called when the agent has ended.
func (r *run) confine(p sandbox.Policy, cmd cli.Command, tree worktree.Tree, state string) (walled proc.Spec, release func(), err error) {
	c := sandbox.Command{Path: cmd.Path, Args: cmd.Args, Dir: tree.Path, Env: environment(cmd, r.task)}
	if p.Level == "" || p.Level == sandbox.None {
		if r.d.cfg.Sandbox == nil {
			return c.Spec(), func() {}, nil
		}
		p.Level = sandbox.None
		return r.d.cfg.Sandbox.Wrap(p, c)
	}
	c.Env = setEnv(c.Env, envSandbox, string(p.Level))
	borrowed, err := borrowedObjects(tree.Path)
	if err != nil {
		return walled, nil, err
	}
	p.Write, p.Read = append(p.Write, tree.Path, state), append(p.Read, borrowed...)
	if p.Level == sandbox.Bubblewrap {
		// It is /tmp there, wherever it lies; here it goes with the run's directory, also if this process is killed.
		p.Temp = filepath.Join(state, "tmp")
		if err := os.MkdirAll(p.Temp, 0o700); err != nil {
			return walled, nil, fmt.Errorf("make a place for temporary files: %w", err)
		}
	}
	at := &household{dir: filepath.Join(state, "home")}
	if cmd.Home != nil {
		if err := at.furnish(*cmd.Home); err != nil {
			return walled, nil, fmt.Errorf("make a home for the agent: %w", err)
		}
		p.Hidden, p.Read = append(p.Hidden, cmd.Home.Dir), append(p.Read, at.shared...)
		c.Env = setEnv(c.Env, cmd.Home.Env, at.dir)
	}
	if r.d.cfg.Caches != "" {
		dir, env, err := caches(r.d.cfg.Caches, r.task.Spec.RepoPath)
		if err != nil {
			return walled, nil, fmt.Errorf("make a place for caches: %w", err)
		}
		p.Write = append(p.Write, dir)
		for name, value := range env {
			c.Env = setEnv(c.Env, name, value)
		}
	}
	walled, ended, err := r.d.cfg.Sandbox.Wrap(p, c)
	if err != nil {
		return walled, nil, err
	}
	return walled, func() {
		ended()
		if err := at.keep(); err != nil {
			r.log.Warn("what the agent's program renewed could not be kept", "err", err)
		}
	}, nil
}

// borrowedObjects lists the stores a tree's .git borrows from. Ensure has made
// sure that the list is ours.
func borrowedObjects(tree string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(tree, ".git", "objects", "info", "alternates"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look where the tree's objects are: %w", err)
	}
	var dirs []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); filepath.IsAbs(line) {
			dirs = append(dirs, line)
		}
	}
	return dirs, nil
}

// caches gives a directory for what build tools keep, and the variables that
// lead them there. It is not shared with the person, nor with other
// repositories: what is put into a cache is run by the next who builds.
func caches(root, repo string) (dir string, env map[string]string, err error) {
	sum := sha256.Sum256([]byte(repo))
	dir = filepath.Join(root, hex.EncodeToString(sum[:8]))
	env = map[string]string{
		"XDG_CACHE_HOME": dir, "GOCACHE": filepath.Join(dir, "go-build"), "GOMODCACHE": filepath.Join(dir, "go-mod"),
		"npm_config_cache": filepath.Join(dir, "npm"), "CARGO_HOME": filepath.Join(dir, "cargo"), "GRADLE_USER_HOME": filepath.Join(dir, "gradle"),
	}
	return dir, env, os.MkdirAll(dir, 0o700)
}

// setEnv sets a variable that may be set already.
func setEnv(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, name+"=") {
			out = append(out, kv)
		}
	}
	return append(out, name+"="+value)
}
