package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pulseloop/pulse"
)

// Actions is every use case of sessions.
type Actions struct {
	store Store
	words Words
	cfg   Config
}

// NewActions returns the use cases over a store, with the wording of words.
func NewActions(store Store, words Words, cfg Config) *Actions {
	return &Actions{store: store, words: words, cfg: cfg.withDefaults()}
}

var _ Doer = (*Actions)(nil)

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.MaxIterations = cmp.Or(c.MaxIterations, 10)
	c.SilenceLimit = cmp.Or(c.SilenceLimit, 5*time.Minute)
	c.ToolSilenceLimit = cmp.Or(c.ToolSilenceLimit, 30*time.Minute)
	c.QueueLimit = cmp.Or(c.QueueLimit, 10*time.Minute)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 3)
	return c
}

// maxRetries bounds how often a decision is made again on fresh data; more
// than a few in a row means that something writes the session in a loop.
const maxRetries = 20

// decision changes s and fills c; now is the one time of the decision.
type decision func(s *pulse.Session, c *pulse.Change, now time.Time) error

// decide reads the session, decides, and writes, again and again until the
// write is based on what is in the store.
func (a *Actions) decide(ctx context.Context, who Actor, id pulse.SessionID, d decision) (pulse.Session, error) {
	for range maxRetries {
		s, err := a.store.Session(ctx, id)
		if err != nil {
			return pulse.Session{}, err
		}
		now := a.cfg.Clock().UTC()
		g := pulse.Guard{SessionID: s.ID, Version: s.Version, Inbound: who.Inbound}
		c := pulse.Change{Session: &s}
		if err := d(&s, &c, now); err != nil {
			return s, err
		}
		s.UpdatedAt = now
		if who.Also != nil {
			who.Also(s, &c)
		}
		if err := a.store.Apply(ctx, g, c); !errors.Is(err, pulse.ErrStale) {
			return s, err
		}
	}
	return pulse.Session{}, &pulse.Error{Code: pulse.CodeUnavailable,
		Message: "the session keeps changing and could not be written", Hint: "try again in a moment"}
}

// enter moves the session to a state, if the table allows it, and tells the
// event log.
func enter(s *pulse.Session, c *pulse.Change, to pulse.SessionStatus, reason string, now time.Time) error {
	if err := pulse.SessionTransitions.Check(s.Status, to); err != nil {
		return &pulse.Error{Code: pulse.CodeConflict,
			Message: fmt.Sprintf("session %s is %s", pulse.Short(s.ID), s.Status), Hint: hintFor(s.Status), Err: err}
	}
	if s.Status != to || s.StatusReason != reason {
		c.Events = append(c.Events, event(s.ID, pulse.EventSessionChanged, now, map[string]any{
			"status": string(to), "from": string(s.Status), "reason": reason}))
	}
	s.Status, s.StatusReason = to, reason
	switch to {
	case pulse.SessionRunning:
		s.DueAt, s.EndedAt = now, time.Time{}
	case pulse.SessionPending:
	default:
		s.DueAt, s.StepToken, s.PauseRequested = time.Time{}, "", false
		if to != pulse.SessionBlocked && to != pulse.SessionPaused {
			s.EndedAt = now
		}
	}
	return nil
}

// hintFor says what a person can do with a session in a state that did not
// allow what was asked.
func hintFor(st pulse.SessionStatus) string {
	switch st {
	case pulse.SessionAborted:
		return "an aborted session is final: start a new one"
	case pulse.SessionComplete:
		return "say what else is to be done and it goes on as a follow-up"
	case pulse.SessionBlocked:
		return "answer its question, or abort it"
	case pulse.SessionPaused, pulse.SessionFailed:
		return "resume it, or abort it"
	default:
		return "pause it or abort it first"
	}
}

func event(id pulse.SessionID, t pulse.EventType, now time.Time, data map[string]any) pulse.Event {
	return pulse.Event{SessionID: id, Type: t, At: now, Data: data}
}

// hear records what a person said as a turn of the tree, hung on the last
// one, and returns its id.
func hear(s *pulse.Session, c *pulse.Change, text string, now time.Time) pulse.TurnID {
	id := pulse.TurnID(pulse.NewUUID(now))
	c.Turns = append(c.Turns, pulse.TurnDetail{
		Turn: pulse.Turn{ID: id, SessionID: s.ID, ProjectID: s.ProjectID, ParentID: s.LastTurnID,
			Role: pulse.TurnUser, Status: pulse.TurnCompleted, CreatedAt: now, EndedAt: now},
		Messages: []pulse.TurnMessage{{TurnID: id, Seq: 1, Text: text, At: now}},
	})
	for _, t := range []pulse.EventType{pulse.EventTurnStarted, pulse.EventTurnCompleted} {
		e := event(s.ID, t, now, map[string]any{"role": string(pulse.TurnUser)})
		e.TurnID = id
		c.Events = append(c.Events, e)
	}
	s.LastTurnID = id
	return id
}

// queue adds a person's words to what the next prompt carries.
func queue(s *pulse.Session, c *pulse.Change, kind pulse.InputKind, text, by string, now time.Time) {
	turn := hear(s, c, text, now)
	s.Inputs = append(s.Inputs, pulse.Input{Kind: kind, Text: text, By: by, TurnID: turn, At: now})
}

// tell puts a message to each of the session's addresses into the change.
func tell(s pulse.Session, c *pulse.Change, kind pulse.NoticeKind, slot string, m pulse.Message, now time.Time) {
	for _, to := range s.Addresses() {
		if kind == pulse.NoticeInfo && to.Platform == pulse.PlatformSMS {
			continue // an iteration that merely goes on is never worth a text message
		}
		c.Notices = append(c.Notices, pulse.Notice{
			ID: pulse.NoticeID(pulse.NewUUID(now)), Address: to, Slot: slot, Kind: kind, SessionID: s.ID,
			Silent: kind == pulse.NoticeInfo, Message: m, Status: pulse.NoticeQueued, NextAt: now, CreatedAt: now,
		})
	}
}
