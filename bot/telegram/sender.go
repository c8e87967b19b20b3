package telegram

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	tg "github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"pulseloop/notify"
	"pulseloop/pulse"
)

// SenderConfig of a Sender; zero values are sensible.
type SenderConfig struct {
	Limits Limits
	// MaxMessages is how many messages one notice may become before it is cut; default 5.
	MaxMessages int
	Now         func() time.Time
	Log         *slog.Logger
}

// Sender delivers notices. It implements notify.Sender.
//
// A long notice becomes several messages, which the platform wants a second apart: Send delivers one and answers Pending while
// there are more; the next Send goes on after those it is told of. It remembers none itself, so that whoever calls can keep them
// where no crash forgets them. A live (editable) message stays one message and is cut instead.
type Sender struct {
	c     *Client
	cfg   SenderConfig
	log   *slog.Logger
	limit *Limiter
	// astray are notices whose topic was found gone. A restart forgets them, which costs the line that says so.
	astray noticeSet
}

// NewSender makes a Sender.
func NewSender(c *Client, cfg SenderConfig) *Sender {
	if cfg.MaxMessages <= 0 {
		cfg.MaxMessages = 5
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = c.log
	}
	return &Sender{c: c, cfg: cfg, log: cfg.Log, limit: NewLimiter(cfg.Limits)}
}

// Platform implements notify.Sender.
func (s *Sender) Platform() pulse.Platform { return pulse.PlatformTelegram }

// Ready implements notify.Sender.
func (s *Sender) Ready(a pulse.Address, edit bool) time.Time {
	return s.limit.Ready(a.Chat, edit, s.cfg.Now())
}

// Send implements notify.Sender.
func (s *Sender) Send(ctx context.Context, n pulse.Notice, sent []string) notify.Delivery {
	if _, err := strconv.ParseInt(n.Address.Chat, 10, 64); err != nil {
		return notify.Delivery{Outcome: notify.Permanent, Err: fmt.Errorf("send to %q: not a Telegram chat id", clip(n.Address.Chat, 40))}
	}
	chunks := s.render(n, n.Message)
	if len(chunks) == 0 {
		return notify.Delivery{Outcome: notify.Permanent, Err: errors.New("send to Telegram: the message has no visible text")}
	}
	markup, dropped := keyboard(n.Message.Buttons)
	if dropped > 0 {
		s.log.Error("buttons were left out: they need a label and 1 to 64 bytes of data", "notice", n.ID, "count", dropped)
	}
	if n.Editable && n.ExternalID != "" {
		return s.edit(ctx, n, chunks[0], markup)
	}
	return s.post(ctx, n, begin(n, sent), chunks, markup)
}

// render makes one message of a live notice: its parts could not be told apart when it is edited.
func (s *Sender) render(n pulse.Notice, m pulse.Message) []chunk {
	limit := s.cfg.MaxMessages
	if n.Editable {
		limit = 1
	}
	return render(m, limit, moreLine(n.SessionID))
}

func (s *Sender) edit(ctx context.Context, n pulse.Notice, body chunk, markup models.ReplyMarkup) notify.Delivery {
	id, err := strconv.Atoi(n.ExternalID)
	if err != nil {
		return notify.Delivery{Outcome: notify.LostEdit, Err: fmt.Errorf("edit message %q: not a Telegram message id", clip(n.ExternalID, 40))}
	}
	out := notify.Delivery{ExternalID: n.ExternalID, Outcome: notify.Sent}
	if wait := s.limit.Take(n.Address.Chat, true, s.cfg.Now()); wait > 0 {
		out.Outcome, out.RetryAfter = notify.Pending, wait
		return out
	}
	f := s.editCall(ctx, n.Address, id, body, markup)
	if f != nil && f.entities {
		f = s.editCall(ctx, n.Address, id, chunk{text: body.text}, markup)
	}
	if f == nil {
		return out
	}
	out.Outcome, out.RetryAfter, out.Err = f.outcome, f.wait, f.err
	switch {
	case f.outcome == notify.Sent:
		out.Err = nil
	case f.moved != "":
		// The message stayed behind in the old group, where nothing can be changed any more.
		out.Outcome, out.Moved = notify.LostEdit, pulse.Address{Platform: pulse.PlatformTelegram, Chat: f.moved}
	case f.noTopic:
		out.Outcome = notify.LostEdit
	case f.outcome == notify.Ambiguous:
		// Editing twice is editing once.
		out.Outcome = notify.Transient
	}
	s.obey(n.Address.Chat, true, f)
	return out
}

func (s *Sender) editCall(ctx context.Context, a pulse.Address, id int, body chunk, markup models.ReplyMarkup) *failure {
	ctx, cancel := context.WithTimeout(ctx, s.c.timeout)
	defer cancel()
	ctx, at := withAttempt(ctx)
	defer func() { s.limit.Done(a.Chat, s.cfg.Now()) }()
	_, err := s.c.api.EditMessageText(ctx, &tg.EditMessageTextParams{ChatID: a.Chat, MessageID: id, Text: body.text,
		Entities: body.entities, LinkPreviewOptions: noPreview(), ReplyMarkup: markup})
	if err == nil {
		return nil
	}
	f := s.c.classify(err, at)
	return &f
}

// post sends the next part; the buttons go under the last one.
func (s *Sender) post(ctx context.Context, n pulse.Notice, p progress, chunks []chunk, markup models.ReplyMarkup) notify.Delivery {
	p.of = len(chunks)
	p.noted = s.astray.has(n.ID)
	for len(p.ids) < len(chunks) {
		if wait := s.limit.Take(p.to.Chat, false, s.cfg.Now()); wait > 0 {
			return p.delivery(n, failure{outcome: notify.Pending, wait: wait})
		}
		var m models.ReplyMarkup
		if len(p.ids) == len(chunks)-1 {
			m = markup
		}
		body := p.next(chunks)
		id, f := s.sendCall(ctx, n, p, body, m)
		if f != nil && f.entities {
			id, f = s.sendCall(ctx, n, p, chunk{text: body.text}, m)
		}
		switch {
		case f == nil:
			if p.ids = append(p.ids, strconv.Itoa(id)); len(p.ids) < len(chunks) {
				now := s.cfg.Now()
				return p.delivery(n, failure{outcome: notify.Pending, wait: s.limit.Ready(p.to.Chat, false, now).Sub(now)})
			}
		case !elsewhere(&p, f):
			s.obey(p.to.Chat, false, f)
			return p.delivery(n, *f)
		case p.noted:
			s.astray.add(n.ID)
		}
	}
	s.astray.drop(n.ID)
	return p.delivery(n, failure{outcome: notify.Sent})
}

// elsewhere redirects what has a new address: a group that became a supergroup, or the chat of a topic that is gone. Each happens
// once, so that two chats pointing at each other cannot keep us busy.
func elsewhere(p *progress, f *failure) bool {
	switch {
	case f.moved != "" && !p.moved:
		p.moved, p.to = true, pulse.Address{Platform: pulse.PlatformTelegram, Chat: f.moved}
		return true
	case f.noTopic && p.to.Thread != "":
		p.noted, p.to.Thread = len(p.ids) == 0, ""
		return true
	}
	return false
}

const noTopic = "The topic this belongs to is closed or gone.\n\n"

// withNote says at the top of a message that it is not in its topic, if there is room: where the parts of a long one begin and
// end must not depend on it, since the others may be sent by a process that does not know.
func withNote(k chunk) chunk {
	shift := units([]rune(noTopic))
	if units([]rune(k.text))+shift > maxUnits {
		return k
	}
	out := chunk{text: noTopic + k.text}
	out.entities = append(out.entities, models.MessageEntity{Type: models.MessageEntityTypeItalic, Length: shift - 2})
	for _, e := range k.entities {
		e.Offset += shift
		out.entities = append(out.entities, e)
	}
	return out
}

func (s *Sender) sendCall(ctx context.Context, n pulse.Notice, p progress, body chunk, markup models.ReplyMarkup) (int, *failure) {
	ask := &tg.SendMessageParams{ChatID: p.to.Chat, Text: body.text, Entities: body.entities, LinkPreviewOptions: noPreview(),
		DisableNotification: n.Silent, ReplyMarkup: markup}
	if p.to.Thread != "" {
		thread, err := strconv.Atoi(p.to.Thread)
		if err != nil {
			return 0, &failure{outcome: notify.Permanent, err: fmt.Errorf("send to topic %q: not a number", clip(p.to.Thread, 40))}
		}
		ask.MessageThreadID = thread
	}
	if to, err := strconv.Atoi(n.ReplyTo); err == nil && to > 0 && len(p.ids) == 0 && !p.moved {
		ask.ReplyParameters = &models.ReplyParameters{MessageID: to, AllowSendingWithoutReply: true}
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.timeout)
	defer cancel()
	ctx, at := withAttempt(ctx)
	defer func() { s.limit.Done(p.to.Chat, s.cfg.Now()) }()
	m, err := s.c.api.SendMessage(ctx, ask)
	if err != nil {
		f := s.c.classify(err, at)
		return 0, &f
	}
	return m.ID, nil
}

func noPreview() *models.LinkPreviewOptions { return &models.LinkPreviewOptions{IsDisabled: tg.True()} }

func (s *Sender) obey(chat string, edit bool, f *failure) {
	if f.outcome == notify.RetryAt {
		s.limit.Block(chat, edit, s.cfg.Now().Add(f.wait))
	}
}
