package bot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pulseloop/pulse"
)

// maxPairing is how many codes one sender may try within an hour.
const maxPairing = 5

// handle says what an update means. It ends with one write, or with an error
// before any.
func (r *Router) handle(ctx context.Context, u *update) error {
	e := &u.e
	e.Text, e.Data = clean(e.Text), strings.TrimSpace(e.Data)
	r.release(ctx, u)
	switch {
	case e.Kind == KindMoved:
		return r.moved(ctx, u)
	case e.Kind == KindIgnored, e.OtherBot, e.Sender.UserID == "", e.Sender.Bot, e.Address.Zero():
		return r.finish(ctx, u, pulse.Change{})
	}
	who, err := r.cfg.People.Operator(ctx, e.Platform, e.Sender.UserID)
	if errors.Is(err, pulse.ErrNone) {
		return r.stranger(ctx, u)
	}
	if err != nil {
		return fmt.Errorf("look up the sender: %w", err)
	}
	u.who = who
	if e.Forwarded && e.Kind == KindMessage {
		return refuseForwarded(who)
	}
	switch e.Kind {
	case KindEdit:
		return r.edited(ctx, u)
	case KindPress:
		return r.press(ctx, u)
	case KindMessage:
	default:
		return r.finish(ctx, u, pulse.Change{})
	}
	if strings.HasPrefix(e.Text, "/") {
		return r.command(ctx, u)
	}
	if !u.who.Role.May() {
		return mayNot(u.who)
	}
	return r.words(ctx, u)
}

// release lets what waits for a chat that refused messages be tried again:
// whoever writes there, or lets the bot in, will get them.
func (r *Router) release(ctx context.Context, u *update) {
	e := u.e
	if e.Address.Zero() || e.Kind != KindMessage && e.Kind != KindEdit && e.Kind != KindPress && !e.Back {
		return
	}
	released, err := r.cfg.People.ReleaseChat(ctx, pulse.Address{Platform: e.Platform, Chat: e.Address.Chat})
	if err != nil {
		r.cfg.Log.Warn("let messages for a chat be tried again", "inbound", string(u.in.ID), "err", err)
	}
	if released {
		r.cfg.Log.Info("a chat that refused messages is there again", "platform", string(e.Platform), "chat", e.Address.Chat)
	}
}

// refuseForwarded refuses words that a person only passed on. Whoever wrote
// them may be anybody, and what they ask for would be done in the name of the
// person who forwarded them, perhaps only to show it.
func refuseForwarded(who pulse.Operator) error {
	if !who.Role.May() {
		return mayNot(who)
	}
	return pulse.Invalid("this is a forwarded message: its words are not yours, so I take them neither as a goal nor as an answer or a command",
		"say in your own words what is to be done; what you quote in them is fine")
}

func mayNot(who pulse.Operator) error {
	return &pulse.Error{Code: pulse.CodeForbidden, Message: "you may look, but not change anything (your role is " + string(who.Role) + ")",
		Hint: "an owner of this bot can make you a code with another role"}
}

// stranger answers whoever is not known. Nothing but a pairing code is ever
// looked at, and what else they say is not even stored beyond its update.
func (r *Router) stranger(ctx context.Context, u *update) error {
	if u.e.Kind == KindMessage && !u.e.Forwarded {
		if code, ok := pairingCode(u.e.Text); ok {
			return r.pair(ctx, u, code)
		}
	}
	// In a group people talk to each other; only what is meant for the bot is answered.
	meant := u.e.Private || u.e.Kind == KindPress || u.e.Kind == KindMessage && strings.HasPrefix(u.e.Text, "/")
	if u.e.Kind == KindPress {
		u.ack = "You are not paired with this bot."
	}
	if !meant || !r.firstThisHour(u) {
		return r.finish(ctx, u, pulse.Change{})
	}
	n := r.notice(u, with(pulse.Message{}, "Hello! I only work for people I know. To pair, run ", "pulse pair", " on the machine where I run and send me the code it prints: ", "/pair CODE"), "")
	n.Slot = fmt.Sprintf("unpaired:%s:%d", u.e.Sender.UserID, u.now.Unix()/3600) // holds across a restart
	return r.finish(ctx, u, pulse.Change{Notices: []pulse.Notice{n}})
}

// firstThisHour reports whether the sender has not been told within the hour.
func (r *Router) firstThisHour(u *update) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for who, at := range r.told {
		if u.now.Sub(at) >= time.Hour || len(r.told) > 10_000 {
			delete(r.told, who)
		}
	}
	who := string(u.e.Platform) + " " + u.e.Sender.UserID
	if _, ok := r.told[who]; ok {
		return false
	}
	r.told[who] = u.now
	return true
}

// pairingCode reads "/pair CODE" and the deep link's "/start CODE".
func pairingCode(text string) (string, bool) {
	word, rest := firstWord(text)
	word = strings.ToLower(word)
	if (word == "/pair" || word == "/start") && rest != "" {
		return rest, true
	}
	return "", false
}

// pair makes the sender an operator if the code is alive. A try is counted
// before the code is looked at, so that the limit holds for the right code too.
func (r *Router) pair(ctx context.Context, u *update, code string) error {
	n, err := r.countTry(ctx, u)
	if err != nil {
		return err
	}
	if n > maxPairing {
		return &pulse.Error{Code: pulse.CodeRateLimited, Message: "too many codes were tried", Hint: "wait an hour, then make a new code with: pulse pair"}
	}
	known, err := r.cfg.People.CountOperators(ctx, u.e.Platform)
	if err != nil {
		return fmt.Errorf("count operators: %w", err)
	}
	role := codeRole(code)
	if known == 0 && role != pulse.RoleViewer {
		role = pulse.RoleOwner
	}
	name := line(u.e.Sender.Name, 60)
	if name == "" {
		name = "user " + line(u.e.Sender.UserID, 40)
	}
	op := pulse.Operator{ID: pulse.OperatorID(pulse.NewUUID(u.now)), Platform: u.e.Platform, UserID: u.e.Sender.UserID,
		Name: name, Role: role, CreatedAt: u.now}
	welcome := "Paired. Hello, " + name + "! You are " + article(role) + " here."
	if role.May() {
		welcome += "\nSend me a goal in your own words, or /help."
	} else {
		welcome += "\n/list shows the sessions, /help the rest."
	}
	err = r.finish(ctx, u, pulse.Change{Operator: &op, UsedCode: HashCode(code),
		Notices: []pulse.Notice{r.notice(u, pulse.Text(welcome), "")},
		Audit: []pulse.AuditEntry{{At: u.now, Operator: op.ID, Name: name, Action: "pair", Subject: string(op.ID),
			Detail: string(op.Platform) + " " + op.UserID + " as " + string(role)}}})
	if errors.Is(err, pulse.ErrStale) {
		return pulse.Invalid("this code is not right, was used, or is too old",
			fmt.Sprintf("make a new one with pulse pair; it is good for %d minutes (%d tries left this hour)", int(CodeLife.Minutes()), maxPairing-n))
	}
	return err
}

func (r *Router) countTry(ctx context.Context, u *update) (int, error) {
	r.mu.Lock()
	n, ok := r.counted[u.in.ID]
	r.mu.Unlock()
	if ok {
		return n, nil
	}
	n, err := r.cfg.People.FailedPairing(ctx, u.e.Platform, u.e.Sender.UserID)
	if err != nil {
		return 0, fmt.Errorf("count a pairing try: %w", err)
	}
	r.mu.Lock()
	r.counted[u.in.ID] = n
	r.mu.Unlock()
	return n, nil
}

func article(role pulse.OperatorRole) string {
	switch role {
	case pulse.RoleOwner:
		return "the owner"
	case pulse.RoleViewer:
		return "a viewer"
	}
	return "an operator"
}

// edited never carries an edit out: what the first version started cannot be
// taken back by rewriting it, and nothing may run twice.
func (r *Router) edited(ctx context.Context, u *update) error {
	if !u.who.Role.May() || !(u.e.Private || strings.HasPrefix(u.e.Text, "/")) {
		return r.finish(ctx, u, pulse.Change{})
	}
	n := r.notice(u, pulse.Text("I keep to the text as it was first sent. Please send the new version as a message of its own."), "")
	n.Slot = "edited:" + u.e.MessageID // one note a message, however often it is edited
	return r.finish(ctx, u, pulse.Change{Notices: []pulse.Notice{n}})
}

// moved follows a chat to its new address: its binding, and every session
// whose messages go there. Each write may be repeated.
func (r *Router) moved(ctx context.Context, u *update) error {
	from, to := u.e.Address, u.e.To
	if from.Zero() || to.Zero() || from.Platform != to.Platform || from == to {
		return r.finish(ctx, u, pulse.Change{})
	}
	sessions, err := r.cfg.Reader.Sessions(ctx, pulse.SessionFilter{Address: from, Limit: 1000})
	if err != nil {
		return fmt.Errorf("list the moved chat's sessions: %w", err)
	}
	for _, s := range sessions {
		if s.ChatID != from.Chat || from.Platform != pulse.PlatformTelegram {
			continue
		}
		g := pulse.Guard{SessionID: s.ID, Version: s.Version}
		s.ChatID = to.Chat
		if err := r.cfg.Store.Apply(ctx, g, pulse.Change{Session: &s}); err != nil {
			return fmt.Errorf("move session %s: %w", s.ID, err)
		}
	}
	c := pulse.Change{}
	ch, err := r.cfg.People.Channel(ctx, from)
	switch {
	case err == nil:
		ch.Address = to
		c.Channel = &ch
	case !errors.Is(err, pulse.ErrNone):
		return fmt.Errorf("read the moved chat's binding: %w", err)
	}
	return r.finish(ctx, u, c)
}
