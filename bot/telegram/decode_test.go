package telegram_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pulseloop/bot"
	"pulseloop/bot/telegram"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/pulse"
)

const ownName = "pulse_test_bot"

func decode(payload string) bot.Event {
	return telegram.NewDecoder(func() string { return ownName }).Decode(pulse.Inbound{Payload: []byte(payload), ReceivedAt: time.Unix(1, 0)})
}

// message wraps fields of a Message into an update; the sender and chat are those of a private chat unless fields say otherwise.
func message(fields string) string {
	return `{"update_id":1,"message":{"message_id":5,"date":1800000000,"from":{"id":7000000001,"is_bot":false,"first_name":"Ann"},` +
		`"chat":{"id":7000000001,"type":"private"},` + fields + `}}`
}

func TestDecode(t *testing.T) {
	group := `"chat":{"id":-1001234567890,"type":"supergroup"}`
	for name, c := range map[string]struct {
		payload string
		want    string // kind chat/thread sender text and what is special
	}{
		"plain":            {message(`"text":"add a health endpoint"`), "message 7000000001 7000000001 'add a health endpoint' private"},
		"command":          {message(`"text":"/status"`), "message 7000000001 7000000001 '/status' private"},
		"command for us":   {message(`"text":"/status@Pulse_Test_Bot all"`), "message 7000000001 7000000001 '/status all' private"},
		"command of other": {message(`"text":"/status@other_bot x"`), "message 7000000001 7000000001 '/status@other_bot x' private other"},
		"mention":          {message(group + `,"text":"@pulse_test_bot, fix it"`), "message -1001234567890 7000000001 'fix it'"},
		"mention of other": {message(group + `,"text":"@someone fix it"`), "message -1001234567890 7000000001 '@someone fix it'"},
		"caption":          {message(`"photo":[{}],"caption":"like this"`), "message 7000000001 7000000001 'like this' private"},
		"photo":            {message(`"photo":[{}]`), "ignored 7000000001 7000000001 '' private (photo without text)"},
		"media group":      {message(`"photo":[{}],"media_group_id":"9"`), "ignored 7000000001 7000000001 '' private (photo without text)"},
		"blank":            {message(`"text":" \n\t "`), "ignored 7000000001 7000000001 '' private (message without text)"},
		"invisible":        {message(`"text":"\u200b\u2060"`), "ignored 7000000001 7000000001 '' private (message without text)"},
		"reply":            {message(`"text":"yes","reply_to_message":{"message_id":4}`), "message 7000000001 7000000001 'yes' private reply=4"},
		"in a topic": {message(group + `,"text":"go","is_topic_message":true,"message_thread_id":77,"reply_to_message":{"message_id":77,"forum_topic_created":{"name":"x"}}`),
			"message -1001234567890/77 7000000001 'go'"},
		"reply in a topic": {message(group + `,"text":"go","is_topic_message":true,"message_thread_id":77,"reply_to_message":{"message_id":80}`),
			"message -1001234567890/77 7000000001 'go' reply=80"},
		"thread without topic": {message(group + `,"text":"go","message_thread_id":77,"reply_to_message":{"message_id":77}`),
			"message -1001234567890 7000000001 'go' reply=77"},
		"topic opened": {message(group + `,"forum_topic_created":{"name":"x"},"is_topic_message":true,"message_thread_id":5`),
			"ignored -1001234567890/5 7000000001 '' (topic opened without text)"},
		"topic closed": {message(group + `,"forum_topic_closed":{},"is_topic_message":true,"message_thread_id":5`),
			"ignored -1001234567890/5 7000000001 '' (topic closed without text)"},
		"joined": {message(group + `,"new_chat_members":[{"id":1}]`), "ignored -1001234567890 7000000001 '' (someone joined without text)"},
		"migrated": {message(`"chat":{"id":-5001,"type":"group"},"migrate_to_chat_id":-1009`),
			"moved -5001 7000000001 '' to=-1009 (the group became a supergroup)"},
		"migrated from": {message(group + `,"migrate_from_chat_id":-5001`),
			"moved -5001 7000000001 '' to=-1001234567890 (the supergroup was a group)"},
		"forwarded":         {message(`"text":"look at this","forward_origin":{"type":"something new"}`), "message 7000000001 7000000001 'look at this' private forwarded"},
		"forwarded command": {message(`"text":"/abort","forward_origin":{"type":"user"}`), "message 7000000001 7000000001 '/abort' private forwarded"},
		"anonymous admin": {message(group + `,"from":{"id":1087968824,"is_bot":true,"first_name":"Group"},"sender_chat":{"id":-1001234567890,"type":"supergroup"},"text":"/abort"`),
			"message -1001234567890  '/abort' (sent in the name of a chat: the person is not known)"},
		"no from": {`{"update_id":1,"message":{"message_id":5,"date":0,"chat":{"id":-7,"type":"group"},"text":"/abort"}}`,
			"message -7  '/abort' (no sender)"},
		"bot": {message(`"from":{"id":42,"is_bot":true,"first_name":"Other"},"text":"/pulse loop"`), "message 7000000001 42 '/pulse loop' private bot"},
		"edited": {strings.Replace(message(`"text":"better","edit_date":1800000005`), `"message":`, `"edited_message":`, 1),
			"edit 7000000001 7000000001 'better' private"},
		"edited photo": {strings.Replace(message(`"photo":[{}]`), `"message":`, `"edited_message":`, 1),
			"ignored 7000000001 7000000001 '' private (photo without text)"},
		"channel post": {`{"update_id":1,"channel_post":{"message_id":5,"chat":{"id":-1007,"type":"channel"},"text":"/pulse x"}}`,
			"ignored -1007  '' (channel post: it has no sender)"},
		"press": {`{"update_id":1,"callback_query":{"id":"99","from":{"id":7,"first_name":"A"},"message":{"message_id":8,"date":5,"chat":{"id":7,"type":"private"},"from":{"id":1,"is_bot":true}},"data":"g:1:yes"}}`,
			"press 7 7 '' private data=g:1:yes cb=99"},
		"press on a lost message": {`{"update_id":1,"callback_query":{"id":"99","from":{"id":7,"first_name":"A"},"message":{"message_id":8,"date":0,"chat":{"id":-7,"type":"group"}},"data":"g"}}`,
			"press -7 7 '' data=g cb=99"},
		"press with long data": {`{"update_id":1,"callback_query":{"id":"99","from":{"id":7},"message":{"message_id":8,"chat":{"id":7}},"data":"` + strings.Repeat("x", 65) + `"}}`,
			"ignored 7 7 '' cb=99 (press with data that is not ours)"},
		"press inline": {`{"update_id":1,"callback_query":{"id":"99","from":{"id":7},"inline_message_id":"x","data":"g"}}`, "ignored   '' (press without a message)"},
		"kicked": {`{"update_id":1,"my_chat_member":{"chat":{"id":7,"type":"private"},"from":{"id":7,"first_name":"A"},"new_chat_member":{"status":"kicked"}}}`,
			"ignored 7 7 '' private (the bot's membership is now: kicked)"},
		"unknown kind":   {`{"update_id":1,"shiny_new_thing":{"x":1}}`, "ignored   '' (update of a kind that was not asked for)"},
		"not an object":  {`[]`, "ignored   '' (update that cannot be read)"},
		"wrong types":    {message(`"text":{"a":1}`), "ignored   '' (update that cannot be read)"},
		"too deep":       {`{"update_id":1,"message":` + strings.Repeat(`[`, 20000) + `}`, "ignored   '' (update that cannot be read)"},
		"64-bit id":      {message(`"chat":{"id":-9223372036854775808,"type":"group"},"text":"x"`), "message -9223372036854775808 7000000001 'x'"},
		"lone surrogate": {message(`"text":"a\ud800b"`), "message 7000000001 7000000001 'a\uFFFDb' private"},
		"nul and bidi":   {message(`"text":"a\u0000b\u202Ec\u2066d"`), "message 7000000001 7000000001 'abcd' private"},
		"family emoji":   {message(`"text":"👨‍👩‍👧"`), "message 7000000001 7000000001 '👨‍👩‍👧' private"},
	} {
		if got := show(decode(c.payload)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func show(e bot.Event) string {
	s := string(e.Kind) + " " + e.Address.Chat
	if e.Address.Thread != "" {
		s += "/" + e.Address.Thread
	}
	s += " " + e.Sender.UserID + " '" + e.Text + "'"
	for _, part := range []struct {
		on   bool
		text string
	}{
		{e.Private, "private"}, {e.Sender.Bot, "bot"}, {e.OtherBot, "other"}, {e.Forwarded, "forwarded"}, {e.ReplyTo != "", "reply=" + e.ReplyTo},
		{e.Data != "", "data=" + e.Data}, {e.CallbackID != "", "cb=" + e.CallbackID}, {!e.To.Zero(), "to=" + e.To.Chat},
		{e.Note != "", "(" + e.Note + ")"},
	} {
		if part.on {
			s += " " + part.text
		}
	}
	return s
}

// What the fake sends is what the decoder understands: the two were written from the same description, not from each other.
func TestDecodeWhatTheServerSends(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	_, stop := run(t, e, in, quick())
	defer stop()
	ann := e.srv.User("Ann")
	forum := e.srv.Group("forum", true)
	topic := forum.Topic(ann, "work")
	topic.Say(ann, "/pulse@"+e.srv.Username()+" add x")
	forum.SayAnonymously("anyone?")
	first := ann.Private().Say(ann, "hello")
	if _, err := ann.Private().Edit(ann, first.ID, "hello there"); err != nil {
		t.Fatal(err)
	}
	ann.Private().Reply(ann, first.ID, "and this")
	ann.Private().PressData(ann, first.ID, "g:1")
	e.srv.Group("old", false).Migrate(ann)
	e.srv.Channel("news").Post("news")
	if err := in.await(e.ctx, 10); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	d := e.client.Decoder()
	for _, u := range in.order {
		ev := d.Decode(u)
		kinds = append(kinds, string(ev.Kind))
		if u.Source != e.client.Source() || strconv.FormatInt(u.Order, 10) != u.UpdateID || u.ID == "" {
			t.Errorf("inbound %+v", u)
		}
	}
	if got := strings.Join(kinds, " "); got != "ignored message message message edit message press moved moved ignored" {
		t.Errorf("kinds: %s", got)
	}
	said := d.Decode(in.order[1])
	if said.Text != "/pulse add x" || said.Address.Thread != fmt.Sprint(topic.Thread()) || said.ReplyTo != "" || said.Sender.UserID != fmt.Sprint(ann.ID) {
		t.Errorf("in the topic: %+v", said)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		message(`"text":"hi"`), message(`"text":"/x@y \u202E\ud800","reply_to_message":{"message_id":4}`),
		`{"update_id":1,"callback_query":{"id":"1","from":{"id":7},"message":{"message_id":8,"chat":{"id":7}},"data":"x"}}`,
		`{"update_id":1,"message":null,"edited_message":{}}`, `{}`, `[]`, `{"message":{"chat":{"id":1e3}}}`, "\x00", `{"message":{"message":{}}}`,
		message(`"chat":{"id":-1,"type":"group"},"migrate_to_chat_id":-1009`), message(`"sender_chat":{"id":0},"text":"x"`),
	} {
		f.Add([]byte(s))
	}
	d := telegram.NewDecoder(func() string { return ownName })
	f.Fuzz(func(t *testing.T, payload []byte) {
		e := d.Decode(pulse.Inbound{Payload: payload, ReceivedAt: time.Unix(1, 0)})
		switch e.Kind {
		case bot.KindMessage, bot.KindEdit:
			if e.Text == "" || e.Address.Chat == "" {
				t.Errorf("a message without text or place: %+v", e)
			}
		case bot.KindPress:
			if e.Sender.UserID == "" || e.Data == "" || len(e.Data) > 64 || e.Address.Chat == "" {
				t.Errorf("a press without person, place or data: %+v", e)
			}
		case bot.KindMoved:
			if e.To.Chat == "" {
				t.Errorf("moved nowhere: %+v", e)
			}
		case bot.KindIgnored:
			if e.Note == "" {
				t.Errorf("ignored without a note: %+v", e)
			}
		default:
			t.Errorf("kind %q", e.Kind)
		}
		if !utf8.ValidString(e.Text) || strings.ContainsFunc(e.Text, func(r rune) bool {
			return unicode.IsControl(r) && r != '\n' && r != '\t' || r >= 0x202A && r <= 0x202E
		}) {
			t.Errorf("unclean text %q", e.Text)
		}
		if e.At.IsZero() || e.Platform != pulse.PlatformTelegram {
			t.Errorf("no time or platform: %+v", e)
		}
	})
}
