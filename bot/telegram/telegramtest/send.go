package telegramtest

import (
	"reflect"
	"unicode/utf16"
)

const (
	maxText    = 4096
	maxCaption = 1024
	maxData    = 64
)

// content is what a sent or edited message consists of.
type content struct {
	text     string
	entities []Entity
	buttons  [][]Button
	noView   bool
}

// readContent applies the platform's rules; a refusal that only a faulty client meets is a violation as well.
func (s *Server) readContent(method, textKey, entityKey string, limit int, p params) (content, *answer) {
	var ents []Entity
	if err := p.object(entityKey, &ents); err != nil {
		return content{}, ptr(bad("can't parse entities: %v", err))
	}
	text, ents, err := checkText(p.str(textKey), ents, limit)
	if err != nil {
		s.violate("%s: %v", method, err)
		return content{}, ptr(bad("%v", err))
	}
	if text == "" && textKey == "text" {
		s.violate("%s: text is empty", method)
		return content{}, ptr(bad("message text is empty"))
	}
	var preview struct {
		Disabled bool `json:"is_disabled"`
	}
	if err := p.object("link_preview_options", &preview); err != nil {
		return content{}, ptr(bad("can't parse link preview options: %v", err))
	}
	buttons, refused := s.readMarkup(method, p)
	return content{text: text, entities: ents, buttons: buttons, noView: preview.Disabled}, refused
}

func ptr(a answer) *answer { return &a }

func (s *Server) readMarkup(method string, p params) ([][]Button, *answer) {
	var markup struct {
		Keyboard [][]Button `json:"inline_keyboard"`
	}
	if err := p.object("reply_markup", &markup); err != nil {
		return nil, ptr(bad("can't parse reply keyboard markup JSON object"))
	}
	for _, row := range markup.Keyboard {
		for _, b := range row {
			wrong := ""
			switch {
			case b.Text == "":
				wrong = "can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard"
			case len(b.CallbackData) > maxData:
				wrong = "BUTTON_DATA_INVALID"
			case b.CallbackData == "" && b.URL == "":
				wrong = "can't parse inline keyboard button: BUTTON_TYPE_INVALID"
			}
			if wrong != "" {
				s.violate("%s: button %q: %s", method, b.Text, wrong)
				return nil, ptr(bad("%s", wrong))
			}
		}
	}
	return markup.Keyboard, nil
}

// place checks the topic and the message replied to.
func (s *Server) place(c *Chat, p params) (thread, reply int, refused *answer) {
	thread = p.number("message_thread_id")
	if thread != 0 {
		t := c.topics[thread]
		if t == nil || t.deleted {
			return 0, 0, ptr(bad("message thread not found"))
		}
		if t.closed && c.Kind != KindPrivate {
			return 0, 0, ptr(bad("TOPIC_CLOSED"))
		}
	}
	var to struct {
		MessageID int  `json:"message_id"`
		Without   bool `json:"allow_sending_without_reply"`
	}
	if err := p.object("reply_parameters", &to); err != nil {
		return 0, 0, ptr(bad("can't parse reply parameters JSON object"))
	}
	if to.MessageID != 0 && c.find(to.MessageID) == nil {
		if !to.Without {
			return 0, 0, ptr(bad("message to be replied not found"))
		}
		to.MessageID = 0
	}
	return thread, to.MessageID, nil
}

func (s *Server) sendMessage(c *Chat, p params) answer {
	thread, reply, refused := s.place(c, p)
	if refused != nil {
		return *refused
	}
	body, refused := s.readContent("sendMessage", "text", "entities", maxText, p)
	if refused != nil {
		return *refused
	}
	m := c.add(&message{Message: Message{FromID: s.bot.ID, FromBot: true, Text: body.text, Entities: body.entities,
		Buttons: body.buttons, ReplyTo: reply, ThreadID: thread, Silent: p.flag("disable_notification"),
		NoPreview: body.noView}, sender: s.bot})
	return done(c.wire(m, true))
}

func (s *Server) sendDocument(c *Chat, p params) answer {
	thread, reply, refused := s.place(c, p)
	if refused != nil {
		return *refused
	}
	body, refused := s.readContent("sendDocument", "caption", "caption_entities", maxCaption, p)
	if refused != nil {
		return *refused
	}
	id := p.str("document")
	if up, ok := p.files["document"]; ok {
		if len(up.data) == 0 {
			return bad("file must be non-empty")
		}
		if len(up.data) > 50<<20 {
			return refuse(413, "Request Entity Too Large")
		}
		id = s.addFile(up.name, up.data)
	}
	f, ok := s.files[id]
	if !ok {
		return bad("there is no document in the request")
	}
	m := c.add(&message{Message: Message{FromID: s.bot.ID, FromBot: true, Text: body.text, Entities: body.entities,
		Buttons: body.buttons, ReplyTo: reply, ThreadID: thread, Document: f.name, FileID: id,
		Silent: p.flag("disable_notification")}, sender: s.bot})
	return done(c.wire(m, true))
}

func (s *Server) sendDraft(c *Chat, p params) answer {
	if c.Kind != KindPrivate {
		return bad("TEXTDRAFT_PEER_INVALID")
	}
	if p.number("draft_id") == 0 {
		return bad("draft_id must be non-zero")
	}
	if len(utf16.Encode([]rune(p.str("text")))) > maxText {
		return bad("message is too long")
	}
	c.drafts = append(c.drafts, p.str("text"))
	return done(true)
}

// editable finds a message the bot may change.
func (s *Server) editable(c *Chat, p params) (*message, *answer) {
	m := c.find(p.number("message_id"))
	if m == nil {
		return nil, ptr(bad("message to edit not found"))
	}
	if m.sender != s.bot || m.Service != "" {
		return nil, ptr(bad("message can't be edited"))
	}
	return m, nil
}

const notModified = "message is not modified: specified new message content and reply markup are exactly the same " +
	"as a current content and reply markup of the message"

func (s *Server) editText(c *Chat, p params) answer {
	m, refused := s.editable(c, p)
	if refused != nil {
		return *refused
	}
	if m.FileID != "" {
		return bad("there is no text in the message to edit")
	}
	body, refused := s.readContent("editMessageText", "text", "entities", maxText, p)
	if refused != nil {
		return *refused
	}
	if body.text == m.Text && same(body.entities, m.Entities) && same(body.buttons, m.Buttons) {
		return bad(notModified)
	}
	m.Edits = append(m.Edits, m.Text)
	m.Text, m.Entities, m.Buttons, m.NoPreview, m.EditDate = body.text, body.entities, body.buttons, body.noView, s.opt.Now()
	return done(c.wire(m, true))
}

func (s *Server) editMarkup(c *Chat, p params) answer {
	m, refused := s.editable(c, p)
	if refused != nil {
		return *refused
	}
	buttons, refused := s.readMarkup("editMessageReplyMarkup", p)
	if refused != nil {
		return *refused
	}
	if same(buttons, m.Buttons) {
		return bad(notModified)
	}
	m.Buttons, m.EditDate = buttons, s.opt.Now()
	return done(c.wire(m, true))
}

// same takes nil and empty for equal.
func same[T any](a, b []T) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}
