package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/pulse"
)

func newLogs(o *options) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "logs SESSION", Short: "Show what happened in a session", Args: ofSession(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			d, err := c.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if follow {
				return o.follow(cmd.Context(), c, d.Session, false)
			}
			return o.pastEvents(cmd.Context(), c, d.Session)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the session ends or waits for a person")
	return cmd
}

// pastEvents prints every event so far.
func (o *options) pastEvents(ctx context.Context, c *client.Client, s wire.Session) error {
	story := o.tell(c, s)
	defer story.end()
	for after := int64(0); ; {
		page, err := c.Events(ctx, string(s.ID), after)
		if err != nil {
			return err
		}
		for _, f := range page.Events {
			story.frame(ctx, f)
		}
		if !page.More {
			return nil
		}
		after = page.Next
	}
}

// follow prints events as they come, until the session rests and all that
// belongs to it is told. With exit set the way it rests decides the exit code.
func (o *options) follow(ctx context.Context, c *client.Client, s wire.Session, exit bool) error {
	rest, last := pulse.SessionStatus(""), int64(0)
	story := o.tell(c, s)
	defer story.end()
	err := c.Follow(ctx, client.Follow{Sessions: map[pulse.SessionID]int64{s.ID: 0}}, func(f wire.Frame) error {
		story.frame(ctx, f)
		if f.Type == string(pulse.EventSessionChanged) && resting(pulse.SessionStatus(field(f, "status"))) {
			// An old change is not the end: what counts is how things are now.
			d, err := c.Get(ctx, string(s.ID))
			if err != nil {
				return err
			}
			if rest = ""; resting(d.Session.Status) {
				rest, last = d.Session.Status, d.Session.EventSeq
			}
		}
		if rest != "" && f.Seq >= last {
			return errEnd
		}
		return nil
	})
	if err != nil && err != errEnd {
		return err
	}
	if !exit {
		return nil
	}
	switch rest {
	case pulse.SessionBlocked, pulse.SessionPaused:
		return exitError(exitBlocked)
	case pulse.SessionComplete:
		return nil
	}
	return exitError(exitFailure)
}

func resting(s pulse.SessionStatus) bool {
	return s != "" && s != pulse.SessionRunning && s != pulse.SessionPending
}

func field(f wire.Frame, name string) string {
	var data map[string]any
	if b, err := json.Marshal(f.Data); err == nil {
		_ = json.Unmarshal(b, &data) // data that is no object has no fields
	}
	if v, ok := data[name]; ok && v != nil {
		return fmt.Sprint(v)
	}
	return ""
}
