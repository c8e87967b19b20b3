package telegram_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"pulseloop/bot"
	"pulseloop/bot/telegram"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/pulse"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, cfg := range map[string]telegram.Config{
		"no token":    {},
		"no shape":    {Token: "hello"},
		"a space":     {Token: telegramtest.DefaultToken + " "},
		"api path":    {Token: telegramtest.DefaultToken, APIURL: "api.telegram.org"},
		"api scheme":  {Token: telegramtest.DefaultToken, APIURL: "ftp://x"},
		"credentials": {Token: telegramtest.DefaultToken, APIURL: "https://u:p@x"},
	} {
		_, err := telegram.New(cfg)
		if pulse.CodeOf(err) != pulse.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), secretPart(telegramtest.DefaultToken)) {
			t.Errorf("%s: the error shows the token", name)
		}
	}
}

func TestCheckExplains(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	if name, err := e.client.Check(e.ctx); err != nil || name != e.srv.Username() {
		t.Fatalf("%q %v", name, err)
	}
	wrong := "4000000001:AA-wrong-wrong-wrong-wrong"
	c, err := telegram.New(telegram.Config{Token: wrong, APIURL: e.srv.URL(), Log: e.slog})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Check(e.ctx)
	var said *pulse.Error
	if !errors.As(err, &said) || said.Code != pulse.CodeUnauthorized || !strings.Contains(said.Hint, "@BotFather") {
		t.Errorf("bad token: %v", err)
	}
	e.srv.Inject(telegramtest.Fault{Method: "getMe", Cut: true})
	_, err = e.client.Check(e.ctx)
	if pulse.CodeOf(err) != pulse.CodeUnavailable {
		t.Errorf("cut: %v", err)
	}
	e.srv.Close()
	_, err = e.client.Check(e.ctx)
	if pulse.CodeOf(err) != pulse.CodeUnavailable {
		t.Errorf("away: %v", err)
	}
	noToken(t, err, e.srv.Token())
}

// noToken looks at every error of a chain, and at the parts of those that carry a URL.
func noToken(t *testing.T, err error, token string) {
	t.Helper()
	var ue *url.Error
	if errors.As(err, &ue) && strings.Contains(ue.URL, secretPart(token)) {
		t.Errorf("token in the URL of %v", ue)
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, secretPart(token)) {
			t.Errorf("token in %s", text)
		}
	}
}

func TestErrorsNeverShowTheToken(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	chat := e.srv.User("Ann").Private()
	s := telegram.NewSender(e.client, telegram.SenderConfig{})
	e.srv.Inject(telegramtest.Fault{Method: "sendMessage", Cut: true})
	noToken(t, s.Send(e.ctx, text(chat, "x"), nil).Err, e.srv.Token())
	e.srv.Inject(telegramtest.Fault{Method: "sendMessage", Status: 418, Description: "no path /bot" + e.srv.Token() + "/sendMessage"})
	if d := s.Send(e.ctx, text(e.srv.User("Bob").Private(), "x"), nil); strings.Contains(d.Err.Error(), secretPart(e.srv.Token())) {
		t.Errorf("token in %v", d.Err)
	}
	p := telegram.NewPoller(e.client, newIntake(), quick())
	e.srv.Inject(telegramtest.Fault{Method: "getUpdates", Cut: true})
	_, err := p.RunOnce(e.ctx)
	if err == nil {
		t.Fatal("a cut poll gave no error")
	}
	noToken(t, err, e.srv.Token())
	e.srv.Inject(telegramtest.Fault{Method: "getUpdates", Status: 400, Description: "no such path /bot" + e.srv.Token()})
	_, err = p.RunOnce(e.ctx)
	noToken(t, err, e.srv.Token())
}

func TestSetCommands(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	if err := e.client.SetCommands(e.ctx, []telegram.Command{{"status", "What runs"}, {"list", strings.Repeat("é", 300)}}); err != nil {
		t.Fatal(err)
	}
	got := e.srv.Commands()
	if len(got) != 2 || got[0].Command != "status" || len([]rune(got[1].Description)) != 256 {
		t.Errorf("%+v", got)
	}
	for _, bad := range []telegram.Command{{"Status", "x"}, {"a b", "x"}, {"", "x"}, {"x", " "}, {strings.Repeat("a", 33), "x"}} {
		if err := e.client.SetCommands(e.ctx, []telegram.Command{bad}); pulse.CodeOf(err) != pulse.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestAcknowledge(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	ann := e.srv.User("Ann")
	cb := ann.Private().PressData(ann, 1, "g:1")
	e.client.Acknowledge(e.ctx, bot.Event{CallbackID: cb.ID}, "Approved")
	if text, _, ok := cb.Answered(); !ok || text != "Approved" {
		t.Errorf("answered %v %q", ok, text)
	}
	e.client.Acknowledge(e.ctx, bot.Event{CallbackID: cb.ID}, "twice") // too old: no loss, no panic
	e.client.Acknowledge(e.ctx, bot.Event{}, "nothing to answer")
	if n := len(e.srv.CallsOf("answerCallbackQuery")); n != 2 {
		t.Errorf("%d calls", n)
	}
}

func TestOpenTopic(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	forum := e.srv.Group("forum", true)
	in := address(forum)
	topic, ok, err := e.client.OpenTopic(e.ctx, in, "Add a health\nendpoint "+strings.Repeat("x", 200))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if name, open := forum.TopicName(atoi(t, topic.Thread)); !open || !strings.HasPrefix(name, "Add a health endpoint x") {
		t.Errorf("topic %q", name)
	}
	for name, a := range map[string]pulse.Address{
		"private":    address(e.srv.User("Ann").Private()),
		"group":      address(e.srv.Group("g", false)),
		"no forum":   address(e.srv.Supergroup("s")),
		"in a topic": topic,
	} {
		if _, ok, err := e.client.OpenTopic(e.ctx, a, "x"); ok || err != nil {
			t.Errorf("%s: %v %v", name, ok, err)
		}
	}
	e.srv.Inject(telegramtest.Fault{Method: "createForumTopic", Status: 500})
	if _, _, err := e.client.OpenTopic(e.ctx, in, "x"); pulse.CodeOf(err) != pulse.CodeUnavailable {
		t.Errorf("500: %v", err)
	}
}

func TestCallsAreBounded(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	c, err := telegram.New(telegram.Config{Token: e.srv.Token(), APIURL: e.srv.URL(), CallTimeout: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	e.srv.Inject(telegramtest.Fault{Method: "getMe", Hang: true})
	if _, err := c.Check(e.ctx); pulse.CodeOf(err) != pulse.CodeUnavailable {
		t.Errorf("hang: %v", err)
	}
}
