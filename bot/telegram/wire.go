package telegram

import "encoding/json"

// The types here are the part of an update that is understood. They are not the library's: its types refuse a whole update for one
// unknown variant deep inside (a new kind of forward, a new reaction), and the goal in it would be lost.

type wireUpdate struct {
	ID                int64         `json:"update_id"`
	Message           *wireMessage  `json:"message"`
	EditedMessage     *wireMessage  `json:"edited_message"`
	ChannelPost       *wireMessage  `json:"channel_post"`
	EditedChannelPost *wireMessage  `json:"edited_channel_post"`
	CallbackQuery     *wireCallback `json:"callback_query"`
	MyChatMember      *wireMember   `json:"my_chat_member"`
}

type wireUser struct {
	ID        int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
	Username  string `json:"username"`
}

type wireChat struct {
	ID   int64  `json:"id"`
	Type string `json:"type"`
}

type wireMessage struct {
	ID              int64           `json:"message_id"`
	ThreadID        int64           `json:"message_thread_id"`
	IsTopicMessage  bool            `json:"is_topic_message"`
	From            *wireUser       `json:"from"`
	SenderChat      *wireChat       `json:"sender_chat"`
	ViaBot          *wireUser       `json:"via_bot"`
	Date            int64           `json:"date"`
	EditDate        int64           `json:"edit_date"`
	Chat            wireChat        `json:"chat"`
	ForwardOrigin   json.RawMessage `json:"forward_origin"`
	IsAutoForward   bool            `json:"is_automatic_forward"`
	ReplyTo         *wireReply      `json:"reply_to_message"`
	Text            string          `json:"text"`
	Caption         string          `json:"caption"`
	MigrateTo       int64           `json:"migrate_to_chat_id"`
	MigrateFrom     int64           `json:"migrate_from_chat_id"`
	MediaGroupID    string          `json:"media_group_id"`
	TopicCreated    json.RawMessage `json:"forum_topic_created"`
	TopicEdited     json.RawMessage `json:"forum_topic_edited"`
	TopicClosed     json.RawMessage `json:"forum_topic_closed"`
	TopicReopened   json.RawMessage `json:"forum_topic_reopened"`
	NewMembers      json.RawMessage `json:"new_chat_members"`
	LeftMember      json.RawMessage `json:"left_chat_member"`
	Pinned          json.RawMessage `json:"pinned_message"`
	Photo           json.RawMessage `json:"photo"`
	Document        json.RawMessage `json:"document"`
	Voice           json.RawMessage `json:"voice"`
	Video           json.RawMessage `json:"video"`
	Audio           json.RawMessage `json:"audio"`
	Sticker         json.RawMessage `json:"sticker"`
	Location        json.RawMessage `json:"location"`
	Contact         json.RawMessage `json:"contact"`
	Poll            json.RawMessage `json:"poll"`
	BusinessConnect string          `json:"business_connection_id"`
}

// wireReply is what is needed of the message replied to.
type wireReply struct {
	ID           int64           `json:"message_id"`
	TopicCreated json.RawMessage `json:"forum_topic_created"`
}

type wireCallback struct {
	ID       string       `json:"id"`
	From     *wireUser    `json:"from"`
	Message  *wireMessage `json:"message"`
	InlineID string       `json:"inline_message_id"`
	Data     string       `json:"data"`
}

type wireMember struct {
	Chat wireChat  `json:"chat"`
	From *wireUser `json:"from"`
	Date int64     `json:"date"`
	New  struct {
		Status string `json:"status"`
	} `json:"new_chat_member"`
}

// what names content that carries no words, for the note.
func (m *wireMessage) what() string {
	for _, k := range []struct {
		name string
		raw  json.RawMessage
	}{
		{"topic opened", m.TopicCreated}, {"topic changed", m.TopicEdited}, {"topic closed", m.TopicClosed},
		{"topic reopened", m.TopicReopened}, {"someone joined", m.NewMembers}, {"someone left", m.LeftMember},
		{"message pinned", m.Pinned}, {"photo", m.Photo}, {"document", m.Document}, {"voice message", m.Voice},
		{"video", m.Video}, {"audio", m.Audio}, {"sticker", m.Sticker}, {"location", m.Location}, {"contact", m.Contact},
		{"poll", m.Poll},
	} {
		if len(k.raw) > 0 && string(k.raw) != "null" {
			return k.name + " without text"
		}
	}
	return "message without text"
}

func (u *wireUser) name() string {
	name := u.FirstName
	if u.LastName != "" {
		name += " " + u.LastName
	}
	if name == "" {
		name = u.Username
	}
	return clip(clean(name, incoming), 100)
}
