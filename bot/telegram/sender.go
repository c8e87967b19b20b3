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
// A long notice becomes several messages, which the platform wants a second apart: Send delivers what it may and answers RetryAt
// for the rest; the next Send of the same revision goes on where the last one ended. That place is kept in memory: a crash in
// between sends the first parts again. A live (editable) message stays one message and is cut instead.
type Sender struct {
	c     *Client
	cfg   SenderConfig
	log   *slog.Logger
	limit *Limiter
	parts *parts
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
	return &Sender{c: c, cfg: cfg, log: cfg.Log, limit: NewLimiter(cfg.Limits), parts: newParts()}
}

// Platform implements notify.Sender.
func (s *Sender) Platform() pulse.Platform { return pulse.PlatformTelegram }

// Ready implements notify.Sender.
func (s *Sender) Ready(a pulse.Address, edit bool) time.Time {
	return s.limit.Ready(a.Chat, edit, s.cfg.Now())
}

// Send implements notify.Sender.
func (s *Sender) Send(ctx context.Context, n pulse.Notice) notify.Delivery {
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
	return s.post(ctx, n, chunks, markup)
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
		out.Outcome, out.RetryAfter = notify.RetryAt, wait
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
	s.obey(n.Address.Chat, f)
	return out
}

func (s *Sender) editCall(ctx context.Context, a pulse.Address, id int, body chunk, markup models.ReplyMarkup) *failure {
	ctx, cancel := context.WithTimeout(ctx, s.c.timeout)
	defer cancel()
	ctx, at := withAttempt(ctx)
	_, err := s.c.api.EditMessageText(ctx, &tg.EditMessageTextParams{ChatID: a.Chat, MessageID: id, Text: body.text,
		Entities: body.entities, LinkPreviewOptions: noPreview(), ReplyMarkup: markup})
	if err == nil {
		return nil
	}
	f := s.c.classify(err, at)
	return &f
}

// post sends the chunks not sent yet; the buttons go under the last one.
func (s *Sender) post(ctx context.Context, n pulse.Notice, chunks []chunk, markup models.ReplyMarkup) notify.Delivery {
	p := s.parts.get(n)
	if p.noted {
		chunks = s.render(n, withNote(n.Message))
	}
	for p.next < len(chunks) {
		var m models.ReplyMarkup
		if p.next == len(chunks)-1 {
			m = markup
		}
		if wait := s.limit.Take(p.to.Chat, false, s.cfg.Now()); wait > 0 {
			s.parts.keep(n, p)
			return p.delivery(n, notify.RetryAt, wait, nil)
		}
		id, f := s.sendCall(ctx, n, p, chunks[p.next], m)
		if f != nil && f.entities {
			id, f = s.sendCall(ctx, n, p, chunk{text: chunks[p.next].text}, m)
		}
		if f == nil {
			p.sent(id)
			continue
		}
		if s.elsewhere(&p, f) {
			if p.noted {
				chunks = s.render(n, withNote(n.Message))
			}
			continue
		}
		s.obey(p.to.Chat, f)
		s.parts.keep(n, p)
		if f.outcome == notify.Permanent {
			s.parts.drop(n)
		}
		return p.delivery(n, f.outcome, f.wait, f.err)
	}
	s.parts.drop(n)
	return p.delivery(n, notify.Sent, 0, nil)
}

// elsewhere redirects what has a new address: a group that became a supergroup, or the chat of a topic that is gone. Each happens
// once, so that two chats pointing at each other cannot keep us busy.
func (s *Sender) elsewhere(p *part, f *failure) bool {
	switch {
	case f.moved != "" && !p.moved:
		p.moved, p.to = true, pulse.Address{Platform: pulse.PlatformTelegram, Chat: f.moved}
		return true
	case f.noTopic && p.to.Thread != "":
		p.noted, p.to.Thread = p.next == 0, ""
		return true
	}
	return false
}

func withNote(m pulse.Message) pulse.Message {
	note := pulse.Span{Text: "The topic this belongs to is closed or gone.\n\n", Style: pulse.StyleItalic}
	return pulse.Message{Spans: append([]pulse.Span{note}, m.Spans...), Buttons: m.Buttons}
}

func (s *Sender) sendCall(ctx context.Context, n pulse.Notice, p part, body chunk, markup models.ReplyMarkup) (int, *failure) {
	ask := &tg.SendMessageParams{ChatID: p.to.Chat, Text: body.text, Entities: body.entities, LinkPreviewOptions: noPreview(),
		DisableNotification: n.Silent, ReplyMarkup: markup}
	if p.to.Thread != "" {
		thread, err := strconv.Atoi(p.to.Thread)
		if err != nil {
			return 0, &failure{outcome: notify.Permanent, err: fmt.Errorf("send to topic %q: not a number", clip(p.to.Thread, 40))}
		}
		ask.MessageThreadID = thread
	}
	if to, err := strconv.Atoi(n.ReplyTo); err == nil && to > 0 && p.next == 0 && !p.moved {
		ask.ReplyParameters = &models.ReplyParameters{MessageID: to, AllowSendingWithoutReply: true}
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.timeout)
	defer cancel()
	ctx, at := withAttempt(ctx)
	m, err := s.c.api.SendMessage(ctx, ask)
	if err != nil {
		f := s.c.classify(err, at)
		return 0, &f
	}
	return m.ID, nil
}

func noPreview() *models.LinkPreviewOptions { return &models.LinkPreviewOptions{IsDisabled: tg.True()} }

func (s *Sender) obey(chat string, f *failure) {
	if f.outcome == notify.RetryAt {
		s.limit.Block(chat, s.cfg.Now().Add(f.wait))
	}
}
