package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

func newShow(o *options) *cobra.Command {
	var prompt bool
	var iteration int
	cmd := &cobra.Command{
		Use: "show SESSION", Short: "Show a session with its iterations, or the exact prompt of one", Args: ofSession(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			if prompt || iteration != 0 {
				text, err := c.Prompt(cmd.Context(), args[0], iteration)
				if err == nil {
					o.printf("%s", text)
				}
				return err
			}
			d, err := c.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(d)
			}
			o.showSession(d)
			return nil
		},
	}
	cmd.Flags().BoolVar(&prompt, "prompt", false, "print the latest prompt, word for word")
	cmd.Flags().IntVar(&iteration, "iteration", 0, "with the prompt of this iteration")
	return cmd
}

func (o *options) showSession(d wire.SessionDetail) {
	s := d.Session
	o.printf("%s %s  %s  iteration %d of %d\n", icon(s.Status), s.Status, s.ID, s.CurrentIteration, s.MaxIterations)
	o.printf("  goal     %s\n  project  %s, branch %s\n  agent    %s\n", clip(s.Goal, 200), s.ProjectName, s.BranchName, s.Agent)
	o.printf("  totals   %s, %s%s\n", many(s.TotalCommits, "commit"), many(s.TotalTokensUsed, "token"), cost(s.TotalCostMicros))
	if s.StatusReason != "" {
		o.printf("  why      %s\n", s.StatusReason)
	}
	for _, it := range d.Iterations {
		line := fmt.Sprintf("  %2d. %-10s", it.IterationNumber, it.Status)
		if it.Signal != "" {
			line += " " + string(it.Signal)
		}
		if it.CommitHash != "" {
			line += fmt.Sprintf("  %.10s, %s", it.CommitHash, many(int64(len(it.FilesChanged)), "file"))
		}
		for _, p := range s.ProgressLog {
			if p.Iteration == it.IterationNumber && p.Sandbox != "" {
				line += "  sandbox " + p.Sandbox
				break
			}
		}
		o.printf("%s\n", line)
		for _, text := range []string{it.OutputSummary, it.Error} {
			if text != "" && text != s.StatusReason {
				o.printf("      %s\n", clip(text, 160))
			}
		}
	}
	if s.Status == pulse.SessionComplete {
		o.printf("\nIt can go on from here:\n%s\n", followUp(s.ID))
	}
	if d.Gate != nil {
		o.printf("\nWaiting for you: %s\n", d.Gate.Prompt)
		var keys []string
		for _, c := range d.Gate.Options {
			keys = append(keys, c.Key)
		}
		hint := "\"your answer\""
		if len(keys) > 0 {
			hint = strings.Join(keys, "|")
		}
		o.printf("  → pulse answer %s %s\n", pulse.Short(s.ID), hint)
	}
}

// many counts things.
func many(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func cost(micros int64) string {
	if micros == 0 {
		return ""
	}
	return fmt.Sprintf(", $%.4f", float64(micros)/1e6)
}
