package bot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pulseloop/pulse"
)

// Level says who may use a command.
type Level int

// The levels. A viewer is a Reader, an operator and an owner are both.
const (
	Anyone Level = iota
	Readers
	Operators
)

// Command is one row of the table of commands, the same on every platform.
type Command struct {
	Name string // without the slash
	Args string // as shown in help
	Help string
	Who  Level
	Only []pulse.Platform // empty: everywhere
	Hide bool             // works, but is not listed in help

	run func(r *Router, ctx context.Context, u *update, args string) error
}

// Commands is the table. Adapters register it with platforms that want to
// know their commands; help and the router read it.
func Commands() []Command {
	return []Command{
		{Name: "pulse", Args: "GOAL", Help: "start working on a goal", Who: Operators, run: (*Router).start},
		{Name: "status", Args: "[ID]", Help: "how this chat's session is doing", Who: Readers, run: (*Router).status},
		{Name: "list", Help: "the latest sessions", Who: Readers, run: (*Router).list},
		{Name: "show", Args: "[ID]", Help: "a session with its iterations", Who: Readers, run: (*Router).show},
		{Name: "answer", Args: "[ID] TEXT", Help: "answer what a session asks", Who: Operators, run: (*Router).answerCommand},
		{Name: "pause", Args: "[ID]", Help: "pause after the current iteration", Who: Operators, run: (*Router).pause},
		{Name: "resume", Args: "[ID] [TEXT]", Help: "let a session go on: a paused, blocked or failed one, or a complete one with what else is to be done", Who: Operators, run: (*Router).resume},
		{Name: "abort", Args: "[ID]", Help: "stop a session for good", Who: Operators, run: (*Router).abort},
		{Name: "prompt", Args: "[ID]", Help: "the latest prompt, word for word", Who: Readers, run: (*Router).prompt},
		{Name: "projects", Help: "the projects there are", Who: Readers, run: (*Router).listProjects},
		{Name: "project", Args: "[NAME]", Help: "which project this chat works on, or change it", Who: Operators, run: (*Router).project},
		{Name: "pair", Args: "CODE", Help: "make yourself known with a code from pulse pair", Who: Anyone, run: (*Router).pairedAlready},
		{Name: "start", Args: "CODE", Help: "the same, from a link", Who: Anyone, Only: []pulse.Platform{pulse.PlatformTelegram}, Hide: true, run: (*Router).pairedAlready},
		{Name: "help", Help: "this list", Who: Readers, run: (*Router).help},
	}
}

func (c Command) on(p pulse.Platform) bool { return len(c.Only) == 0 || slices.Contains(c.Only, p) }

// command carries out a message that starts with a slash.
func (r *Router) command(ctx context.Context, u *update) error {
	word, args := firstWord(u.e.Text)
	name := strings.ToLower(strings.TrimPrefix(word, "/"))
	for _, c := range Commands() {
		if c.Name != name || !c.on(u.e.Platform) {
			continue
		}
		if c.Who == Operators && !u.who.Role.May() && (c.Name != "project" || args != "") {
			return mayNot(u.who)
		}
		return c.run(r, ctx, u, args)
	}
	return pulse.Invalid("I do not know "+line(word, 40), "/help lists what I understand; to send it as a goal, write /pulse "+line(word, 40)+" …")
}

// target finds the session a command is about: the one named by its first
// word, else the one replied to, the one the chat is bound to while that is
// not over, or the only one under way here. rest is what remains of the arguments. Where the
// arguments may be plain text, a first word that names no session is text.
func (r *Router) target(ctx context.Context, u *update, args string, takesText bool) (s pulse.Session, rest string, err error) {
	word, after := firstWord(args)
	ref := strings.ToLower(strings.TrimPrefix(word, "#"))
	if ref != "" && !takesText && len(ref) < minRef { // one letter would be an id by accident
		return s, "", pulse.Invalid(line(word, 20)+" is too short for a session's id", "give the last 8 characters, as /list shows them")
	}
	if ref != "" && (!takesText || looksLikeID(ref)) {
		s, err = r.cfg.Reader.FindSession(ctx, ref)
		if err == nil || !takesText || pulse.CodeOf(err) != pulse.CodeNotFound {
			return s, after, err
		}
	}
	if s, _, err = r.repliedTo(ctx, u); !errors.Is(err, pulse.ErrNone) {
		return s, args, err
	}
	s, err = r.bound(ctx, u)
	if err != nil && !errors.Is(err, pulse.ErrNone) {
		return s, args, err
	}
	here := err == nil
	if here && s.Status != pulse.SessionComplete && s.Status != pulse.SessionAborted {
		return s, args, nil
	}
	open := []pulse.SessionStatus{pulse.SessionRunning, pulse.SessionPending, pulse.SessionBlocked, pulse.SessionPaused, pulse.SessionFailed}
	found, err := r.cfg.Reader.Sessions(ctx, pulse.SessionFilter{Address: u.e.Address, Statuses: open, Limit: 2})
	switch {
	case err != nil:
		return s, args, fmt.Errorf("list the chat's sessions: %w", err)
	case len(found) == 1:
		return found[0], args, nil
	case len(found) > 1:
		return s, args, pulse.Invalid("several sessions of this chat are under way", "say which one by its id; /list shows them")
	case here:
		return s, args, nil
	}
	return s, args, pulse.NotFound("this chat has no session", "name one by its id; /list shows them")
}

// minRef is the least that a person has to type of a session's id.
const minRef = 4

func looksLikeID(s string) bool {
	if pulse.ValidUUID(s) {
		return true
	}
	if len(s) != 8 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

func (r *Router) pause(ctx context.Context, u *update, args string) error {
	s, _, err := r.target(ctx, u, args, false)
	if err != nil {
		return err
	}
	_, err = r.cfg.Doer.Pause(ctx, r.actor(u, func(after pulse.Session, _ *pulse.Change) pulse.Message {
		if after.Status == pulse.SessionPaused {
			return named("⏸️ Paused:", after, "/resume lets it go on.")
		}
		return named("⏸️ Will pause after the current iteration:", after, "")
	}), s.ID)
	return err
}

func (r *Router) resume(ctx context.Context, u *update, args string) error {
	s, text, err := r.target(ctx, u, args, true)
	if err != nil {
		return err
	}
	if err := checkLength("answer", text); err != nil {
		return err
	}
	if s.Status == pulse.SessionComplete && visible(text) {
		return r.toSession(ctx, u, s, "", text) // a follow-up, for whoever cannot reply to a message
	}
	_, err = r.cfg.Doer.Resume(ctx, r.actor(u, func(after pulse.Session, _ *pulse.Change) pulse.Message {
		return named("▶️ Goes on:", after, "")
	}), s.ID, text)
	return err
}

func (r *Router) abort(ctx context.Context, u *update, args string) error {
	s, _, err := r.target(ctx, u, args, false)
	if err != nil {
		return err
	}
	_, err = r.cfg.Doer.Abort(ctx, r.actor(u, func(after pulse.Session, _ *pulse.Change) pulse.Message {
		return named("🛑 Aborted:", after, "")
	}), s.ID)
	return err
}

func (r *Router) answerCommand(ctx context.Context, u *update, args string) error {
	s, text, err := r.target(ctx, u, args, true)
	if err != nil {
		return err
	}
	if !visible(text) {
		return pulse.Invalid("the answer is empty", "write it behind the command: /answer TEXT")
	}
	if err := checkLength("answer", text); err != nil {
		return err
	}
	gate := pulse.GateID("")
	if replied, g, err := r.repliedTo(ctx, u); err == nil && replied.ID == s.ID {
		gate = g
	}
	return r.answer(ctx, u, s.ID, gate, "", text)
}

func (r *Router) project(ctx context.Context, u *update, args string) error {
	projects, err := r.projects(ctx)
	if err != nil {
		return err
	}
	if args == "" {
		p, err := r.projectOf(ctx, u)
		if errors.Is(err, pulse.ErrNone) {
			return r.reply(ctx, u, pulse.Text("This chat has no project yet. /project NAME binds it to one, /projects shows them."), "")
		}
		if err != nil {
			return err
		}
		return r.reply(ctx, u, pulse.Text("📌 This chat works on "+line(p.Name, 60)+"."), "")
	}
	for _, p := range projects {
		if strings.EqualFold(p.Name, args) {
			return r.bind(ctx, u, p)
		}
	}
	return pulse.NotFound("there is no project "+line(args, 60), "/projects shows those there are")
}

func (r *Router) pairedAlready(ctx context.Context, u *update, _ string) error {
	return r.reply(ctx, u, pulse.Text("Hello, "+line(u.who.Name, 60)+"! We are paired, and you are "+article(u.who.Role)+" here. Send me a goal, or /help."), "")
}
