package loop

import (
	"context"
	"errors"
	"time"

	"pulseloop/pulse"
)

// Pause ends a session after its current iteration; one that runs none is
// paused at once. Pausing what is paused already changes nothing.
func (a *Actions) Pause(ctx context.Context, who Actor, id pulse.SessionID) (pulse.Session, error) {
	return a.decide(ctx, who, id, func(s *pulse.Session, c *pulse.Change, now time.Time) error {
		if s.Status == pulse.SessionPaused {
			return nil
		}
		busy, err := a.busy(ctx, s)
		if err != nil {
			return err
		}
		if busy {
			s.PauseRequested = true
			return nil
		}
		if err := enter(s, c, pulse.SessionPaused, "paused by "+nameOf(who), now); err != nil {
			return err
		}
		tell(*s, c, pulse.NoticeInfo, "paused:"+pulse.NewUUID(now), a.words.Paused(*s), now)
		return nil
	})
}

// busy reports whether an iteration is on its way.
func (a *Actions) busy(ctx context.Context, s *pulse.Session) (bool, error) {
	if s.Status != pulse.SessionRunning {
		return false, nil
	}
	it, _, err := a.store.CurrentIteration(ctx, s.ID)
	if errors.Is(err, pulse.ErrNone) {
		return false, nil
	}
	return err == nil && openIteration(it), err
}

// openIteration reports whether the iteration still has an outcome to come.
func openIteration(it pulse.Iteration) bool { return len(pulse.IterationTransitions[it.Status]) > 0 }

func nameOf(who Actor) string {
	if who.Name != "" {
		return who.Name
	}
	return string(who.Origin)
}
