package telegramtest

import (
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf16"
)

// Command is an entry of the bot's menu.
type Command struct {
	Command     string `json:"command"`
	Description string `json:"description"`
}

// Commands is the menu as last set.
func (s *Server) Commands() []Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commands)
}

// limited are the methods that count against the rate limits: edits do, chat actions do not.
var limited = []string{"sendMessage", "sendDocument", "editMessageText", "editMessageReplyMarkup", "editMessageCaption"}

// apply runs a method.
func (s *Server) apply(r *http.Request, method string, p params) answer {
	if method == "getUpdates" {
		return s.getUpdates(r.Context(), p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	if p.has("parse_mode") && p.str("parse_mode") != "" {
		s.violate("%s: parse_mode is not modelled; send entities", method)
	}
	if slices.Contains(limited, method) {
		if a, ok := s.admit(p); !ok {
			return a
		}
	}
	if a, ok := s.applyBot(method, p); ok {
		return a
	}
	c, a := s.target(p)
	if c == nil {
		return a
	}
	return s.applyChat(method, c, p)
}

func (s *Server) admit(p params) (answer, bool) {
	id, _ := p.chatID()
	c := s.chats[id]
	group := c != nil && c.Kind != KindPrivate
	if wait := s.limiter.admit(id, group, s.opt.Now()); wait > 0 {
		return tooMany(wait), false
	}
	return answer{}, true
}

// applyBot are the methods without a chat.
func (s *Server) applyBot(method string, p params) (answer, bool) {
	switch method {
	case "getMe":
		me := s.bot.wire()
		me["can_join_groups"], me["can_read_all_group_messages"], me["supports_inline_queries"] = true, false, false
		return done(me), true
	case "setWebhook":
		return s.setWebhook(p), true
	case "deleteWebhook":
		return s.deleteWebhook(p), true
	case "getWebhookInfo":
		return s.webhookInfo(), true
	case "answerCallbackQuery":
		return s.answerCallbackQuery(p), true
	case "setMyCommands":
		return s.setMyCommands(p), true
	case "getMyCommands":
		return done(append([]Command{}, s.commands...)), true
	case "deleteMyCommands":
		s.commands = nil
		return done(true), true
	case "getFile":
		return s.getFile(p), true
	}
	return answer{}, false
}

func (s *Server) applyChat(method string, c *Chat, p params) answer {
	switch method {
	case "sendMessage":
		return s.sendMessage(c, p)
	case "sendDocument":
		return s.sendDocument(c, p)
	case "sendMessageDraft":
		return s.sendDraft(c, p)
	case "sendChatAction":
		c.actions = append(c.actions, p.str("action"))
		return done(true)
	case "editMessageText":
		return s.editText(c, p)
	case "editMessageReplyMarkup":
		return s.editMarkup(c, p)
	case "deleteMessage":
		m := c.find(p.number("message_id"))
		if m == nil {
			return bad("message to delete not found")
		}
		m.deleted = true
		return done(true)
	case "pinChatMessage", "unpinChatMessage":
		m := c.find(p.number("message_id"))
		if m == nil {
			return bad("message to pin not found")
		}
		m.Pinned = method == "pinChatMessage"
		return done(true)
	case "setMessageReaction":
		return s.setReaction(c, p)
	case "getChat":
		out := c.wireChat()
		out["accent_color_id"], out["max_reaction_count"] = 0, 11
		out["accepted_gift_types"] = map[string]any{"unlimited_gifts": false, "limited_gifts": false, "unique_gifts": false,
			"premium_subscription": false, "gifts_from_channels": false}
		return done(out)
	case "createForumTopic", "editForumTopic", "closeForumTopic", "reopenForumTopic", "deleteForumTopic":
		return s.forumTopic(method, c, p)
	}
	s.violate("%s: not modelled by this fake", method)
	return refuse(http.StatusNotFound, "Not Found")
}

// target finds the chat, with the refusals of the real server.
func (s *Server) target(p params) (*Chat, answer) {
	if !p.has("chat_id") {
		return nil, bad("chat_id is empty")
	}
	id, _ := p.chatID()
	c := s.chats[id]
	switch {
	case c == nil && s.users[id] != nil:
		return nil, refuse(http.StatusForbidden, "Forbidden: bot can't initiate conversation with a user")
	case c == nil:
		return nil, bad("chat not found")
	case c.user != nil && c.user.blocked:
		return nil, refuse(http.StatusForbidden, "Forbidden: bot was blocked by the user")
	case c.kicked:
		return nil, refuse(http.StatusForbidden, "Forbidden: bot was kicked from the %s chat", c.Kind)
	case c.migratedTo != 0:
		a := bad("group chat was upgraded to a supergroup chat")
		a.migrateTo = c.migratedTo
		return nil, a
	}
	return c, answer{}
}

var commandShape = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

func (s *Server) setMyCommands(p params) answer {
	var list []Command
	if err := p.object("commands", &list); err != nil {
		return bad("can't parse commands: %v", err)
	}
	if len(list) > 100 {
		return bad("BOT_COMMANDS_TOO_MUCH")
	}
	for _, c := range list {
		if !commandShape.MatchString(c.Command) {
			s.violate("setMyCommands: %q is no command name", c.Command)
			return bad("BOT_COMMAND_INVALID")
		}
		if n := len(utf16.Encode([]rune(c.Description))); n < 1 || n > 256 {
			s.violate("setMyCommands: description of %s has %d characters", c.Command, n)
			return bad("BOT_COMMAND_DESCRIPTION_INVALID")
		}
	}
	s.commands = list
	return done(true)
}

func (s *Server) setReaction(c *Chat, p params) answer {
	m := c.find(p.number("message_id"))
	if m == nil {
		return bad("message to react not found")
	}
	var list []struct {
		Type  string `json:"type"`
		Emoji string `json:"emoji"`
	}
	if err := p.object("reaction", &list); err != nil {
		return bad("can't parse reaction: %v", err)
	}
	if len(list) > 1 {
		return bad("REACTIONS_TOO_MANY")
	}
	m.Reactions = nil
	for _, r := range list {
		m.Reactions = append(m.Reactions, r.Emoji)
	}
	return done(true)
}

func (s *Server) forumTopic(method string, c *Chat, p params) answer {
	if !c.Forum && c.Kind != KindPrivate {
		return bad("the chat is not a forum")
	}
	if n := len([]rune(p.str("name"))); (method == "createForumTopic" && n == 0) || n > 128 {
		return bad("TOPIC_TITLE_EMPTY or too long")
	}
	if method == "createForumTopic" {
		m := c.openTopic(s.bot, p.str("name"))
		return done(map[string]any{"message_thread_id": m.ID, "name": p.str("name"), "icon_color": 7322096})
	}
	t := c.topics[p.number("message_thread_id")]
	if t == nil || t.deleted {
		return bad("message thread not found")
	}
	switch method {
	case "editForumTopic":
		if p.str("name") == t.name && !p.has("icon_custom_emoji_id") {
			return bad("TOPIC_NOT_MODIFIED")
		}
		if p.str("name") != "" {
			t.name = p.str("name")
		}
	case "closeForumTopic", "reopenForumTopic":
		closing := method == "closeForumTopic"
		if t.closed == closing {
			return bad("TOPIC_NOT_MODIFIED")
		}
		t.closed = closing
	case "deleteForumTopic":
		t.deleted = true
	}
	return done(true)
}

// file is a stored document.
type file struct {
	id, name string
	data     []byte
}

func (f file) path() string { return "documents/" + f.id + path.Ext(f.name) }

func (s *Server) addFile(name string, data []byte) string {
	s.nextToken++
	id := "BQACAgI" + strconv.Itoa(100000+s.nextToken)
	s.files[id] = file{id: id, name: name, data: data}
	return id
}

// File is the content of a document by its id.
func (s *Server) File(id string) (name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[id]
	return f.name, f.data
}

func (s *Server) getFile(p params) answer {
	f, ok := s.files[p.str("file_id")]
	if !ok {
		return bad("wrong file_id or the file is temporarily unavailable")
	}
	if len(f.data) > 20<<20 {
		return bad("file is too big")
	}
	return done(map[string]any{"file_id": f.id, "file_unique_id": "u" + f.id, "file_size": len(f.data), "file_path": f.path()})
}

func (s *Server) serveFile(w http.ResponseWriter, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.path() == name {
			w.Header().Set("Content-Length", fmt.Sprint(len(f.data)))
			_, _ = w.Write(f.data)
			return
		}
	}
	writeAnswer(w, refuse(http.StatusNotFound, "Not Found"))
}
