package loop

import (
	"context"
	"errors"
	"strings"
	"time"

	"pulseloop/pulse"
)

// goOn is what an agent is told when a person resumed a blocked session
// without a word.
const goOn = "(The person resumed the session without further words: what blocked you has been dealt with. Look again and go on.)"

// Resume lets a paused, blocked or failed session go on. For a blocked one
// the text is the answer to what it waits for. A pause that was asked for
// and has not happened yet is taken back.
func (a *Actions) Resume(ctx context.Context, who Actor, id pulse.SessionID, text string) (pulse.Session, error) {
	return a.decide(ctx, who, id, func(s *pulse.Session, c *pulse.Change, now time.Time) error {
		text, err := optionalWords(text)
		if err != nil {
			return err
		}
		switch s.Status {
		case pulse.SessionBlocked:
			return a.resumeBlocked(ctx, who, s, c, text, now)
		case pulse.SessionRunning:
			if !s.PauseRequested {
				return pulse.Conflict("session "+pulse.Short(s.ID)+" is running already", "")
			}
			s.PauseRequested = false
		case pulse.SessionComplete:
			return pulse.Conflict("session "+pulse.Short(s.ID)+" is complete", hintFor(s.Status))
		default:
			if err := enter(s, c, pulse.SessionRunning, "", now); err != nil {
				return err
			}
		}
		if text != "" {
			queue(s, c, pulse.InputGuidance, text, nameOf(who), now)
		}
		return nil
	})
}

func (a *Actions) resumeBlocked(ctx context.Context, who Actor, s *pulse.Session, c *pulse.Change, text string, now time.Time) error {
	g, err := a.store.OpenGate(ctx, s.ID)
	switch {
	case errors.Is(err, pulse.ErrNone):
		if err := enter(s, c, pulse.SessionRunning, "", now); err != nil {
			return err
		}
		if text != "" {
			queue(s, c, pulse.InputAnswer, text, nameOf(who), now)
		}
		return nil
	case err != nil:
		return err
	case len(g.Options) > 0:
		return a.resolve(ctx, who, s, c, g, g.Options[0].Key, text, now)
	case text == "":
		text = goOn
	}
	return a.resolve(ctx, who, s, c, g, "", text, now)
}

func optionalWords(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", nil
	}
	return checkWords("answer", text)
}
