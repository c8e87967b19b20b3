package chaos

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
)

var stepShape = regexp.MustCompile(`step\d\d`)

// TestProgressIsSeenSoon is M18: how long it takes from what an agent does to the call that shows it, in a private chat and in a
// group, with a platform that enforces its published limits.
func TestProgressIsSeenSoon(t *testing.T) {
	t.Parallel()
	steps := 12
	if *longFlag {
		steps = 90
	}
	script := "iterations:\n"
	for i := range steps {
		mark := "    "
		if i == 0 {
			mark = "  - "
		}
		script += fmt.Sprintf("%s- run: \"sleep 0.5; : step%02d\"\n", mark, i)
	}
	script += "    - say: \"All steps are taken.\"\n    - signal: COMPLETE\n"
	tg := telegramtest.Start(t, telegramtest.Options{Limits: telegramtest.RealLimits})
	p := e2etest.Start(t, e2etest.Options{Script: script, Telegram: tg, Projects: map[string]*e2etest.Repository{"my-app": e2etest.Repo(t)},
		Config: "daemon: {slots: 2}\n"})
	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(p.PairCode())
	group := ann.In(tg.Group("Team", false))
	quiet, over := context.WithTimeout(t.Context(), 1200*time.Millisecond) // the welcome is no part of this
	defer over()
	<-quiet.Done()
	for _, who := range []*e2etest.Person{ann, group} {
		who.Say("/pulse take every step")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, who := range []*e2etest.Person{ann, group} {
		if _, err := who.Chat.AwaitText(ctx, "✅"); err != nil {
			t.Fatal(err)
		}
	}
	db := p.DB()
	for name, chat := range map[string]int64{"private": ann.Chat.ID, "group": group.Chat.ID} {
		rows, err := db.QueryContext(t.Context(), "SELECT e.at, e.data FROM events e JOIN pulse_sessions s ON s.id = e.session_id WHERE e.type = 'turn:tool_started' AND s.chat_id = ? ORDER BY e.seq", fmt.Sprint(chat))
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		did := map[string]time.Time{}
		var first, seen time.Time
		for rows.Next() {
			var at int64
			var data string
			if err := rows.Scan(&at, &data); err != nil {
				t.Fatal(err)
			}
			if first.IsZero() {
				first = time.UnixMicro(at)
			}
			did[stepShape.FindString(data)] = time.UnixMicro(at)
		}
		var shown spread
		calls, refused, over := 0, 0, false
		for _, k := range tg.Calls() {
			text := k.Params["text"]
			if k.ChatID != chat {
				continue
			}
			if k.Status == 429 {
				refused++
			}
			over = over || k.Effect && strings.HasPrefix(text, "✅")
			if !k.Effect || !strings.HasPrefix(text, "⚙️") {
				continue
			}
			if over {
				t.Errorf("%s: %q came after the outcome", name, text)
			}
			if calls++; seen.IsZero() {
				seen = k.At
			}
			for _, step := range stepShape.FindAllString(text, -1) {
				if at, ok := did[step]; ok {
					shown = append(shown, k.At.Sub(at))
					delete(did, step) // the first call that shows it counts
				}
			}
		}
		t.Logf("%s: the first sign %s after the first step; %d calls; a step was to be seen after %v; %d scrolled by; %d calls were answered 429",
			name, seen.Sub(first).Round(time.Millisecond), calls, shown, len(did), refused)
		// Generous, for busy machines.
		if len(shown) == 0 || seen.Sub(first) > 20*time.Second {
			t.Errorf("%s: progress was not seen in time", name)
		}
	}
	retryAfterObeyed(t, tg)
}
