package main

import (
	"os"

	"github.com/spf13/cobra"

	"pulseloop/agent/cli/scripted"
)

// newScripted is the child that the agent "scripted" starts.
func newScripted(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "scripted-agent", Short: "Follow a script instead of asking a model", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if code := scripted.Main(cmd.Context(), args, o.in, o.out, o.err, os.Environ()); code != 0 {
				return exitError(code)
			}
			return nil
		},
	}
}
