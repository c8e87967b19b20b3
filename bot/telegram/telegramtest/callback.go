package telegramtest

import (
	"context"
	"fmt"
	"strconv"
)

// Callback is a press of a button.
type Callback struct {
	s        *Server
	ID       string
	answered bool
	text     string
	alert    bool
}

// Answered says whether the bot answered the press, and with what.
func (cb *Callback) Answered() (text string, alert, ok bool) {
	cb.s.mu.Lock()
	defer cb.s.mu.Unlock()
	return cb.text, cb.alert, cb.answered
}

// Await waits for the answer.
func (cb *Callback) Await(ctx context.Context) (text string, err error) {
	err = cb.s.Await(ctx, func() bool { _, _, ok := cb.Answered(); return ok })
	text, _, _ = cb.Answered()
	return text, err
}

// Press is a person pressing a button of a message, named by its label or its data. Nobody can press what is not there.
func (c *Chat) Press(u *User, id int, button string) (*Callback, error) {
	m, ok := c.Message(id)
	if !ok {
		return nil, fmt.Errorf("press %q: message %d is not there", button, id)
	}
	b, ok := m.Button(button)
	if !ok {
		return nil, fmt.Errorf("press %q: message %d has no such button (%v)", button, id, m.Buttons)
	}
	return c.PressData(u, id, b.CallbackData), nil
}

// PressData delivers a press with any data, as a modified client could send it. A message that is gone arrives inaccessible.
func (c *Chat) PressData(u *User, id int, data string) *Callback {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.nextToken++
	cb := &Callback{s: c.s, ID: strconv.Itoa(480000000000 + c.s.nextToken)}
	c.s.callbacks[cb.ID] = cb
	msg := map[string]any{"chat": c.wireChat(), "message_id": id, "date": 0}
	if m := c.find(id); m != nil {
		msg = c.wire(m, true)
	}
	c.s.push("callback_query", map[string]any{"id": cb.ID, "from": u.wire(), "message": msg,
		"chat_instance": strconv.FormatInt(c.ID, 10), "data": data})
	return cb
}

func (s *Server) answerCallbackQuery(p params) answer {
	cb := s.callbacks[p.str("callback_query_id")]
	if cb == nil || cb.answered {
		return bad("query is too old and response timeout expired or query ID is invalid")
	}
	if len([]rune(p.str("text"))) > 200 {
		return bad("MESSAGE_TOO_LONG")
	}
	cb.answered, cb.text, cb.alert = true, p.str("text"), p.flag("show_alert")
	return done(true)
}
