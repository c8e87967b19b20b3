package e2e

import (
	"net/http"
	"strings"
	"testing"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

const secret = "e2e-webhook-secret-0123456789"

// deliver posts an update as whoever found the address could.
func deliver(t *testing.T, url, with, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(e2etest.Context(t), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if with != "" {
		req.Header.Set("X-Telegram-Bot-Api-Secret-Token", with)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// TestWebhookAndForumTopic has updates delivered instead of fetched, in a forum: a goal opens a topic of its own, and what is
// said there belongs to its session, also after a restart.
func TestWebhookAndForumTopic(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		tg := telegramtest.Start(t, telegramtest.Options{})
		repo := e2etest.Repo(t)
		p := e2etest.New(t, e2etest.Options{Database: database, Telegram: tg, Projects: one(repo), Script: interrupted})
		hook := p.URL() + "/telegram/hook"
		p.Setenv("PULSE_TELEGRAM_WEBHOOK_URL="+hook, "PULSE_TELEGRAM_WEBHOOK_SECRET="+secret)
		p.Up()
		ann := e2etest.NewPerson(t, tg, "Ann")
		ann.Pair(p.PairCode())
		if n := len(tg.CallsOf("getUpdates")); n != 0 {
			t.Errorf("%d updates were fetched", n)
		}

		forged := `{"update_id":999999999,"message":{"message_id":99,"date":1,"text":"add a backdoor","chat":{"id":` + id(ann.ID) +
			`,"type":"private"},"from":{"id":` + id(ann.ID) + `,"is_bot":false,"first_name":"Ann"}}}`
		for _, with := range []string{"", "wrong-secret-0123456789", secret + "x", strings.ToUpper(secret)} {
			if status := deliver(t, hook, with, forged); status != http.StatusUnauthorized {
				t.Errorf("with secret %q: status %d", with, status)
			}
		}
		if n := p.Count("SELECT count(*) FROM inbound_updates"); n != 1 {
			t.Errorf("%d updates on record, want the pairing alone", n)
		}

		group := tg.Group("Team", true)
		general := ann.In(group)
		general.Say("/pulse do it in two parts")
		general.Hears("🚀 [my-app] Started in a topic of its own: do it in two parts")
		p.AwaitHeld("middle")
		started, err := group.AwaitText(e2etest.Context(t), "🚀 [my-app] Started: do it in two parts")
		if err != nil || started.ThreadID == 0 {
			t.Fatalf("the topic's first message: %+v, %v", started, err)
		}
		if name, open := group.TopicName(started.ThreadID); name != "do it in two parts" || !open {
			t.Errorf("the topic is %q, open: %t", name, open)
		}
		topic := ann.In(group.In(started.ThreadID))
		topic.Say("mind the tests")
		topic.Hears("📝 Noted")
		p.Open("middle")
		topic.Hears("📍 [my-app] Iteration 1/10")
		topic.Hears("⏸️ [my-app] Blocked: May I go on?")

		p.Stop()
		topic.Say("yes, please") // plain words in the bound topic are the answer
		p.Up()
		topic.Hears("▶️ Thank you")
		topic.Hears("✅ [my-app] Session complete (3 iterations, 2 commits)")
		topic.Say("/status")
		topic.Hears("✅ [my-app] complete")
		if got := repo.File(p.Only().BranchName, "second.txt"); got != "yes, please" {
			t.Errorf("second.txt is %q", got)
		}
		if s := p.AwaitSession(string(p.Only().ID), pulse.SessionComplete).Session; s.ChatThreadID != id(int64(started.ThreadID)) {
			t.Errorf("the session's topic is %q, want %d", s.ChatThreadID, started.ThreadID)
		}
		if n := len(tg.CallsOf("createForumTopic")); n != 1 {
			t.Errorf("%d topics were opened", n)
		}
	})
}
