package main

import (
	"fmt"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"pulseloop/pulse"
)

func newProjects(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "projects", Short: "List the projects", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			list, err := c.Projects(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(list)
			}
			if len(list) == 0 {
				o.printf("No projects. Add one: pulse projects add PATH\n")
				return nil
			}
			w := tabwriter.NewWriter(o.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tBRANCH\tAGENT\tPATH")
			for _, p := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, p.BaseBranch, p.Agent, p.Path)
			}
			return w.Flush()
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "add PATH [NAME]", Short: "Register the repository at a path", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return fmt.Errorf("find %s: %w", args[0], err)
			}
			name := nameFor(path)
			if len(args) == 2 {
				name = args[1]
			}
			p, err := c.AddProject(cmd.Context(), name, path)
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(p)
			}
			o.printf("%s is the repository at %s, branch %s\n", p.Name, p.Path, p.BaseBranch)
			return nil
		},
	})
	return cmd
}

func newPair(o *options) *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "pair", Short: "Print a one-time code that lets a person speak to the bot", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			r, err := c.Pair(cmd.Context(), pulse.OperatorRole(role))
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(r)
			}
			o.printf("Send this to the bot within %s; it works once:\n\n    /pair %s\n", inWords(time.Until(r.ExpiresAt)), r.Code)
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "operator", "owner, operator or viewer")
	return cmd
}
