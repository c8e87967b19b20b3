package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"pulseloop/agent/worktree"
	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/pulse"
)

func newStart(o *options) *cobra.Command {
	var req wire.Start
	var limit int
	var wait bool
	cmd := &cobra.Command{
		Use: "start GOAL...", Short: "Start a session for a goal", Args: cobra.MinimumNArgs(1),
		Example: "  pulse start \"add a health endpoint\"\n  pulse start --project my-app --wait fix the login test",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			req.Goal = strings.Join(args, " ")
			if limit != 0 {
				req.MaxIterations = &limit
			}
			if err := o.chooseProject(cmd.Context(), c, &req); err != nil {
				return err
			}
			s, err := c.Start(cmd.Context(), req)
			if err != nil {
				return err
			}
			switch {
			case wait:
				return o.follow(cmd.Context(), c, s, true)
			case o.json:
				return o.printJSON(s)
			}
			o.printf("Started %s in %s on branch %s\n  → pulse logs -f %s\n", pulse.Short(s.ID), s.ProjectName, s.BranchName, pulse.Short(s.ID))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.ProjectName, "project", "", "project (default: that of the current repository, or the only one)")
	f.StringVar(&req.ProjectPath, "path", "", "repository, to register the project")
	f.IntVar(&limit, "max-iterations", 0, "iterations at most")
	f.StringVar(&req.BranchName, "branch", "", "branch (default: made from the goal)")
	f.StringVar(&req.Agent, "agent", "", "agent CLI")
	f.StringVar((*string)(&req.ContextStrategy), "context", "", "context strategy: prefetch or none")
	f.BoolVar(&wait, "wait", false, "show what happens until the session ends or waits for a person")
	return cmd
}

// chooseProject fills in the project when none was named: the repository of
// the current directory (registered on the way), else the only one there is.
func (o *options) chooseProject(ctx context.Context, c *client.Client, req *wire.Start) error {
	if req.ProjectName != "" {
		return nil
	}
	known, err := c.Projects(ctx)
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err == nil && req.ProjectPath == "" {
		req.ProjectPath, _, _ = worktree.CheckRepo(ctx, "", here) // no repository here is no error: another way is tried
	}
	for _, p := range known {
		if req.ProjectPath != "" && p.Path == req.ProjectPath {
			req.ProjectName = p.Name
			return nil
		}
	}
	switch {
	case req.ProjectPath != "":
		req.ProjectName = nameFor(req.ProjectPath)
	case len(known) == 1:
		req.ProjectName = known[0].Name
	case len(known) == 0:
		return pulse.Invalid("there is no project yet", "run this in a git repository, or give --project and --path")
	default:
		return pulse.Invalid("it is not clear which project is meant", "give --project; `pulse projects` lists them")
	}
	return nil
}

// nameFor makes a project's name out of its directory.
func nameFor(path string) string {
	var b strings.Builder
	for _, r := range filepath.Base(path) {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			b.WriteRune(r)
		default:
			b.WriteByte('-')
		}
	}
	name := strings.Trim(b.String(), ".-_")
	if name == "" {
		return "project"
	}
	return name[:min(len(name), 64)]
}
