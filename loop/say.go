package loop

import (
	"context"
	"errors"
	"time"

	"pulseloop/pulse"
)

// Say takes plain words to a session: the answer if it waits for one,
// guidance for the next prompt if it runs or is paused, and a follow-up in
// the same worktree if it was complete or had failed.
func (a *Actions) Say(ctx context.Context, who Actor, id pulse.SessionID, text string) (Said, error) {
	var as pulse.InputKind
	s, err := a.decide(ctx, who, id, func(s *pulse.Session, c *pulse.Change, now time.Time) error {
		words, err := checkWords("message", text)
		if err != nil {
			return err
		}
		switch s.Status {
		case pulse.SessionBlocked:
			as = pulse.InputAnswer
			g, err := a.store.OpenGate(ctx, s.ID)
			if errors.Is(err, pulse.ErrNone) {
				return a.resumeBlocked(ctx, who, s, c, words, now)
			}
			if err != nil {
				return err
			}
			choice := ""
			if len(g.Options) > 0 {
				if choice, err = choiceIn(g, words); err != nil {
					return err
				}
			}
			return a.resolve(ctx, who, s, c, g, choice, words, now)
		case pulse.SessionComplete:
			as = pulse.InputFollowUp
			return a.followUp(s, c, who, words, now)
		case pulse.SessionFailed:
			as = pulse.InputGuidance
			if err := enter(s, c, pulse.SessionRunning, "", now); err != nil {
				return err
			}
		case pulse.SessionAborted:
			return pulse.Conflict("session "+pulse.Short(s.ID)+" was aborted", hintFor(s.Status))
		default:
			as = pulse.InputGuidance
		}
		queue(s, c, as, words, nameOf(who), now)
		return nil
	})
	return Said{Session: s, As: as}, err
}

// followUp opens a new run of a complete session, with as many iterations
// again as a new session would have.
func (a *Actions) followUp(s *pulse.Session, c *pulse.Change, who Actor, words string, now time.Time) error {
	if err := enter(s, c, pulse.SessionRunning, "", now); err != nil {
		return err
	}
	s.Run++
	s.MaxIterations = min(s.CurrentIteration+a.cfg.MaxIterations, MaxIterationLimit+s.CurrentIteration)
	c.Events = append(c.Events, event(s.ID, pulse.EventSessionStarted, now, map[string]any{
		"goal": words, "project": s.ProjectName, "role": string(s.Role), "run": s.Run}))
	queue(s, c, pulse.InputFollowUp, words, nameOf(who), now)
	return nil
}
