package telegram

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// Decoder turns raw updates into events. It implements bot.Decoder.
type Decoder struct {
	username func() string
}

// NewDecoder makes a Decoder; username tells the bot's own name without the @, "" while it is unknown.
func NewDecoder(username func() string) *Decoder { return &Decoder{username: username} }

// Decoder returns one for this bot.
func (c *Client) Decoder() *Decoder { return NewDecoder(c.Username) }

// maxButtonData is the platform's bound; a longer one was not made by us.
const maxButtonData = 64

// Decode implements bot.Decoder.
func (d *Decoder) Decode(in pulse.Inbound) bot.Event {
	var u wireUpdate
	if err := json.Unmarshal(in.Payload, &u); err != nil {
		return bot.Event{Kind: bot.KindIgnored, Platform: pulse.PlatformTelegram, At: in.ReceivedAt, Note: "update that cannot be read"}
	}
	var e bot.Event
	switch {
	case u.Message != nil:
		e = d.message(u.Message)
	case u.EditedMessage != nil:
		e = d.message(u.EditedMessage)
		if e.Kind == bot.KindMessage {
			e.Kind = bot.KindEdit
		}
	case u.ChannelPost != nil:
		e = ignored(u.ChannelPost, "channel post: it has no sender")
	case u.EditedChannelPost != nil:
		e = ignored(u.EditedChannelPost, "edited channel post: it has no sender")
	case u.CallbackQuery != nil:
		e = d.press(u.CallbackQuery)
	case u.MyChatMember != nil:
		e = member(u.MyChatMember)
	default:
		e = bot.Event{Kind: bot.KindIgnored, Note: "update of a kind that was not asked for"}
	}
	e.Platform = pulse.PlatformTelegram
	if e.At.IsZero() {
		e.At = in.ReceivedAt
	}
	return e
}

// place fills what every message tells of where and who.
func place(m *wireMessage) bot.Event {
	e := bot.Event{Kind: bot.KindMessage, Address: address(m), Private: m.Chat.Type == "private"}
	if m.ID != 0 {
		e.MessageID = strconv.FormatInt(m.ID, 10)
	}
	if at := max(m.Date, m.EditDate); at > 0 && at < 1<<40 {
		e.At = time.Unix(at, 0).UTC()
	}
	// Whoever writes as a chat (an anonymous administrator, a linked channel) has a stand-in in from, the same for everyone.
	if m.From != nil && m.SenderChat == nil {
		e.Sender = sender(m.From)
	}
	return e
}

func address(m *wireMessage) pulse.Address {
	a := pulse.Address{Platform: pulse.PlatformTelegram, Chat: strconv.FormatInt(m.Chat.ID, 10)}
	// Plain supergroups number their reply threads in the same field; only forum topics are places.
	if m.IsTopicMessage && m.ThreadID != 0 {
		a.Thread = strconv.FormatInt(m.ThreadID, 10)
	}
	return a
}

func sender(u *wireUser) bot.Sender {
	return bot.Sender{UserID: strconv.FormatInt(u.ID, 10), Name: u.name(), Bot: u.IsBot}
}

func ignored(m *wireMessage, note string) bot.Event {
	e := place(m)
	e.Kind, e.Note = bot.KindIgnored, note
	return e
}

func (d *Decoder) message(m *wireMessage) bot.Event {
	switch {
	case m.Chat.ID == 0:
		return ignored(m, "message without a chat")
	case m.MigrateTo != 0:
		e := ignored(m, "the group became a supergroup")
		e.Kind = bot.KindMoved
		e.To = pulse.Address{Platform: pulse.PlatformTelegram, Chat: strconv.FormatInt(m.MigrateTo, 10)}
		return e
	case m.MigrateFrom != 0:
		// The group says so itself, but that message may be lost: either is enough.
		e := ignored(m, "the supergroup was a group")
		e.Kind, e.To = bot.KindMoved, e.Address
		e.Address = pulse.Address{Platform: pulse.PlatformTelegram, Chat: strconv.FormatInt(m.MigrateFrom, 10)}
		return e
	case m.BusinessConnect != "":
		return ignored(m, "message of a business connection")
	case m.IsAutoForward:
		return ignored(m, "channel post forwarded by the platform")
	}
	text := m.Text
	if text == "" {
		text = m.Caption
	}
	e := place(m)
	e.ReplyTo = replyTo(m)
	e.Text, e.OtherBot = d.address(strings.TrimSpace(clean(text, incoming)))
	switch {
	case e.Text == "" && e.ReplyTo == "" || text == "":
		return ignored(m, m.what())
	case e.Text == "":
		return ignored(m, "message without visible text")
	case len(m.ForwardOrigin) > 0:
		e.Forwarded = true
	case m.SenderChat != nil:
		e.Note = "sent in the name of a chat: the person is not known"
	case m.From == nil:
		e.Note = "no sender"
	}
	return e
}

// replyTo leaves out the topic's opening message, which everything in a topic replies to unless it replies to something else.
func replyTo(m *wireMessage) string {
	if m.ReplyTo == nil || m.ReplyTo.ID == 0 || len(m.ReplyTo.TopicCreated) > 0 || (m.IsTopicMessage && m.ReplyTo.ID == m.ThreadID) {
		return ""
	}
	return strconv.FormatInt(m.ReplyTo.ID, 10)
}

// address removes the bot's name from "/command@name" and a leading "@name", and says whether a command is for another bot.
func (d *Decoder) address(text string) (rest string, other bool) {
	own := d.username()
	end := strings.IndexAny(text, " \n\t")
	if end < 0 {
		end = len(text)
	}
	word := text[:end]
	if strings.HasPrefix(word, "/") {
		command, name, found := strings.Cut(word, "@")
		switch {
		case !found:
			return text, false
		case own == "" || strings.EqualFold(name, own):
			return command + text[end:], false
		}
		return text, true
	}
	if own != "" && strings.EqualFold(strings.TrimRight(word, ",:"), "@"+own) {
		return strings.TrimSpace(text[end:]), false
	}
	return text, false
}

func (d *Decoder) press(q *wireCallback) bot.Event {
	if q.Message == nil {
		return bot.Event{Kind: bot.KindIgnored, Note: "press without a message"}
	}
	e := place(q.Message)
	e.Kind, e.Sender, e.At = bot.KindPress, bot.Sender{}, time.Time{}
	if q.From != nil {
		e.Sender = sender(q.From)
	}
	e.CallbackID = q.ID
	switch {
	case q.From == nil || q.Message.Chat.ID == 0:
		e.Kind, e.Note = bot.KindIgnored, "press without a person or a place"
	case q.Data == "" || len(q.Data) > maxButtonData || clean(q.Data, incoming) != q.Data:
		e.Kind, e.Note = bot.KindIgnored, "press with data that is not ours"
	default:
		e.Data = q.Data
	}
	return e
}

func member(m *wireMember) bot.Event {
	e := bot.Event{Kind: bot.KindIgnored, Private: m.Chat.Type == "private",
		Address: pulse.Address{Platform: pulse.PlatformTelegram, Chat: strconv.FormatInt(m.Chat.ID, 10)},
		Note:    "the bot's membership is now: " + clip(clean(m.New.Status, incoming), 40)}
	e.Back = slices.Contains([]string{"member", "administrator", "creator"}, m.New.Status)
	if m.From != nil {
		e.Sender = sender(m.From)
	}
	return e
}
