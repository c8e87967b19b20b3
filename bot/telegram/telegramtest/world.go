package telegramtest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// User is a person, or the bot.
type User struct {
	s         *Server
	ID        int64
	FirstName string
	Username  string
	bot       bool
	blocked   bool // the bot, by this person
}

func (u *User) wire() map[string]any {
	out := map[string]any{"id": u.ID, "is_bot": u.bot, "first_name": u.FirstName}
	if u.Username != "" {
		out["username"] = u.Username
	}
	if !u.bot {
		out["language_code"] = "en"
	}
	return out
}

// User makes a person. Ids are beyond 32 bits, as new accounts' are.
func (s *Server) User(name string) *User {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &User{s: s, ID: 7_000_000_000 + s.nextUser, FirstName: name,
		Username: strings.ToLower(strings.ReplaceAll(name, " ", "_")) + strconv.FormatInt(s.nextUser, 10)}
	s.nextUser++
	s.users[u.ID] = u
	return u
}

// Block makes the person block the bot, or end that.
func (u *User) Block(blocked bool) {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	u.blocked = blocked
}

// Chat kinds as the platform names them.
const (
	KindPrivate    = "private"
	KindGroup      = "group"
	KindSupergroup = "supergroup"
	KindChannel    = "channel"
)

// Chat is a place for messages. A value made by In is the same chat seen from one topic.
type Chat struct {
	s      *Server
	ID     int64
	Kind   string
	Title  string
	Forum  bool
	thread int
	*chatState
}

type chatState struct {
	user       *User // of a private chat
	messages   []*message
	nextID     int
	topics     map[int]*topic
	kicked     bool
	migratedTo int64
	drafts     []string
	actions    []string
}

type topic struct {
	name    string
	closed  bool
	deleted bool
}

func (c *Chat) wireChat() map[string]any {
	out := map[string]any{"id": c.ID, "type": c.Kind}
	if c.user != nil {
		out["first_name"], out["username"] = c.user.FirstName, c.user.Username
	} else {
		out["title"] = c.Title
	}
	if c.Forum {
		out["is_forum"] = true
	}
	return out
}

// Private is the person's chat with the bot, opened by them.
func (u *User) Private() *Chat {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if c, ok := u.s.chats[u.ID]; ok {
		return c
	}
	return u.s.addChat(u.ID, KindPrivate, u.FirstName, false, u)
}

// Group makes a basic group with the bot in it, or, with forum, a supergroup with topics.
func (s *Server) Group(title string, forum bool) *Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextGroup++
	if forum {
		return s.addChat(-1_001_000_000_000-s.nextGroup, KindSupergroup, title, true, nil)
	}
	return s.addChat(-500_000-s.nextGroup, KindGroup, title, false, nil)
}

// Supergroup makes one without topics.
func (s *Server) Supergroup(title string) *Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextGroup++
	return s.addChat(-1_001_000_000_000-s.nextGroup, KindSupergroup, title, false, nil)
}

// Channel makes one where the bot is an administrator.
func (s *Server) Channel(title string) *Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextGroup++
	return s.addChat(-1_001_000_000_000-s.nextGroup, KindChannel, title, false, nil)
}

func (s *Server) addChat(id int64, kind, title string, forum bool, u *User) *Chat {
	c := &Chat{s: s, ID: id, Kind: kind, Title: title, Forum: forum,
		chatState: &chatState{user: u, nextID: 1, topics: map[int]*topic{}}}
	s.chats[id] = c
	return c
}

// In is the chat seen from a topic: what is said there carries the topic's id, and Messages shows that topic alone.
func (c *Chat) In(thread int) *Chat {
	view := *c
	view.thread = thread
	return &view
}

// Thread is the topic of a view made by In, else 0.
func (c *Chat) Thread() int { return c.thread }

func (c *Chat) find(id int) *message {
	for _, m := range c.messages {
		if m.ID == id && !m.deleted {
			return m
		}
	}
	return nil
}

// add stores a message; ids count by chat in supergroups and channels, across chats elsewhere, as the platform's do.
func (c *Chat) add(m *message) *message {
	if c.Kind == KindSupergroup || c.Kind == KindChannel {
		m.ID = c.nextID
		c.nextID++
	} else {
		m.ID = c.s.nextMsg
		c.s.nextMsg++
	}
	m.ChatID = c.ID
	m.Date = c.s.opt.Now()
	c.messages = append(c.messages, m)
	return m
}

// Say is a person writing in the chat.
func (c *Chat) Say(u *User, text string) Message { return c.say(u, text, 0, nil) }

// Reply is a person answering a message.
func (c *Chat) Reply(u *User, to int, text string) Message { return c.say(u, text, to, nil) }

// SayWith is Say with further fields of the Message object, for what is not modelled (forward_origin, media_group_id, ...).
func (c *Chat) SayWith(u *User, text string, fields map[string]any) Message {
	return c.say(u, text, 0, fields)
}

func (c *Chat) say(u *User, text string, reply int, fields map[string]any) Message {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	m := c.add(&message{Message: Message{FromID: u.ID, FromBot: u.bot, Text: text, Entities: commandEntities(text),
		ReplyTo: reply, ThreadID: c.thread}, sender: u, extra: fields})
	c.s.push("message", c.wire(m, true))
	return m.view()
}

// SayAnonymously is an administrator writing as the group itself.
func (c *Chat) SayAnonymously(text string) Message {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	mask := &User{s: c.s, ID: 1087968824, FirstName: "Group", Username: "GroupAnonymousBot", bot: true}
	m := c.add(&message{Message: Message{FromID: mask.ID, FromBot: true, Text: text, Entities: commandEntities(text),
		ThreadID: c.thread}, sender: mask, as: c})
	c.s.push("message", c.wire(m, true))
	return m.view()
}

// Post is a channel post: it has no sender.
func (c *Chat) Post(text string) Message {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	m := c.add(&message{Message: Message{Text: text}, as: c})
	c.s.push("channel_post", c.wire(m, true))
	return m.view()
}

// SendFile is a person sending a document.
func (c *Chat) SendFile(u *User, name string, data []byte, caption string) Message {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	id := c.s.addFile(name, data)
	m := c.add(&message{Message: Message{FromID: u.ID, Text: caption, Document: name, FileID: id, ThreadID: c.thread}, sender: u})
	c.s.push("message", c.wire(m, true))
	return m.view()
}

// Edit is a person changing what they wrote.
func (c *Chat) Edit(u *User, id int, text string) (Message, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	m := c.find(id)
	if m == nil || m.sender != u {
		return Message{}, fmt.Errorf("edit message %d: %s did not write it", id, u.FirstName)
	}
	m.Edits = append(m.Edits, m.Text)
	m.Text, m.Entities, m.EditDate = text, commandEntities(text), c.s.opt.Now()
	c.s.push("edited_message", c.wire(m, true))
	return m.view(), nil
}

// Delete is a person removing a message; the platform tells bots nothing of it.
func (c *Chat) Delete(id int) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if m := c.find(id); m != nil {
		m.deleted = true
		c.s.wake()
	}
}

// React is a person putting an emoji on a message; bots hear of it only if they asked for message_reaction.
func (c *Chat) React(u *User, id int, emoji string) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.push("message_reaction", map[string]any{"chat": c.wireChat(), "message_id": id, "user": u.wire(),
		"date": c.s.opt.Now().Unix(), "old_reaction": []any{},
		"new_reaction": []any{map[string]any{"type": "emoji", "emoji": emoji}}})
}

// Topic is a person opening a topic; the view of it is returned.
func (c *Chat) Topic(u *User, name string) *Chat {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	m := c.openTopic(u, name)
	c.s.push("message", c.wire(m, false))
	return c.In(m.ThreadID)
}

func (c *Chat) openTopic(u *User, name string) *message {
	m := c.add(&message{Message: Message{FromID: u.ID, FromBot: u.bot, Service: "forum_topic_created"}, sender: u,
		extra: map[string]any{"forum_topic_created": map[string]any{"name": name, "icon_color": 7322096}}})
	m.ThreadID = m.ID
	c.topics[m.ID] = &topic{name: name}
	return m
}

// CloseTopic is a person closing a topic, DeleteTopic removing it with all that was said there.
func (c *Chat) CloseTopic(u *User, thread int) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if t := c.topics[thread]; t != nil {
		t.closed = true
		m := c.add(&message{Message: Message{FromID: u.ID, Service: "forum_topic_closed", ThreadID: thread}, sender: u,
			extra: map[string]any{"forum_topic_closed": map[string]any{}}})
		c.s.push("message", c.wire(m, false))
	}
}

// DeleteTopic removes a topic and what was said in it; the platform tells bots nothing of it.
func (c *Chat) DeleteTopic(thread int) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if t := c.topics[thread]; t != nil {
		t.deleted = true
		for _, m := range c.messages {
			m.deleted = m.deleted || m.ThreadID == thread
		}
		c.s.wake()
	}
}

// TopicName returns a topic's name and whether it is open.
func (c *Chat) TopicName(thread int) (name string, open bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	t := c.topics[thread]
	if t == nil || t.deleted {
		return "", false
	}
	return t.name, !t.closed
}

// Kick removes the bot from a group.
func (c *Chat) Kick() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.kicked = true
}

// Migrate makes a supergroup of a basic group: a new id, told by a service message in each.
func (c *Chat) Migrate(u *User) *Chat {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.nextGroup++
	n := c.s.addChat(-1_001_000_000_000-c.s.nextGroup, KindSupergroup, c.Title, false, nil)
	c.migratedTo = n.ID
	from := c.add(&message{Message: Message{FromID: u.ID, Service: "migrate_to_chat_id"}, sender: u,
		extra: map[string]any{"migrate_to_chat_id": n.ID}})
	c.s.push("message", c.wire(from, false))
	to := n.add(&message{Message: Message{FromID: u.ID, Service: "migrate_from_chat_id"}, sender: u,
		extra: map[string]any{"migrate_from_chat_id": c.ID}})
	c.s.push("message", n.wire(to, false))
	return n
}

// Messages are those visible now, oldest first; of one topic when the view was made by In.
func (c *Chat) Messages() []Message {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	var out []Message
	for _, m := range c.messages {
		if !m.deleted && (c.thread == 0 || m.ThreadID == c.thread) {
			out = append(out, m.view())
		}
	}
	return out
}

// FromBot are the visible messages the bot wrote.
func (c *Chat) FromBot() []Message {
	return slices.DeleteFunc(c.Messages(), func(m Message) bool { return m.FromID != c.s.bot.ID || m.Service != "" })
}

// Message returns one visible message.
func (c *Chat) Message(id int) (Message, bool) {
	for _, m := range c.Messages() {
		if m.ID == id {
			return m, true
		}
	}
	return Message{}, false
}

// Drafts are the texts of sendMessageDraft so far, oldest first.
func (c *Chat) Drafts() []string {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return slices.Clone(c.drafts)
}

// Actions are those of sendChatAction so far.
func (c *Chat) Actions() []string {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return slices.Clone(c.actions)
}

// AwaitMessage returns the first visible message of the bot for which ok holds.
func (c *Chat) AwaitMessage(ctx context.Context, ok func(Message) bool) (Message, error) {
	var found Message
	err := c.s.Await(ctx, func() bool {
		for _, m := range c.FromBot() {
			if ok(m) {
				found = m
				return true
			}
		}
		return false
	})
	if err != nil {
		var seen []string
		for _, m := range c.FromBot() {
			seen = append(seen, strconv.Quote(m.Text))
		}
		return Message{}, fmt.Errorf("%w; the bot's messages: %s", err, strings.Join(seen, ", "))
	}
	return found, nil
}

// AwaitText is AwaitMessage for a part of the text.
func (c *Chat) AwaitText(ctx context.Context, part string) (Message, error) {
	return c.AwaitMessage(ctx, func(m Message) bool { return strings.Contains(m.Text, part) })
}
