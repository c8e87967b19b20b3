package pulse

import (
	"strings"
	"time"
)

// Platform names a way to reach people.
type Platform string

const (
	PlatformTelegram Platform = "telegram"
	PlatformDiscord  Platform = "discord"
	PlatformSMS      Platform = "sms"
	PlatformConsole  Platform = "console"
)

// Address is a place a message can be sent to.
type Address struct {
	Platform Platform `json:"platform"`
	Chat     string   `json:"chat"`             // chat id, channel id, phone number
	Thread   string   `json:"thread,omitempty"` // forum topic
}

// Zero reports whether the address names nothing.
func (a Address) Zero() bool { return a == Address{} }

// Style is how a span of text looks.
type Style string

const (
	StylePlain  Style = ""
	StyleBold   Style = "bold"
	StyleItalic Style = "italic"
	StyleCode   Style = "code"
	StylePre    Style = "pre" // a block; Lang may name its language
	StyleQuote  Style = "quote"
)

// Span is a run of text in one style. Text is never markup: each platform
// renders it in its own way, so nothing has to be escaped here.
type Span struct {
	Text  string `json:"text"`
	Style Style  `json:"style,omitempty"`
	Lang  string `json:"lang,omitempty"`
}

// Button is a choice under a message. Data comes back as it was when the
// button is pressed; at most 64 bytes.
type Button struct {
	Label string `json:"label"`
	Data  string `json:"data"`
}

// Message is a neutral message: spans, then rows of buttons.
type Message struct {
	Spans   []Span     `json:"spans"`
	Buttons [][]Button `json:"buttons,omitempty"`
}

// Text returns a message of plain text.
func Text(s string) Message { return Message{Spans: []Span{{Text: s}}} }

// Plain is the message's text without any style.
func (m Message) Plain() string {
	var b strings.Builder
	for _, s := range m.Spans {
		b.WriteString(s.Text)
	}
	return b.String()
}

// NoticeKind says how much a message matters.
type NoticeKind string

const (
	NoticeFinal    NoticeKind = "final"    // complete, failed, aborted
	NoticeGate     NoticeKind = "gate"     // a person has to decide
	NoticeReply    NoticeKind = "reply"    // the answer to a command
	NoticeInfo     NoticeKind = "info"     // an iteration ended
	NoticeProgress NoticeKind = "progress" // what the agent is doing right now
)

// Priority orders sending: a greater one goes first. What is said once goes
// out in the order it was said, because a question that overtakes the
// report before it confuses; only live progress steps back for all of it.
func (k NoticeKind) Priority() int {
	if k == NoticeProgress {
		return 0
	}
	return 10
}

// Notice is a row of the outbox: one message to one address.
//
// Slot is unique per address. A notice without Editable is sent once: a
// second one with its slot changes nothing. An Editable one is a live
// message: a later notice with its slot replaces the text (an unsent text is
// superseded, a sent one edited), and Revision grows by one.
type Notice struct {
	ID         NoticeID
	Address    Address
	Slot       string
	Editable   bool
	Kind       NoticeKind
	SessionID  SessionID
	GateID     GateID
	ReplyTo    string // external id of the message this answers
	Silent     bool   // without a sound
	Message    Message
	Revision   int
	Status     NoticeStatus
	ExternalID string // id of the (first) message at the platform
	Attempts   int
	NextAt     time.Time
	LastError  string
	CreatedAt  time.Time
	SentAt     time.Time
}

// Addresses lists where a session's notifications go.
func (s Session) Addresses() []Address {
	var out []Address
	if s.ChatID != "" {
		out = append(out, Address{Platform: PlatformTelegram, Chat: s.ChatID, Thread: s.ChatThreadID})
	}
	if s.PhoneNumber != "" {
		out = append(out, Address{Platform: PlatformSMS, Chat: s.PhoneNumber})
	}
	if s.DiscordThreadID != "" {
		out = append(out, Address{Platform: PlatformDiscord, Chat: s.DiscordThreadID})
	}
	if s.ConsoleID != "" {
		out = append(out, Address{Platform: PlatformConsole, Chat: s.ConsoleID})
	}
	return out
}
