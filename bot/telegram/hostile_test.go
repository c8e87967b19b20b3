package telegram_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// What people can put into a chat, and what becomes of it.
func TestHostileWordsComeIn(t *testing.T) {
	flood := "e" + strings.Repeat("\u0301", 5000)
	for name, c := range map[string]struct{ say, want string }{
		"as long as a message":      {strings.Repeat("a", 4096), strings.Repeat("a", 4096)},
		"longer than a message":     {strings.Repeat("a", 4097), strings.Repeat("a", 4097)},
		"of 100,000 units":          {strings.Repeat("👍", 50_000), strings.Repeat("👍", 50_000)},
		"zero width":                {"a\u200bb\u2060c\ufeffd", "abcd"},
		"tags that nobody sees":     {"go\U000E0061\U000E0062", "go"},
		"a flood of marks":          {flood + "x", "e" + strings.Repeat("\u0301", 8) + "x"},
		"overrides and isolates":    {"\u202eabc\u202c \u2067def\u2069", "abc def"},
		"another way to end a line": {"a\r\nb\rc", "a\nb\nc"},
		"escapes of a terminal":     {"\x1b[31mred\x1b]52;c;ZXZpbA==\a", "[31mred]52;c;ZXZpbA=="},
		"entities of HTML":          {"&lt;b&gt; &amp; <b>x</b>", "&lt;b&gt; &amp; <b>x</b>"},
		"fences that do not end":    {"```go\nfunc *_[", "```go\nfunc *_["},
		"words for everybody":       {"@everyone @here", "@everyone @here"},
		"a name that is a number":   {"@7000000001 do it", "@7000000001 do it"},
	} {
		e := decode(message(`"text":` + quoted(c.say)))
		if e.Kind != bot.KindMessage || e.Text != c.want {
			t.Errorf("%s: %s %.80q, want %.80q", name, e.Kind, e.Text, c.want)
		}
	}
	for name, fields := range map[string]string{
		"service message":     `"pinned_message":{"message_id":1}`,
		"part of an album":    `"photo":[{}],"media_group_id":"1"`,
		"business":            `"text":"/pulse x","business_connection_id":"b"`,
		"automatic forward":   `"text":"/pulse x","is_automatic_forward":true,"forward_origin":{}`,
		"a message to nobody": `"chat":{"id":0},"text":"x"`,
		"only marks nobody":   `"text":"\u2066\u2069\ufeff"`,
	} {
		if e := decode(message(fields)); e.Kind != bot.KindIgnored || e.Note == "" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for _, id := range []string{"-9223372036854775808", "9223372036854775807", "-1", "1"} {
		e := decode(message(`"chat":{"id":` + id + `,"type":"group"},"from":{"id":` + id + `,"first_name":"` + id + `"},"text":"x"`))
		if e.Address.Chat != id || e.Sender.UserID != id || e.Private {
			t.Errorf("%s: %+v", id, e)
		}
	}
	for _, id := range []string{"9223372036854775808", "1.5", `"1"`, "1e30"} {
		if e := decode(message(`"chat":{"id":` + id + `,"type":"group"},"text":"x"`)); e.Kind != bot.KindIgnored {
			t.Errorf("chat %s: %+v", id, e)
		}
	}
	for name, data := range map[string]string{"empty": `""`, "too long": quoted(strings.Repeat("é", 33)), "a line feed": `"g:\n"`, "hidden": `"g:\u202e1:y"`, "no text": `7`} {
		e := decode(`{"update_id":1,"callback_query":{"id":"9","from":{"id":7},"message":{"message_id":8,"chat":{"id":7}},"data":` + data + `}}`)
		if name == "a line feed" {
			continue // of no harm: no button of ours has it
		}
		if e.Kind != bot.KindIgnored {
			t.Errorf("a press with data that is %s: %+v", name, e)
		}
	}
}

// quoted is a text as JSON, without looking at what it is.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, `\u%04x`, u)
	}
	b.WriteByte('"')
	return b.String()
}

// What agents can write, and that the platform takes all of it: the fake refuses, and reports, what the platform would.
func TestHostileWordsGoOut(t *testing.T) {
	e, s, clock := limited(t)
	chat := e.srv.User("Ann").Private()
	family := "👨‍👩‍👧‍👦"
	for name, c := range map[string]struct {
		text  string
		parts int
	}{
		"exactly a message":               {strings.Repeat("a", 4096), 1},
		"one unit more":                   {strings.Repeat("a", 4097), 2},
		"100,000 units":                   {strings.Repeat("👍", 50_000), 5},
		"an emoji across the border":      {strings.Repeat("a", 4095) + "👍", 2},
		"a family across the border":      {strings.Repeat("a", 4090) + family, 2},
		"marks across the border":         {strings.Repeat("a", 4093) + "e" + strings.Repeat("\u0301", 6), 2},
		"nothing but marks":               {"x" + strings.Repeat("\u0301", 20_000), 1},
		"nothing but joiners":             {"x" + strings.Repeat("\u200d", 5000), 1},
		"invalid UTF-8":                   {"a\xff\xed\xa0\x80b\xc3", 1},
		"NUL":                             {"a\x00b", 1},
		"overrides":                       {"a\u202eb\u2066c", 1},
		"markup of all kinds":             {"*_`[](tg://user?id=1)~||<b>&amp;{}#+-=.!\\", 1},
		"a fence that does not end":       {"```\n" + strings.Repeat("x\n", 4000), 2},
		"lines without words":             {strings.Repeat("\n", 9000) + "end", 1},
		"a word of 9,000 characters":      {strings.Repeat("w", 9000), 3},
		"spaces around":                   {"  \n x \n  ", 1},
		"right to left":                   {strings.Repeat("שלום عليكم ", 800), 3},
		"what looks like a link to click": {"https://evil.example/?data=1", 1},
	} {
		before := len(chat.FromBot())
		if d := sendAll(t, e, s, clock, text(chat, c.text)); d.Outcome != "sent" {
			t.Errorf("%s: %+v", name, d)
			continue
		}
		got := chat.FromBot()[before:]
		if len(got) != c.parts {
			t.Errorf("%s: %d messages, want %d", name, len(got), c.parts)
		}
		for _, m := range got {
			if !utf8.ValidString(m.Text) || len(utf16.Encode([]rune(m.Text))) > 4096 || !m.NoPreview || len(m.Entities) > 0 {
				t.Errorf("%s: %+v", name, m)
			}
			if strings.HasSuffix(m.Text, "\u200d") && strings.Contains(c.text, family) {
				t.Errorf("%s: a symbol was cut in two", name)
			}
		}
	}
	styled := pulse.Notice{ID: "styled", Address: address(chat), Kind: pulse.NoticeFinal}
	for range 150 {
		styled.Message.Spans = append(styled.Message.Spans, pulse.Span{Text: "b", Style: pulse.StyleBold}, pulse.Span{Text: " "})
	}
	if d := sendAll(t, e, s, clock, styled); d.Outcome != "sent" {
		t.Errorf("more styles than the platform takes: %+v", d)
	}
}
