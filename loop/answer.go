package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pulseloop/pulse"
)

// The options of the gates, by their keys. The first is what a plain resume means.
const (
	ChoiceMore  = "more"
	ChoiceRetry = "retry"
	ChoiceStop  = "stop"
)

// Answer resolves a session's open gate, once: by one of its choices, by
// text, or by both. gate "" means the open one. Whoever comes second is told
// that it was decided.
func (a *Actions) Answer(ctx context.Context, who Actor, id pulse.SessionID, gate pulse.GateID, choice, text string) (pulse.Session, error) {
	return a.decide(ctx, who, id, func(s *pulse.Session, c *pulse.Change, now time.Time) error {
		text, err := optionalWords(text)
		if err != nil {
			return err
		}
		g, err := a.store.OpenGate(ctx, s.ID)
		if errors.Is(err, pulse.ErrNone) || (err == nil && gate != "" && g.ID != gate) {
			return pulse.Conflict("session "+pulse.Short(s.ID)+" does not wait for this answer", "it was decided already, or the session went on without it")
		}
		if err != nil {
			return err
		}
		if choice == "" && text == "" {
			return pulse.Invalid("the answer is empty", "say what the session should know")
		}
		if choice == "" && len(g.Options) > 0 {
			if choice, err = choiceIn(g, text); err != nil {
				return err
			}
		}
		return a.resolve(ctx, who, s, c, g, choice, text, now)
	})
}

// choiceIn reads a typed choice: the key or the label of an option. Other
// words decide nothing: "no, stop here" must never come to mean "ten more".
func choiceIn(g pulse.Gate, text string) (string, error) {
	text = strings.TrimSpace(text)
	for _, o := range g.Options {
		if strings.EqualFold(text, o.Key) || strings.EqualFold(text, o.Label) {
			return o.Key, nil
		}
	}
	return "", pulse.Invalid(g.Prompt+" Your words do not say which way to go.", "choose one of: "+optionKeys(g))
}

// resolve closes the gate with a decision and lets the session go on, or end.
func (a *Actions) resolve(ctx context.Context, who Actor, s *pulse.Session, c *pulse.Change, g pulse.Gate, choice, text string, now time.Time) error {
	if len(g.Options) > 0 && !hasOption(g, choice) {
		return pulse.Invalid(fmt.Sprintf("%.40q is not one of the choices", choice), "choose one of: "+optionKeys(g))
	}
	g.Status, g.Choice, g.Text = pulse.GateResolved, choice, text
	g.DecidedBy, g.DecidedName, g.DecidedAt = who.Operator, nameOf(who), now
	c.Gates = append(c.Gates, g)
	c.Events = append(c.Events, event(s.ID, pulse.EventGateResolved, now, map[string]any{
		"gateId": string(g.ID), "kind": string(g.Kind), "choice": choice, "by": g.DecidedName}))
	c.Audit = append(c.Audit, pulse.AuditEntry{At: now, Operator: who.Operator, Name: who.Name,
		Action: "answer", Subject: string(g.ID), Detail: choice})
	if choice == ChoiceStop {
		if err := enter(s, c, pulse.SessionAborted, "stopped by "+nameOf(who), now); err != nil {
			return err
		}
		a.sayAborted(s, c, who, now)
		return nil
	}
	if err := enter(s, c, pulse.SessionRunning, "", now); err != nil {
		return err
	}
	if g.Kind == pulse.GateLimit {
		s.MaxIterations = min(s.MaxIterations+a.cfg.MaxIterations, s.CurrentIteration+MaxIterationLimit)
	}
	if text != "" && !strings.EqualFold(text, choice) {
		queue(s, c, pulse.InputAnswer, text, nameOf(who), now)
	}
	return nil
}

func hasOption(g pulse.Gate, key string) bool {
	for _, o := range g.Options {
		if o.Key == key {
			return true
		}
	}
	return false
}

func optionKeys(g pulse.Gate) string {
	keys := make([]string, len(g.Options))
	for i, o := range g.Options {
		keys[i] = o.Key
	}
	return strings.Join(keys, ", ")
}
