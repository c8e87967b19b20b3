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
		Use: "logs SESSION", Short: "Show what happened in a session", Args: cobra.ExactArgs(1),
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
			return o.pastEvents(cmd.Context(), c, d.Session.ID)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the session ends or waits for a person")
	return cmd
}

// pastEvents prints every event so far.
func (o *options) pastEvents(ctx context.Context, c *client.Client, id pulse.SessionID) error {
	for after := int64(0); ; {
		page, err := c.Events(ctx, string(id), after)
		if err != nil {
			return err
		}
		for _, f := range page.Events {
			o.printFrame(f)
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
	err := c.Follow(ctx, client.Follow{Sessions: map[pulse.SessionID]int64{s.ID: 0}}, func(f wire.Frame) error {
		o.printFrame(f)
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

// printFrame prints one event as a line, or as JSON.
func (o *options) printFrame(f wire.Frame) {
	if o.json {
		b, err := json.Marshal(f)
		if err == nil {
			o.printf("%s\n", b)
		}
		return
	}
	text := ""
	switch pulse.EventType(f.Type) {
	case pulse.EventSessionStarted:
		text = "▶ " + clip(field(f, "goal"), 120)
	case pulse.EventIterationStarted:
		text = fmt.Sprintf("● iteration %s of %s", field(f, "iteration"), field(f, "max"))
	case pulse.EventToolStarted:
		text = fmt.Sprintf("  · %s  %s", field(f, "name"), clip(field(f, "summary"), 100))
	case pulse.EventToolCompleted:
		if field(f, "status") != string(pulse.ToolFailed) {
			return
		}
		text = "  ✗ " + field(f, "name") + " failed"
	case pulse.EventTurnNote:
		text = "  ~ " + clip(field(f, "text"), 160)
	case pulse.EventIterationEnded:
		text = fmt.Sprintf("  %s %s", field(f, "signal"), clip(field(f, "summary")+field(f, "error"), 160))
	case pulse.EventGateOpened:
		// The question itself is the reason for which the session waits.
		text = "  → pulse answer " + pulse.Short(f.SessionID) + " \"your answer\""
	case pulse.EventGateResolved:
		text = "! decided by " + field(f, "by")
	case pulse.EventSessionChanged:
		st := pulse.SessionStatus(field(f, "status"))
		text = icon(st) + " " + string(st)
		if r := field(f, "reason"); r != "" {
			text += ": " + clip(r, 160)
		}
	case pulse.EventSessionError:
		text = "✗ " + field(f, "error")
	default:
		return
	}
	o.printf("%s  %s\n", f.At.Local().Format("15:04:05"), text)
}
