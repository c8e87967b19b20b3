package telegramtest

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Entity is a formatted range of a text, in UTF-16 units.
type Entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	Language string `json:"language,omitempty"`
}

// Button is one button of an inline keyboard.
type Button struct {
	Text         string `json:"text"`
	CallbackData string `json:"callback_data,omitempty"`
	URL          string `json:"url,omitempty"`
}

// Message is a message as it is visible now.
type Message struct {
	ID        int
	ChatID    int64
	ThreadID  int
	FromID    int64 // 0 for a channel post
	FromBot   bool
	Text      string // or the caption of a document
	Entities  []Entity
	Buttons   [][]Button
	ReplyTo   int
	Document  string // file name
	FileID    string
	Service   string // "forum_topic_created" and the like; empty for what people write
	Silent    bool
	NoPreview bool
	Pinned    bool
	Reactions []string // of the bot
	Edits     []string // earlier texts, oldest first
	Date      time.Time
	EditDate  time.Time
}

// Entity returns the text an entity covers.
func (m Message) Entity(e Entity) string {
	units := utf16.Encode([]rune(m.Text))
	if e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(units) {
		return ""
	}
	return string(utf16.Decode(units[e.Offset : e.Offset+e.Length]))
}

// Button finds a button by its label or its data.
func (m Message) Button(name string) (Button, bool) {
	for _, row := range m.Buttons {
		for _, b := range row {
			if b.Text == name || b.CallbackData == name {
				return b, true
			}
		}
	}
	return Button{}, false
}

// message is the stored form; extra are wire fields that are not modelled.
type message struct {
	Message
	sender  *User
	as      *Chat // sender_chat
	extra   map[string]any
	deleted bool
}

func (m *message) view() Message {
	v := m.Message
	v.Entities = slices.Clone(m.Entities)
	v.Edits = slices.Clone(m.Edits)
	v.Reactions = slices.Clone(m.Reactions)
	v.Buttons = nil
	for _, row := range m.Buttons {
		v.Buttons = append(v.Buttons, slices.Clone(row))
	}
	return v
}

// wire is the Message object; deep includes what it replies to.
func (c *Chat) wire(m *message, deep bool) map[string]any {
	out := map[string]any{"message_id": m.ID, "date": m.Date.Unix(), "chat": c.wireChat()}
	if m.sender != nil {
		out["from"] = m.sender.wire()
	}
	if m.as != nil {
		out["sender_chat"] = m.as.wireChat()
	}
	if m.ThreadID != 0 {
		out["message_thread_id"] = m.ThreadID
		out["is_topic_message"] = true
	}
	textKey, entityKey := "text", "entities"
	if m.FileID != "" {
		textKey, entityKey = "caption", "caption_entities"
		f := c.s.files[m.FileID]
		out["document"] = map[string]any{"file_id": m.FileID, "file_unique_id": "u" + m.FileID, "file_name": f.name,
			"file_size": len(f.data), "mime_type": "application/octet-stream"}
	}
	if m.Text != "" {
		out[textKey] = m.Text
	}
	if len(m.Entities) > 0 {
		out[entityKey] = m.Entities
	}
	if len(m.Buttons) > 0 {
		out["reply_markup"] = map[string]any{"inline_keyboard": m.Buttons}
	}
	if !m.EditDate.IsZero() {
		out["edit_date"] = m.EditDate.Unix()
	}
	to := m.ReplyTo
	if to == 0 && m.ThreadID != m.ID {
		to = m.ThreadID // what is said in a topic replies to its opening message, unless it replies to something else
	}
	if deep && to != 0 {
		if replied := c.find(to); replied != nil {
			out["reply_to_message"] = c.wire(replied, false)
		}
	}
	for k, v := range m.extra {
		out[k] = v
	}
	return out
}

// checkText applies the platform's rules to a text with entities: length, bounds, whole symbols, surrounding space removed.
func checkText(text string, entities []Entity, limit int) (string, []Entity, error) {
	if !utf8.ValidString(text) {
		return "", nil, fmt.Errorf("strings must be encoded in UTF-8")
	}
	units := utf16.Encode([]rune(text))
	for _, e := range entities {
		if e.Offset < 0 || e.Length <= 0 {
			return "", nil, fmt.Errorf("entity %s has invalid bounds %d+%d", e.Type, e.Offset, e.Length)
		}
		if e.Offset+e.Length > len(units) {
			return "", nil, fmt.Errorf("entity beginning at UTF-16 offset %d ends after the end of the text at UTF-16 offset %d",
				e.Offset, len(units))
		}
		if splitsPair(units, e.Offset) || splitsPair(units, e.Offset+e.Length) {
			return "", nil, fmt.Errorf("entity begins in a middle of a UTF-16 symbol at byte offset %d", e.Offset)
		}
		if !slices.Contains(entityTypes, e.Type) {
			return "", nil, fmt.Errorf("can't parse entities: unsupported type %q", e.Type)
		}
	}
	left := len(text) - len(strings.TrimLeft(text, " \n\r\t"))
	kept := strings.TrimRight(text[left:], " \n\r\t")
	size := len(utf16.Encode([]rune(kept)))
	if size > limit {
		return "", nil, fmt.Errorf("message is too long")
	}
	var out []Entity
	for _, e := range entities {
		start, end := max(e.Offset-left, 0), min(e.Offset+e.Length-left, size)
		if end > start {
			e.Offset, e.Length = start, end-start
			out = append(out, e)
		}
	}
	return kept, out, nil
}

func splitsPair(units []uint16, at int) bool {
	return at > 0 && at < len(units) && utf16.IsSurrogate(rune(units[at])) && units[at] >= 0xDC00
}

var entityTypes = []string{"mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bold", "italic",
	"underline", "strikethrough", "spoiler", "blockquote", "expandable_blockquote", "code", "pre", "text_link",
	"text_mention", "custom_emoji", "date_time"}

// commandEntities marks commands as the platform does for what people type.
func commandEntities(text string) []Entity {
	if !strings.HasPrefix(text, "/") {
		return nil
	}
	word, _, _ := strings.Cut(text, " ")
	word, _, _ = strings.Cut(word, "\n")
	return []Entity{{Type: "bot_command", Offset: 0, Length: len(utf16.Encode([]rune(word)))}}
}
