package db

import (
	"context"
	"fmt"

	"pulseloop/pulse"
)

// Apply writes a change if its guard holds, in one transaction, and wakes who
// may be waiting: else pulse.ErrStale or pulse.ErrDone. A session that does
// not exist is pulse.CodeNotFound.
func (s *Store) Apply(ctx context.Context, g pulse.Guard, c pulse.Change) error {
	if err := checkChange(g, c); err != nil {
		return err
	}
	return s.write(ctx, "apply change", func(ctx context.Context, w *work) error {
		for _, step := range []func(context.Context, pulse.Guard, pulse.Change) error{
			w.applyInbound, w.applyPeople, w.applySession, w.applyTasks, w.applyRecords, w.applyOutput,
		} {
			if err := step(ctx, g, c); err != nil {
				return err
			}
		}
		return nil
	})
}

func checkChange(g pulse.Guard, c pulse.Change) error {
	switch {
	case c.Session != nil && !pulse.ValidUUID(string(c.Session.ID)):
		return noSession(string(c.Session.ID))
	case g.SessionID != "" && !pulse.ValidUUID(string(g.SessionID)):
		return noSession(string(g.SessionID))
	case c.Session != nil && g.SessionID != "" && g.SessionID != c.Session.ID:
		return pulse.Invalid(fmt.Sprintf("the guard names session %s, the change session %s", g.SessionID, c.Session.ID), "")
	}
	return nil
}

func (w *work) applyInbound(ctx context.Context, g pulse.Guard, _ pulse.Change) error {
	if g.Inbound == "" {
		return nil
	}
	return w.handleInbound(ctx, g.Inbound)
}

func (w *work) applyPeople(ctx context.Context, _ pulse.Guard, c pulse.Change) error {
	if c.UsedCode != "" {
		if err := w.useCode(ctx, c.UsedCode); err != nil {
			return err
		}
	}
	if c.NewCode != nil {
		if err := w.insertCode(ctx, *c.NewCode); err != nil {
			return err
		}
	}
	if c.Operator != nil {
		if err := w.putOperator(ctx, *c.Operator); err != nil {
			return err
		}
	}
	if c.Project != nil {
		return w.putProject(ctx, *c.Project)
	}
	return nil
}

func (w *work) applySession(ctx context.Context, g pulse.Guard, c pulse.Change) error {
	if c.NewSession != nil {
		if err := w.insertSession(ctx, *c.NewSession); err != nil {
			return err
		}
		w.wake(pulse.TopicSessions)
	}
	switch {
	case c.Session != nil:
		w.wake(pulse.TopicSessions)
		return w.updateSession(ctx, g, *c.Session)
	case g.SessionID != "":
		return w.guardSession(ctx, g)
	}
	return nil
}

func (w *work) applyTasks(ctx context.Context, _ pulse.Guard, c pulse.Change) error {
	if len(c.Cancel) > 0 {
		if err := w.cancelTasks(ctx, c.Cancel); err != nil {
			return err
		}
		w.wake(pulse.TopicTasks)
	}
	for _, t := range c.Tasks {
		if err := w.insertTask(ctx, t); err != nil {
			return err
		}
		w.wake(pulse.TopicTasks)
	}
	for _, i := range c.Iterations {
		if err := w.putIteration(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) applyRecords(ctx context.Context, _ pulse.Guard, c pulse.Change) error {
	for _, g := range c.Gates {
		if err := w.putGate(ctx, g); err != nil {
			return err
		}
	}
	if err := w.putTurnDetails(ctx, c.Turns); err != nil {
		return err
	}
	if c.Slice != nil {
		if err := w.putSlice(ctx, *c.Slice); err != nil {
			return err
		}
	}
	return w.appendEvents(ctx, c.Events)
}

func (w *work) applyOutput(ctx context.Context, _ pulse.Guard, c pulse.Change) error {
	if err := w.putNotices(ctx, c.Notices); err != nil {
		return err
	}
	if c.Channel != nil {
		if err := w.putChannel(ctx, *c.Channel); err != nil {
			return err
		}
	}
	return w.appendAudit(ctx, c.Audit)
}
