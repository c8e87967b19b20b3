package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pulseloop/configs"
	"pulseloop/internal/proc"
	"pulseloop/internal/sandbox"
	"pulseloop/pulse"
)

// sandboxed is the first argument with which this program starts itself to
// put an agent behind walls.
const sandboxed = "sandboxed"

func newSandbox() *sandbox.Sandbox {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return sandbox.New(sandbox.Config{Self: []string{self, sandboxed}})
}

// walls says behind which walls agents run.
type walls struct {
	cfg      configs.Config
	box      *sandbox.Sandbox
	projects func(ctx context.Context) ([]pulse.Project, error)
}

// confine gives the policy for a task's agent: the level of its project, and
// everything that is not its business hidden.
func (w walls) confine(ctx context.Context, t pulse.Task) (sandbox.Policy, error) {
	level, err := resolveSandbox(ctx, w.box, sandboxOf(w.cfg, t.Spec.ProjectName))
	if err != nil {
		return sandbox.Policy{}, err
	}
	limits, err := limitsOf(w.cfg.Limits)
	if err != nil || level == sandbox.None {
		return sandbox.Policy{Level: level, Limits: limits}, err
	}
	projects, err := w.projects(ctx)
	if err != nil {
		return sandbox.Policy{}, fmt.Errorf("list what to hide from the agent: %w", err)
	}
	p := w.policy(level, t.Spec.RepoPath, projects)
	p.Limits = limits
	return p, nil
}

// limitsOf gives what an agent may take on this machine.
func limitsOf(c configs.Limits) (proc.Limits, error) {
	a, err := c.Amounts(proc.MachineMemory())
	return proc.Limits{Memory: a.Memory, Written: a.Written, FileSize: a.FileSize, Tasks: c.Processes, OpenFiles: uint64(max(0, c.OpenFiles)), NoCore: true}, err
}

// policy hides what is none of the business of an agent that works on repo.
func (w walls) policy(level sandbox.Level, repo string, projects []pulse.Project) sandbox.Policy {
	p := sandbox.Policy{Level: level, Hidden: []string{w.cfg.DataDir, "/etc/pulse"}, Read: append(w.programs(), repo)}
	if w.cfg.File != "" {
		p.Hidden = append(p.Hidden, w.cfg.File)
	}
	home, err := os.UserHomeDir()
	if err == nil {
		p.Hidden = append(p.Hidden, sandbox.Private(home)...)
	}
	for _, other := range projects {
		// One that is the whole home, as some people keep it, is too much to hide.
		if other.Path != "" && (home == "" || !contains(other.Path, home)) && !contains(other.Path, repo) {
			p.Hidden = append(p.Hidden, other.Path)
		}
	}
	return p
}

// tryOut finds out what works before the first agent waits for it. A level
// that cannot be had ends nothing: its agents will not run, others may.
func (w walls) tryOut(ctx context.Context, log *slog.Logger) error {
	levels := configuredLevels(w.cfg)
	for _, configured := range slices.Sorted(maps.Keys(levels)) {
		log := log.With("who", who(levels[configured]))
		level, err := resolveSandbox(ctx, w.box, configured)
		var e *pulse.Error
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &e):
			log.Error("no agent can run", "err", e.Message, "fix", e.Hint)
		case level == sandbox.None:
			log.Warn("agents run without a sandbox: `pulse doctor` says why")
		default:
			log.Info("agents run in a sandbox", "sandbox", string(level))
		}
	}
	return nil
}

// configuredLevels are the levels with the projects that want them by name.
func configuredLevels(c configs.Config) map[string][]string {
	levels := map[string][]string{c.Sandbox: nil}
	for _, name := range slices.Sorted(maps.Keys(c.Projects)) {
		if s := c.Projects[name].Sandbox; s != "" && s != c.Sandbox {
			levels[s] = append(levels[s], name)
		}
	}
	return levels
}

func who(projects []string) string {
	if len(projects) == 0 {
		return "agents"
	}
	return "agents of " + strings.Join(projects, ", ")
}

// sandboxOf is the configured level of a project.
func sandboxOf(c configs.Config, project string) string {
	if p, ok := c.Projects[project]; ok && p.Sandbox != "" {
		return p.Sandbox
	}
	return c.Sandbox
}

// resolveSandbox gives the level that a configured one stands for. One that
// does not work here is an error with what to do.
func resolveSandbox(ctx context.Context, box *sandbox.Sandbox, configured string) (sandbox.Level, error) {
	level, err := box.Resolve(ctx, sandbox.Level(configured))
	if err != nil && ctx.Err() == nil {
		return "", &pulse.Error{Code: pulse.CodeUnavailable, Message: err.Error(),
			Hint: "make it work (`pulse doctor` says what does), or set sandbox to auto, the strongest that works here", Err: err}
	}
	return level, err
}

// programs are the files that the configuration names for agents.
func (w walls) programs() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.cfg.Agents)) {
		a := w.cfg.Agents[name]
		for _, path := range append([]string{a.Path, a.Script}, a.Command...) {
			if filepath.IsAbs(path) {
				out = append(out, path)
			}
		}
	}
	return out
}

// contains reports whether path is dir or lies below it.
func contains(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// checkSandbox says behind which walls agents run, and what those leave open.
func checkSandbox(ctx context.Context, cfg configs.Config) []finding {
	box := newSandbox()
	report, err := box.Probe(ctx)
	if err != nil {
		return []finding{warn("unknown: "+err.Error(), "run `pulse doctor` again")}
	}
	levels := configuredLevels(cfg)
	var out []finding
	for _, configured := range slices.Sorted(maps.Keys(levels)) {
		out = append(out, sandboxFinding(ctx, cfg, box, report, configured, who(levels[configured])))
	}
	return out
}

func sandboxFinding(ctx context.Context, cfg configs.Config, box *sandbox.Sandbox, report sandbox.Report, configured, who string) finding {
	level, err := resolveSandbox(ctx, box, configured)
	if err != nil {
		return broken(err, "set sandbox to auto")
	}
	if level == sandbox.None {
		why := ""
		for _, l := range slices.Sorted(maps.Keys(report.Why)) {
			why += fmt.Sprintf("; %s: %s", l, report.Why[l])
		}
		if configured == string(sandbox.None) {
			why = ""
		}
		return warn(who+" run as you, without a sandbox: one could read "+tokenFile(cfg)+" and approve itself"+why,
			"set sandbox to auto and install bubblewrap (Debian: apt install bubblewrap), or run pulse as a user of its own")
	}
	text := fmt.Sprintf("%s run in %s", who, level)
	if report.Groups != "" {
		text += "; how much memory and how many processes they take is looked at each second, not kept by the kernel: " + report.Groups
	}
	if gap := report.Gaps[level]; gap != "" {
		text += "; " + gap
	}
	if level != sandbox.Bubblewrap && configured == string(sandbox.Auto) {
		return warn(text+"; bubblewrap: "+report.Why[sandbox.Bubblewrap], "install bubblewrap (Debian: apt install bubblewrap), which closes that")
	}
	return ok(text)
}
