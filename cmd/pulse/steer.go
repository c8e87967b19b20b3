package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/pulse"
)

// ofSession wants a session to be named, beside what the arguments have to be.
func ofSession(rest cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := rest(cmd, args); err != nil {
			return err
		}
		if strings.Trim(args[0], ". ") == "" {
			return pulse.Invalid("the session is missing", "give its id or the end of it; `pulse list` shows them")
		}
		return nil
	}
}

// steering makes a command that changes one session and says what it is then.
func steering(o *options, use, short string, args cobra.PositionalArgs, do func(context.Context, *client.Client, []string) (wire.Session, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: ofSession(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			s, err := do(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(s)
			}
			note := ""
			if s.PauseRequested {
				note = ", pauses after this iteration"
			}
			o.printf("%s %s: %s%s\n", icon(s.Status), pulse.Short(s.ID), s.Status, note)
			return nil
		},
	}
}

func newPause(o *options) *cobra.Command {
	return steering(o, "pause SESSION", "Pause a session after its current iteration", cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, args []string) (wire.Session, error) {
			return c.Pause(ctx, args[0])
		})
}

func newResume(o *options) *cobra.Command {
	return steering(o, "resume SESSION [WORDS...]", "Let a paused, blocked or failed session go on", cobra.MinimumNArgs(1),
		func(ctx context.Context, c *client.Client, args []string) (wire.Session, error) {
			return c.Resume(ctx, args[0], strings.Join(args[1:], " "))
		})
}

func newAbort(o *options) *cobra.Command {
	return steering(o, "abort SESSION", "Stop a session for good; its work stays on its branch", cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, args []string) (wire.Session, error) {
			return c.Abort(ctx, args[0])
		})
}

func newAnswer(o *options) *cobra.Command {
	return steering(o, "answer SESSION WORDS...", "Answer what a session waits for: in words, or by one of its choices", cobra.MinimumNArgs(2),
		func(ctx context.Context, c *client.Client, args []string) (wire.Session, error) {
			return c.Answer(ctx, args[0], wire.Answer{Text: strings.Join(args[1:], " ")})
		})
}

func newSay(o *options) *cobra.Command {
	return steering(o, "say SESSION WORDS...", "Say something to a session: guidance while it runs, a follow-up when it is complete", cobra.MinimumNArgs(2),
		func(ctx context.Context, c *client.Client, args []string) (wire.Session, error) {
			r, err := c.Say(ctx, args[0], strings.Join(args[1:], " "))
			return r.Session, err
		})
}
