package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"pulseloop/api/client"
	"pulseloop/pulse"
)

func newList(o *options) *cobra.Command {
	var statuses []string
	var f client.Filter
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List sessions, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			for _, s := range statuses {
				if !slices.Contains(pulse.SessionStatuses(), pulse.SessionStatus(s)) {
					return pulse.Invalid(fmt.Sprintf("%q is no status", s), "use one of: "+joinStatuses())
				}
				f.Statuses = append(f.Statuses, pulse.SessionStatus(s))
			}
			list, err := c.List(cmd.Context(), f)
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(list)
			}
			if len(list) == 0 {
				o.printf("No sessions. Start one: pulse start \"what is to be done\"\n")
				return nil
			}
			w := tabwriter.NewWriter(o.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tSTATUS\tITERATION\tCOMMITS\tPROJECT\tAGE\tGOAL")
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%s %s\t%d/%d\t%d\t%s\t%s\t%s\n", pulse.Short(s.ID), icon(s.Status), s.Status, s.CurrentIteration,
					s.MaxIterations, s.TotalCommits, s.ProjectName, age(s.CreatedAt), clip(s.Goal, 50))
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringSliceVar(&statuses, "status", nil, "only these: "+joinStatuses())
	cmd.Flags().StringVar(&f.Project, "project", "", "only this project's")
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "at most so many (default 50)")
	return cmd
}

func joinStatuses() string {
	var out []string
	for _, s := range pulse.SessionStatuses() {
		out = append(out, string(s))
	}
	return strings.Join(out, ", ")
}

// icon is the sign of a state, the same everywhere.
func icon(s pulse.SessionStatus) string {
	return map[pulse.SessionStatus]string{
		pulse.SessionPending: "○", pulse.SessionRunning: "●", pulse.SessionComplete: "✓", pulse.SessionBlocked: "?",
		pulse.SessionFailed: "✗", pulse.SessionPaused: "‖", pulse.SessionAborted: "⊗",
	}[s]
}

func age(t *time.Time) string {
	if t == nil {
		return "-"
	}
	d := time.Since(*t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// clip makes a text one line of at most n characters.
func clip(s string, n int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return string(r)
}
