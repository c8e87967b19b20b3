package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pulseloop/pulse"
)

// mostOutlook bounds what is told of sessions at the start and at the end.
const mostOutlook = 5

// outlook tells what goes on, and what waits for a person. heading begins the
// lines of what goes on. It is no reason to fail.
func (a *app) outlook(ctx context.Context, heading string) {
	list, err := a.store.Sessions(ctx, pulse.SessionFilter{Limit: 50,
		Statuses: []pulse.SessionStatus{pulse.SessionPending, pulse.SessionRunning, pulse.SessionBlocked}})
	if err != nil {
		a.log.Warn("look for sessions that go on", "err", err)
		return
	}
	// A question first: it is the person's turn.
	slices.SortStableFunc(list, func(x, y pulse.Session) int { return rank(x) - rank(y) })
	var lines []string
	for _, s := range list[:min(len(list), mostOutlook)] {
		if s.Status == pulse.SessionBlocked {
			lines = append(lines, fmt.Sprintf("Waiting for you: %s %s", pulse.Short(s.ID), clip(s.StatusReason, 100)))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s, iteration %d/%d", heading, pulse.Short(s.ID), clip(s.Goal, 60), s.CurrentIteration, s.MaxIterations))
	}
	if more := len(list) - mostOutlook; more > 0 {
		lines = append(lines, fmt.Sprintf("And %d more: `pulse list` shows them.", more))
	}
	if len(lines) > 0 {
		a.say("%s\n", strings.Join(lines, "\n"))
	}
}

func rank(s pulse.Session) int {
	if s.Status == pulse.SessionBlocked {
		return 0
	}
	return 1
}

// farewell says why the end takes a while, and lets the next Ctrl-C cut it
// short however the end was asked for.
func (a *app) farewell(ctx context.Context) error {
	<-ctx.Done()
	a.o.atOnce()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	counts, err := a.store.Counts(ctx)
	if err != nil || counts["tasks_running"]+counts["tasks_claimed"] == 0 {
		return nil
	}
	a.say("Waiting up to %s for the agent at work; press Ctrl-C again to stop now.\n", inWords(a.cfg.Daemon.ShutdownGrace))
	return nil
}

// inWords is a length of time as people say it.
func inWords(d time.Duration) string {
	if d >= time.Minute {
		if n := int(d.Round(time.Minute) / time.Minute); n != 1 {
			return fmt.Sprintf("%d minutes", n)
		}
		return "1 minute"
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}
