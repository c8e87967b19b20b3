package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/loop"
	"pulseloop/pulse"
)

// story prints a session's events as lines, or as JSON. It remembers what it
// has told, because one thing comes to light in several events.
type story struct {
	o    *options
	c    *client.Client
	s    wire.Session
	said map[pulse.TurnID]string // what the person said, by turn

	goal    string // the latest that was printed
	failure string // an iteration's, not printed yet: the session's end mostly says the same
	at      string // when that was
	reason  string // the session's latest that was printed
}

func (o *options) tell(c *client.Client, s wire.Session) *story {
	return &story{o: o, c: c, s: s, said: map[pulse.TurnID]string{}}
}

// frame prints one event.
func (t *story) frame(ctx context.Context, f wire.Frame) {
	if t.o.json {
		b, err := json.Marshal(f)
		if err == nil {
			t.o.printf("%s\n", b)
		}
		return
	}
	at := f.At.Local().Format("15:04:05")
	if t.failure != "" && (pulse.EventType(f.Type) != pulse.EventSessionChanged || field(f, "reason") != t.failure) {
		t.end()
	}
	t.failure = ""
	if pulse.EventType(f.Type) == pulse.EventIterationEnded && field(f, "error") != "" {
		t.failure, t.at = field(f, "error"), at
		return
	}
	for _, text := range t.lines(ctx, f) {
		t.o.printf("%s  %s\n", at, text)
	}
}

// end prints what was held back.
func (t *story) end() {
	if t.failure != "" {
		t.o.printf("%s    %s\n", t.at, clip(t.failure, 160))
		t.failure = ""
	}
}

// lines words one event.
func (t *story) lines(ctx context.Context, f wire.Frame) []string {
	one := func(format string, args ...any) []string { return []string{fmt.Sprintf(format, args...)} }
	switch pulse.EventType(f.Type) {
	case pulse.EventSessionStarted:
		t.goal = field(f, "goal")
		return one("▶ %s", clip(t.goal, 120))
	case pulse.EventIterationStarted:
		return one("● iteration %s of %s", field(f, "iteration"), field(f, "max"))
	case pulse.EventToolStarted:
		return one("  · %s  %s", field(f, "name"), clip(field(f, "summary"), 100))
	case pulse.EventToolCompleted:
		if field(f, "status") == string(pulse.ToolFailed) {
			return one("  ✗ %s failed", field(f, "name"))
		}
	case pulse.EventTurnNote:
		return one("  ~ %s", clip(field(f, "text"), 160))
	case pulse.EventTurnCompleted:
		if field(f, "role") == string(pulse.TurnUser) {
			if words := t.words(ctx, f.TurnID); words != "" && words != t.goal {
				return one("› %s", clip(words, 160))
			}
		}
	case pulse.EventIterationEnded:
		return one("  %s %s", field(f, "signal"), clip(field(f, "summary"), 160))
	case pulse.EventGateOpened:
		// The question itself is the reason for which the session waits.
		return one("  → pulse answer %s %s", pulse.Short(f.SessionID), t.answers(f))
	case pulse.EventGateResolved:
		if choice := field(f, "choice"); choice != "" {
			return one("! decided by %s: %s", field(f, "by"), choice)
		}
		return one("! decided by %s", field(f, "by"))
	case pulse.EventSessionChanged:
		return t.changed(f)
	case pulse.EventSessionError:
		return t.failed(f)
	}
	return nil
}

func (t *story) changed(f wire.Frame) []string {
	st := pulse.SessionStatus(field(f, "status"))
	line := icon(st) + " " + string(st)
	t.reason = field(f, "reason")
	if t.reason != "" {
		line += ": " + clip(t.reason, 160)
	}
	if st == pulse.SessionComplete && t.s.Status == st {
		return []string{line, followUp(f.SessionID)}
	}
	return []string{line}
}

// failed tells the reason, unless the state before has, and what to do.
func (t *story) failed(f wire.Frame) (lines []string) {
	if text := field(f, "error"); text != t.reason {
		lines = append(lines, "✗ "+clip(text, 160))
	}
	if hint := field(f, "hint"); hint != "" {
		lines = append(lines, "  → "+clip(hint, 160))
	}
	return lines
}

// followUp is how a complete session goes on.
func followUp(id pulse.SessionID) string {
	return "  → pulse say " + pulse.Short(id) + " \"what else is to be done\""
}

// answers is what can be typed as the answer to a gate.
func (t *story) answers(f wire.Frame) string {
	switch pulse.GateKind(field(f, "kind")) {
	case pulse.GateLimit:
		return loop.ChoiceMore + "|" + loop.ChoiceStop
	case pulse.GateTimeout:
		return loop.ChoiceRetry + "|" + loop.ChoiceStop
	}
	return "\"your answer\""
}

// words gives what the person said in a turn. The events tell only that
// something was said.
func (t *story) words(ctx context.Context, id pulse.TurnID) string {
	if text, ok := t.said[id]; ok {
		return text
	}
	t.said[id] = ""
	turns, err := t.c.Turns(ctx, string(t.s.ID))
	if err != nil {
		return "" // the rest of the story does not depend on it
	}
	for _, turn := range turns {
		if turn.Role != pulse.TurnUser {
			continue
		}
		var parts []string
		for _, m := range turn.Messages {
			parts = append(parts, m.Text)
		}
		t.said[turn.ID] = strings.Join(parts, " ")
	}
	return t.said[id]
}
