package loop

import (
	"context"
	"errors"
	"time"

	"pulseloop/pulse"
)

// Abort stops a session for good. Its task is cancelled, so that the daemon
// ends the agent's processes; the work done so far stays on its branch.
// Aborting twice changes nothing.
func (a *Actions) Abort(ctx context.Context, who Actor, id pulse.SessionID) (pulse.Session, error) {
	return a.decide(ctx, who, id, func(s *pulse.Session, c *pulse.Change, now time.Time) error {
		if s.Status == pulse.SessionAborted {
			return nil
		}
		if err := enter(s, c, pulse.SessionAborted, "aborted by "+nameOf(who), now); err != nil {
			return err
		}
		if err := a.stopWork(ctx, s, c, "aborted by "+nameOf(who), now); err != nil {
			return err
		}
		a.sayAborted(s, c, who, now)
		return nil
	})
}

// stopWork cancels what a session that ends still has open: task, iteration, gate.
func (a *Actions) stopWork(ctx context.Context, s *pulse.Session, c *pulse.Change, reason string, now time.Time) error {
	it, task, err := a.store.CurrentIteration(ctx, s.ID)
	if err != nil && !errors.Is(err, pulse.ErrNone) {
		return err
	}
	if err == nil && pulse.IterationTransitions.Allows(it.Status, pulse.IterationFailed) {
		it.Status, it.Error, it.EndedAt = pulse.IterationFailed, reason, now
		c.Iterations = append(c.Iterations, it)
		c.Events = append(c.Events, event(s.ID, pulse.EventIterationEnded, now, map[string]any{
			"iteration": it.Number, "iterationId": string(it.ID), "status": string(it.Status), "error": reason}))
		if !task.Status.Over() {
			c.Cancel = append(c.Cancel, task.ID)
		}
	}
	g, err := a.store.OpenGate(ctx, s.ID)
	if errors.Is(err, pulse.ErrNone) {
		return nil
	}
	if err == nil {
		g.Status, g.DecidedAt = pulse.GateCancelled, now
		c.Gates = append(c.Gates, g)
	}
	return err
}

func (a *Actions) sayAborted(s *pulse.Session, c *pulse.Change, who Actor, now time.Time) {
	tell(*s, c, pulse.NoticeFinal, "aborted:"+string(s.ID), a.words.Aborted(*s, nameOf(who)), now)
	c.Audit = append(c.Audit, pulse.AuditEntry{At: now, Operator: who.Operator, Name: who.Name, Action: "abort", Subject: string(s.ID)})
}
