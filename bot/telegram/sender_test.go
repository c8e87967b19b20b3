package telegram_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"pulseloop/bot/telegram"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/notify"
	"pulseloop/pulse"
)

func address(c *telegramtest.Chat) pulse.Address {
	a := pulse.Address{Platform: pulse.PlatformTelegram, Chat: strconv.FormatInt(c.ID, 10)}
	if c.Thread() != 0 {
		a.Thread = strconv.Itoa(c.Thread())
	}
	return a
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var noticeCount int

func text(c *telegramtest.Chat, s string) pulse.Notice {
	noticeCount++
	return pulse.Notice{ID: pulse.NoticeID(fmt.Sprint("n", noticeCount)), Address: address(c), Kind: pulse.NoticeReply, Message: pulse.Text(s)}
}

// sendAll sends as a dispatcher does: again when told to, never before the time named.
func sendAll(t *testing.T, e *env, s *telegram.Sender, clock *patient, n pulse.Notice) notify.Delivery {
	t.Helper()
	var parts []string
	var moved pulse.Address
	for range 100 {
		d := s.Send(e.ctx, n, parts)
		if !d.Moved.Zero() {
			moved = d.Moved
		}
		if d.Outcome != notify.RetryAt && d.Outcome != notify.Pending {
			d.Moved = moved
			return d
		}
		if !moved.Zero() {
			n.Address = moved
		}
		if parts = append(parts[:0:0], parts...); len(d.Parts) > 0 {
			parts = d.Parts
		}
		clock.add(d.RetryAfter)
	}
	t.Fatal("never delivered")
	return notify.Delivery{}
}

// limited is a server that enforces the real limits on the same clock as the sender.
func limited(t *testing.T) (*env, *telegram.Sender, *patient) {
	clock := newPatient()
	e := setup(t, telegramtest.Options{Limits: telegramtest.RealLimits, Now: clock.Now})
	return e, telegram.NewSender(e.client, telegram.SenderConfig{Now: clock.Now, Log: e.slog}), clock
}

func TestSendFormatted(t *testing.T) {
	e, s, _ := limited(t)
	ann := e.srv.User("Ann")
	chat := ann.Private()
	asked := chat.Say(ann, "how?")
	n := text(chat, "")
	n.ReplyTo, n.Silent = strconv.Itoa(asked.ID), true
	n.Message = pulse.Message{
		Spans: []pulse.Span{{Text: "👩‍🚀 "}, {Text: "*Done*_", Style: pulse.StyleBold}, {Text: " <b>& see https://evil.example/?q=1 "},
			{Text: "a.go", Style: pulse.StyleCode}, {Text: "func x() {\n\treturn\n}\n", Style: pulse.StylePre, Lang: "go"}, {Text: "end", Style: pulse.StyleQuote}},
		Buttons: [][]pulse.Button{{{Label: "Yes", Data: "g:1:y"}, {Label: "No", Data: "g:1:n"}, {Label: "broken", Data: strings.Repeat("x", 65)}}},
	}
	d := s.Send(e.ctx, n, nil)
	if d.Outcome != notify.Sent {
		t.Fatalf("%+v", d)
	}
	m, ok := chat.Message(atoi(t, d.ExternalID))
	if !ok || m.ReplyTo != asked.ID || !m.Silent || !m.NoPreview || len(m.Buttons) != 1 || len(m.Buttons[0]) != 2 {
		t.Errorf("%+v", m)
	}
	var got []string
	for _, en := range m.Entities {
		got = append(got, en.Type+en.Language+"="+m.Entity(en))
	}
	if want := "bold=*Done*_ code=a.go prego=func x() {\n\treturn\n} blockquote=end"; strings.Join(got, " ") != want {
		t.Errorf("entities %q, want %q", strings.Join(got, " "), want)
	}
	if c := e.srv.CallsOf("sendMessage")[0]; c.Params["parse_mode"] != "" {
		t.Error("a parse mode was used")
	}
}

func TestLongMessagesBecomeChunksWithinTheLimits(t *testing.T) {
	e, s, clock := limited(t)
	chat := e.srv.User("Ann").Private()
	var lines []string
	for i := range 700 {
		lines = append(lines, fmt.Sprintf("line %d 👨‍👩‍👧 ok", i))
	}
	body := strings.Join(lines, "\n")
	n := text(chat, "")
	n.Message = pulse.Message{Spans: []pulse.Span{{Text: body, Style: pulse.StylePre, Lang: "log"}}, Buttons: [][]pulse.Button{{{Label: "ok", Data: "ok"}}}}
	d := sendAll(t, e, s, clock, n)
	got := chat.FromBot()
	if d.Outcome != notify.Sent || len(got) < 3 || d.ExternalID != strconv.Itoa(got[0].ID) {
		t.Fatalf("%+v, %d messages", d, len(got))
	}
	var all []string
	for i, m := range got {
		all = append(all, m.Text)
		if len(m.Entities) != 1 || m.Entity(m.Entities[0]) != m.Text || m.Entities[0].Language != "log" {
			t.Errorf("chunk %d is not one block: %+v", i, m.Entities)
		}
		if (len(m.Buttons) > 0) != (i == len(got)-1) {
			t.Errorf("chunk %d: buttons %v", i, m.Buttons)
		}
	}
	if strings.Join(all, "\n") != body {
		t.Error("the chunks are not the message")
	}
	for _, c := range e.srv.CallsOf("sendMessage") {
		if c.Status != 200 {
			t.Errorf("a call was refused: %s", c.Error)
		}
	}
}

func TestTooLongIsCutAndSaysSo(t *testing.T) {
	e, s, clock := limited(t)
	chat := e.srv.User("Ann").Private()
	n := text(chat, strings.Repeat("word ", 20000))
	n.SessionID = "01890000-0000-7000-8000-00000abcd123"
	if d := sendAll(t, e, s, clock, n); d.Outcome != notify.Sent {
		t.Fatalf("%+v", d)
	}
	got := chat.FromBot()
	last := got[len(got)-1].Text
	if len(got) != 5 || !strings.HasSuffix(last, "/show 0abcd123 has the rest.") {
		t.Errorf("%d messages, the last ends %q", len(got), last[len(last)-80:])
	}
	shown := 0
	for _, m := range got {
		shown += strings.Count(m.Text, "word")
	}
	var left int
	if _, err := fmt.Sscanf(last[strings.Index(last, "cut here: "):], "cut here: %d more", &left); err != nil || left/5+shown < 19990 || left/5+shown > 20010 {
		t.Errorf("%d words shown and %d characters said to be left: %v", shown, left, err)
	}
	live := text(chat, strings.Repeat("word ", 20000))
	live.Editable = true
	if d := sendAll(t, e, s, clock, live); d.Outcome != notify.Sent || len(chat.FromBot()) != 6 {
		t.Errorf("a live message became %d messages: %+v", len(chat.FromBot())-5, d)
	}
}

func TestChunksGoOnWhereTheyStopped(t *testing.T) {
	e, s, clock := limited(t)
	chat := e.srv.User("Ann").Private()
	n := text(chat, strings.Repeat("a", 4096)+strings.Repeat("b", 4096)+"c")
	e.srv.Inject(telegramtest.Fault{Method: "sendMessage", Skip: 1, RetryAfter: 7})
	first := s.Send(e.ctx, n, nil)
	if first.Outcome != notify.Pending || first.ExternalID == "" || len(first.Parts) != 1 {
		t.Fatalf("%+v", first)
	}
	clock.add(first.RetryAfter)
	refused := s.Send(e.ctx, n, first.Parts)
	if refused.Outcome != notify.RetryAt || refused.RetryAfter != 7*time.Second || refused.ExternalID != first.ExternalID {
		t.Fatalf("%+v", refused)
	}
	if ready := s.Ready(n.Address, false); ready.Sub(clock.Now()) < 7*time.Second {
		t.Errorf("ready %v after a retry_after of 7 s", ready.Sub(clock.Now()))
	}
	if early := s.Send(e.ctx, n, refused.Parts); early.Outcome != notify.Pending || len(e.srv.CallsOf("sendMessage")) != 2 {
		t.Errorf("sent before the time named: %+v", early)
	}
	clock.add(refused.RetryAfter)
	again := telegram.NewSender(e.client, telegram.SenderConfig{Now: clock.Now}) // as after a restart
	second := again.Send(e.ctx, n, refused.Parts)
	clock.add(second.RetryAfter)
	d := again.Send(e.ctx, n, second.Parts)
	if second.Outcome != notify.Pending || d.Outcome != notify.Sent || d.ExternalID != first.ExternalID || len(d.Parts) != 3 {
		t.Fatalf("%+v, then %+v", second, d)
	}
	if over := again.Send(e.ctx, n, d.Parts); over.Outcome != notify.Sent || len(chat.FromBot()) != 3 {
		t.Errorf("a message that is there already: %+v", over)
	}
	var heads string
	for _, m := range chat.FromBot() {
		heads += m.Text[:1]
	}
	if heads != "abc" {
		t.Errorf("chunks arrived as %s", heads)
	}
}

func TestEdits(t *testing.T) {
	e, s, clock := limited(t)
	chat := e.srv.User("Ann").Private()
	n := text(chat, "working")
	n.Editable = true
	n.ExternalID = sendAll(t, e, s, clock, n).ExternalID
	n.Message = pulse.Text("working more")
	if d := s.Send(e.ctx, n, nil); d.Outcome != notify.Pending || d.RetryAfter > 2*time.Second {
		t.Errorf("an edit within the same second: %+v", d)
	}
	if d := sendAll(t, e, s, clock, n); d.Outcome != notify.Sent || d.ExternalID != n.ExternalID {
		t.Errorf("%+v", d)
	}
	if d := sendAll(t, e, s, clock, n); d.Outcome != notify.Sent || d.Err != nil {
		t.Errorf("an edit that changes nothing: %+v", d)
	}
	if got := chat.FromBot(); len(got) != 1 || got[0].Text != "working more" || len(got[0].Edits) != 1 {
		t.Errorf("%+v", got)
	}
	n.Message = pulse.Text("and more")
	e.srv.Inject(telegramtest.Fault{Method: "editMessageText", Cut: true, Applied: true})
	if d := sendAll(t, e, s, clock, n); d.Outcome != notify.Transient {
		t.Errorf("an edit whose answer was lost can simply be repeated: %+v", d)
	}
	if d := sendAll(t, e, s, clock, n); d.Outcome != notify.Sent {
		t.Errorf("%+v", d)
	}
	chat.Delete(atoi(t, n.ExternalID))
	n.Message = pulse.Text("gone?")
	if d := sendAll(t, e, s, clock, n); d.Outcome != notify.LostEdit {
		t.Errorf("the message was deleted: %+v", d)
	}
	n.ExternalID = "not a number"
	if d := s.Send(e.ctx, n, nil); d.Outcome != notify.LostEdit {
		t.Errorf("%+v", d)
	}
}

func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		fault telegramtest.Fault
		want  notify.Outcome
	}{
		"429":            {telegramtest.Fault{RetryAfter: 30}, notify.RetryAt},
		"500":            {telegramtest.Fault{Status: 500}, notify.Transient},
		"503":            {telegramtest.Fault{Status: 503}, notify.Transient},
		"proxy page":     {telegramtest.Fault{HTML: true}, notify.Ambiguous},
		"504":            {telegramtest.Fault{Status: 504}, notify.Ambiguous},
		"cut after":      {telegramtest.Fault{Cut: true, Applied: true}, notify.Ambiguous},
		"hang":           {telegramtest.Fault{Hang: true}, notify.Ambiguous},
		"hang after":     {telegramtest.Fault{Hang: true, Applied: true}, notify.Ambiguous},
		"token revoked":  {telegramtest.Fault{Status: 401, Description: "Unauthorized"}, notify.Transient},
		"no rights":      {telegramtest.Fault{Status: 400, Description: "Bad Request: not enough rights to send text messages to the chat"}, notify.Refused},
		"bare 429":       {telegramtest.Fault{Status: 429}, notify.RetryAt},
		"kicked":         {telegramtest.Fault{Status: 403, Description: "Forbidden: bot was kicked"}, notify.Refused},
		"entity refused": {telegramtest.Fault{Status: 400, Description: "Bad Request: ENTITIES_TOO_LONG"}, notify.Sent},
	} {
		t.Run(name, func(t *testing.T) {
			e := setup(t, telegramtest.Options{})
			client, err := telegram.New(telegram.Config{Token: e.srv.Token(), APIURL: e.srv.URL(), CallTimeout: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			s := telegram.NewSender(client, telegram.SenderConfig{})
			c.fault.Method = "sendMessage"
			e.srv.Inject(c.fault)
			d := s.Send(e.ctx, text(e.srv.User("Ann").Private(), "x"), nil)
			if d.Outcome != c.want || (d.Err == nil) != (d.Outcome == notify.Sent) {
				t.Errorf("%+v, want %s", d, c.want)
			}
			if d.Outcome == notify.RetryAt && d.RetryAfter <= 0 {
				t.Error("no time to wait")
			}
			noToken(t, d.Err, e.srv.Token())
		})
	}
}

func TestNothingWasSentWhenNobodyListens(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	n := text(e.srv.User("Ann").Private(), "x")
	e.srv.Close()
	d := telegram.NewSender(e.client, telegram.SenderConfig{}).Send(e.ctx, n, nil)
	if d.Outcome != notify.Transient {
		t.Errorf("%+v", d)
	}
}

func TestPlacesThatAreGone(t *testing.T) {
	e, s, clock := limited(t)
	ann := e.srv.User("Ann")
	blocked := ann.Private()
	ann.Block(true)
	if d := sendAll(t, e, s, clock, text(blocked, "x")); d.Outcome != notify.Refused || !strings.Contains(d.Err.Error(), "blocked") {
		t.Errorf("blocked: %+v", d)
	}
	if d := s.Send(e.ctx, pulse.Notice{Address: pulse.Address{Chat: "@name"}, Message: pulse.Text("x")}, nil); d.Outcome != notify.Permanent {
		t.Errorf("name as chat: %+v", d)
	}
	if d := s.Send(e.ctx, pulse.Notice{Address: pulse.Address{Chat: "12"}, Message: pulse.Text("x")}, nil); d.Outcome != notify.Permanent {
		t.Errorf("unknown chat: %+v", d)
	}
	if d := s.Send(e.ctx, text(blocked, " \u200d\n"), nil); d.Outcome != notify.Permanent {
		t.Errorf("nothing to see: %+v", d)
	}

	old := e.srv.Group("old", false)
	live := text(old, "progress")
	live.Editable = true
	live.ExternalID = sendAll(t, e, s, clock, live).ExternalID
	moved := old.Migrate(ann)
	d := sendAll(t, e, s, clock, text(old, "hello"))
	if d.Outcome != notify.Sent || d.Moved != address(moved) || len(moved.FromBot()) != 1 {
		t.Errorf("migrated: %+v", d)
	}
	live.Message = pulse.Text("progress 2")
	if d := sendAll(t, e, s, clock, live); d.Outcome != notify.LostEdit || d.Moved != address(moved) {
		t.Errorf("edit in a migrated group: %+v", d)
	}

	for name, end := range map[string]func(forum *telegramtest.Chat, thread int){
		"deleted": func(f *telegramtest.Chat, th int) { f.DeleteTopic(th) },
		"closed":  func(f *telegramtest.Chat, th int) { f.CloseTopic(ann, th) },
	} {
		forum := e.srv.Group("forum "+name, true)
		topic := forum.Topic(ann, "work")
		end(forum, topic.Thread())
		d := sendAll(t, e, s, clock, text(topic, "the result"))
		got := forum.FromBot()
		if d.Outcome != notify.Sent || d.Moved != address(forum) || len(got) != 1 ||
			!strings.HasPrefix(got[0].Text, "The topic this belongs to is closed or gone.") || !strings.HasSuffix(got[0].Text, "the result") {
			t.Errorf("%s topic: %+v, %+v", name, d, got)
		}
	}
}

func TestReplyToSomethingGoneIsStillDelivered(t *testing.T) {
	e, s, clock := limited(t)
	chat := e.srv.User("Ann").Private()
	n := text(chat, "x")
	n.ReplyTo = "4711"
	if d := sendAll(t, e, s, clock, n); d.Outcome != notify.Sent {
		t.Errorf("%+v", d)
	}
}

func TestOutgoingTextIsNeutralised(t *testing.T) {
	e, s, clock := limited(t)
	chat := e.srv.User("Ann").Private()
	n := text(chat, "")
	n.Message.Spans = []pulse.Span{{Text: "\x1b[31mred\x1b[0m \x1b]52;c;ZXZpbA==\x07a\u202Eb\x00\x07 e" + strings.Repeat("\u0301", 50)}}
	if d := sendAll(t, e, s, clock, n); d.Outcome != notify.Sent {
		t.Fatalf("%+v", d)
	}
	if got, want := chat.FromBot()[0].Text, "red a<U+202E>b e"+strings.Repeat("\u0301", 8); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A busy hour: progress in many chats, finals among it; the platform never has to say 429, and no final waits for an edit's sake.
func TestSteadyStateNever429(t *testing.T) {
	e, s, clock := limited(t)
	type live struct {
		n      pulse.Notice
		chat   *telegramtest.Chat
		finals int
	}
	var chats []*live
	for i := range 6 {
		c := e.srv.User(fmt.Sprint("u", i)).Private()
		if i%2 == 0 {
			c = e.srv.Supergroup(fmt.Sprint("g", i))
		}
		n := text(c, "progress")
		n.Editable = true
		chats = append(chats, &live{n: n, chat: c})
	}
	waited := time.Duration(0)
	for step := range 900 {
		clock.add(100 * time.Millisecond)
		for i, l := range chats {
			if step%300 == 10*i {
				before := clock.Now()
				if d := sendAll(t, e, s, clock, text(l.chat, fmt.Sprint("final ", step))); d.Outcome != notify.Sent {
					t.Fatalf("%+v", d)
				}
				waited = max(waited, clock.Now().Sub(before))
				l.finals++
			}
			if s.Ready(l.n.Address, l.n.ExternalID != "").After(clock.Now()) {
				continue
			}
			l.n.Message = pulse.Text(fmt.Sprint("progress ", step))
			l.n.Revision++
			if d := s.Send(e.ctx, l.n, nil); d.Outcome == notify.Sent {
				l.n.ExternalID = d.ExternalID
			} else if d.Outcome != notify.Pending {
				t.Fatalf("%+v", d)
			}
		}
	}
	for _, c := range e.srv.Calls() {
		if c.Status != 200 {
			t.Fatalf("%s was refused: %d %s", c.Method, c.Status, c.Error)
		}
	}
	if waited > 1100*time.Millisecond {
		t.Errorf("a final waited %v", waited)
	}
	if n := len(e.srv.CallsOf("editMessageText")); n < 200 {
		t.Errorf("only %d edits: the limiter is too timid", n)
	}
	for _, l := range chats {
		if got := len(l.chat.FromBot()); got != l.finals+1 {
			t.Errorf("%d messages for %d finals and one live message", got, l.finals)
		}
	}
}

func TestUnitsAreUTF16(t *testing.T) {
	e, s, clock := limited(t)
	chat := e.srv.User("Ann").Private()
	for name, body := range map[string]string{
		"4096 letters":   strings.Repeat("a", 4096),
		"2048 emoji":     strings.Repeat("👍", 2048),
		"2049 emoji":     strings.Repeat("👍", 2049),
		"families":       strings.Repeat("👨‍👩‍👧‍👦", 1000),
		"flags":          strings.Repeat("🇩🇪", 2000),
		"odd flags":      "a" + strings.Repeat("🇩🇪", 2000),
		"skin tones":     strings.Repeat("👍🏽", 3000),
		"combined":       strings.Repeat("e\u0301\u0302", 3000),
		"only zwj chain": strings.Repeat("👩\u200d", 3000) + "👩",
	} {
		before := len(chat.FromBot())
		if d := sendAll(t, e, s, clock, text(chat, body)); d.Outcome != notify.Sent {
			t.Fatalf("%s: %+v", name, d)
		}
		var all string
		for _, m := range chat.FromBot()[before:] {
			if n := len(utf16.Encode([]rune(m.Text))); n > 4096 {
				t.Errorf("%s: %d units", name, n)
			}
			all += m.Text
			if name != "only zwj chain" && before+1 < len(chat.FromBot()) {
				wholeSymbols(t, name, m.Text)
			}
		}
		if all != body {
			t.Errorf("%s: text changed on the way", name)
		}
	}
}

func wholeSymbols(t *testing.T, name, s string) {
	t.Helper()
	units := map[string]string{"families": "👨‍👩‍👧‍👦", "flags": "🇩🇪", "odd flags": "🇩🇪", "skin tones": "👍🏽", "combined": "e\u0301\u0302"}
	if u := units[name]; u != "" && strings.TrimPrefix(strings.ReplaceAll(s, u, ""), "a") != "" {
		t.Errorf("%s: a symbol was split: %q", name, strings.ReplaceAll(s, u, ""))
	}
}

var _ notify.Sender = (*telegram.Sender)(nil)
