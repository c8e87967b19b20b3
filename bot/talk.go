package bot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pulseloop/loop"
	"pulseloop/pulse"
)

// origins says where a session of a platform was asked for.
var origins = map[pulse.Platform]pulse.Origin{pulse.PlatformTelegram: pulse.OriginTelegram, pulse.PlatformDiscord: pulse.OriginDiscord,
	pulse.PlatformSMS: pulse.OriginSMS, pulse.PlatformConsole: pulse.OriginCLI}

// actor is the sender as the use cases know them. say words the reply, once
// the outcome is decided; it is written together with the outcome.
func (r *Router) actor(u *update, say func(after pulse.Session, c *pulse.Change) pulse.Message) loop.Actor {
	return loop.Actor{Operator: u.who.ID, Name: u.who.Name, Origin: origins[u.e.Platform], Inbound: u.in.ID,
		Also: func(after pulse.Session, c *pulse.Change) {
			c.Notices = append(c.Notices, r.notice(u, say(after, c), after.ID))
		}}
}

// words takes plain text: an answer if the session spoken to waits for one,
// guidance if it runs, a follow-up in a session's own topic or in reply to
// its messages, else a new goal.
func (r *Router) words(ctx context.Context, u *update) error {
	if !visible(u.e.Text) {
		return pulse.Invalid("there are no words in this message", "say in words what is to be done")
	}
	s, gate, err := r.repliedTo(ctx, u)
	if err == nil {
		return r.toSession(ctx, u, s, gate, u.e.Text)
	}
	if !errors.Is(err, pulse.ErrNone) {
		return err
	}
	s, err = r.listening(ctx, u)
	if err == nil {
		return r.toSession(ctx, u, s, "", u.e.Text)
	}
	if !errors.Is(err, pulse.ErrNone) {
		return err
	}
	return r.start(ctx, u, u.e.Text)
}

// A message is in the chat a moment before it is known here which one it was.
// A quick reply, taken for plain text because of that, would start a new goal
// instead of answering.
const settling = 2 * time.Second

// errTooSoon: the message replied to may become known in a moment.
var errTooSoon = errors.New("the message replied to is not known yet")

// repliedTo finds the session (and gate) whose message this replies to;
// pulse.ErrNone if it replies to nothing of ours.
func (r *Router) repliedTo(ctx context.Context, u *update) (pulse.Session, pulse.GateID, error) {
	if u.e.ReplyTo == "" {
		return pulse.Session{}, "", pulse.ErrNone
	}
	id, gate, err := r.cfg.People.SessionByMessage(ctx, u.e.Address, u.e.ReplyTo)
	if errors.Is(err, pulse.ErrNone) && u.now.Sub(u.in.ReceivedAt) < settling {
		return pulse.Session{}, "", errTooSoon
	}
	if err != nil || id == "" {
		return pulse.Session{}, "", none(err)
	}
	s, err := r.session(ctx, id)
	return s, gate, err
}

// listening finds the session that plain text of the chat goes to;
// pulse.ErrNone if it means a new goal.
func (r *Router) listening(ctx context.Context, u *update) (pulse.Session, error) {
	s, err := r.bound(ctx, u)
	if err != nil && !errors.Is(err, pulse.ErrNone) {
		return s, err
	}
	if err == nil {
		switch s.Status {
		case pulse.SessionBlocked, pulse.SessionRunning, pulse.SessionPending, pulse.SessionPaused:
			return s, nil
		case pulse.SessionComplete, pulse.SessionFailed:
			if u.e.Address.Thread != "" {
				return s, nil
			}
		}
	}
	for _, statuses := range [][]pulse.SessionStatus{{pulse.SessionBlocked}, {pulse.SessionRunning, pulse.SessionPending}} {
		found, err := r.cfg.Reader.Sessions(ctx, pulse.SessionFilter{Address: u.e.Address, Statuses: statuses, Limit: 5})
		if err != nil {
			return pulse.Session{}, fmt.Errorf("list the chat's sessions: %w", err)
		}
		if len(found) == 1 {
			return found[0], nil
		}
		if len(found) > 1 {
			return pulse.Session{}, pulse.Conflict("several sessions of this chat are "+string(found[0].Status)+", and I cannot tell which one you mean",
				"reply to a message of the one you mean; /pulse GOAL starts a new one, /list shows all")
		}
	}
	return pulse.Session{}, pulse.ErrNone
}

// bound reads the session the chat is bound to; pulse.ErrNone without one.
func (r *Router) bound(ctx context.Context, u *update) (pulse.Session, error) {
	ch, err := r.cfg.People.Channel(ctx, u.e.Address)
	if err != nil || ch.SessionID == "" {
		return pulse.Session{}, none(err)
	}
	return r.session(ctx, ch.SessionID)
}

// session reads one session; one that is gone is none.
func (r *Router) session(ctx context.Context, id pulse.SessionID) (pulse.Session, error) {
	s, err := r.cfg.Reader.FindSession(ctx, string(id))
	if pulse.CodeOf(err) == pulse.CodeNotFound {
		return s, pulse.ErrNone
	}
	if err != nil {
		return s, fmt.Errorf("read session %s: %w", id, err)
	}
	return s, nil
}

// none is err, or pulse.ErrNone where nothing failed and nothing was found.
func none(err error) error {
	if err == nil {
		return pulse.ErrNone
	}
	return err
}

// toSession says words to a session. gate is the question they reply to, if
// they reply to one.
func (r *Router) toSession(ctx context.Context, u *update, s pulse.Session, gate pulse.GateID, text string) error {
	if err := checkLength("message", text); err != nil {
		return err
	}
	prefix := ""
	if gate != "" {
		g, err := r.cfg.Reader.Gate(ctx, gate)
		switch {
		case pulse.CodeOf(err) == pulse.CodeNotFound:
		case err != nil:
			return fmt.Errorf("read gate %s: %w", gate, err)
		case g.Status == pulse.GateOpen:
			return r.answer(ctx, u, s.ID, g.ID, "", text)
		case s.Status == pulse.SessionBlocked:
			return pulse.Conflict(decided(g), "the session has another question by now; answer that one")
		case g.Status == pulse.GateResolved:
			prefix = upperFirst(decided(g)) + ".\n"
		}
	}
	_, err := r.cfg.Doer.Say(ctx, r.actor(u, func(after pulse.Session, c *pulse.Change) pulse.Message {
		return pulse.Text(prefix + heard(after, c))
	}), s.ID, text)
	if s.Status == pulse.SessionBlocked {
		return r.unclear(ctx, u, s.ID, err)
	}
	return err
}

// answer decides a gate, and tells whoever comes second who came first.
func (r *Router) answer(ctx context.Context, u *update, id pulse.SessionID, gate pulse.GateID, choice, text string) error {
	_, err := r.cfg.Doer.Answer(ctx, r.actor(u, func(after pulse.Session, c *pulse.Change) pulse.Message {
		said := heard(after, c)
		u.ack = said
		return pulse.Text(said)
	}), id, gate, choice, text)
	if choice == "" {
		err = r.unclear(ctx, u, id, err)
	}
	if pulse.CodeOf(err) != pulse.CodeConflict || gate == "" {
		return err
	}
	g, readErr := r.cfg.Reader.Gate(ctx, gate)
	if readErr != nil || g.Status == pulse.GateOpen {
		return err
	}
	return &pulse.Error{Code: pulse.CodeConflict, Message: decided(g), Err: err}
}

// unclear shows the choices again, with their buttons, to whoever answered in
// words that are none of them. Any other outcome is passed on.
func (r *Router) unclear(ctx context.Context, u *update, id pulse.SessionID, cause error) error {
	if pulse.CodeOf(cause) != pulse.CodeInvalid {
		return cause
	}
	g, err := r.cfg.Reader.OpenGate(ctx, id)
	if errors.Is(err, pulse.ErrNone) || err == nil && len(g.Options) == 0 {
		return cause
	}
	if err != nil {
		return fmt.Errorf("read the open gate of session %s: %w", id, err)
	}
	text, _ := forPeople(cause)
	m := pulse.Text("⚠️ " + text)
	var row []pulse.Button
	for _, o := range g.Options {
		m.Spans[0].Text += "\n• " + line(o.Key, 60)
		if l := label(g, o.Key); l != line(o.Key, 60) {
			m.Spans[0].Text += ": " + l
		}
		// A platform takes 64 bytes with a button; a longer key can be typed.
		if data := "g:" + string(g.ID) + ":" + o.Key; len(data) <= 64 {
			row = append(row, pulse.Button{Label: line(label(g, o.Key), 40), Data: data})
		}
	}
	if len(row) > 0 {
		m.Buttons = [][]pulse.Button{row}
	}
	n := r.notice(u, m, id)
	n.GateID = g.ID // a reply to this answers the question, too
	return r.finish(ctx, u, pulse.Change{Notices: []pulse.Notice{n}})
}

// decided says how a gate that is closed was closed.
func decided(g pulse.Gate) string {
	switch g.Status {
	case pulse.GateResolved:
		who := line(g.DecidedName, 60)
		if who == "" {
			who = "somebody"
		}
		if g.Choice == "" {
			return who + " answered this already"
		}
		return fmt.Sprintf("%s decided this already: %s", who, label(g, g.Choice))
	case pulse.GateExpired:
		return "this question has expired"
	default:
		return "this question is no longer open"
	}
}

func label(g pulse.Gate, key string) string {
	for _, o := range g.Options {
		if o.Key == key && o.Label != "" {
			return line(o.Label, 60)
		}
	}
	return line(key, 60)
}

// heard says what became of words, as the change shows it.
func heard(after pulse.Session, c *pulse.Change) string {
	for _, g := range c.Gates {
		if g.Status != pulse.GateResolved {
			continue
		}
		switch {
		case after.Status == pulse.SessionAborted:
			return "🛑 " + label(g, g.Choice) + ": the session ends here."
		case g.Choice != "":
			return "▶️ " + label(g, g.Choice) + ": the session goes on."
		default:
			return "▶️ Thank you, the session goes on with your answer."
		}
	}
	if n := len(after.Inputs); n > 0 {
		switch after.Inputs[n-1].Kind {
		case pulse.InputAnswer:
			return "▶️ Thank you, the session goes on with your answer."
		case pulse.InputFollowUp:
			return "🔁 The session goes on from where it was, with what you said."
		}
	}
	if after.Status == pulse.SessionPaused {
		return "📝 Noted. The session is paused; the agent reads it after /resume."
	}
	return "📝 Noted. The agent reads it with its next prompt."
}
