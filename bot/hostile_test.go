package bot_test

import (
	"strings"
	"testing"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// Whoever has no say decides nothing, whatever kind of event it is and however real the button is.
func TestNobodyElseDecides(t *testing.T) {
	b := ann(t)
	b.w.AddOperator(pulse.PlatformTelegram, "3", "Vi", pulse.RoleViewer)
	s := b.running("a goal")
	gate, msg := b.w.Block(s.ID, "10 iterations are used up", pulse.GateOption{Key: "more", Label: "10 more"}, pulse.GateOption{Key: "stop", Label: "Stop"})
	senders := map[string]bot.Sender{
		"a stranger":                    {UserID: "99", Name: "Ann"},
		"a stranger named like an id":   {UserID: "98", Name: "1"},
		"a viewer":                      {UserID: "3", Name: "Vi"},
		"a bot":                         {UserID: "97", Name: "Loop", Bot: true},
		"a bot with an operator's id":   {UserID: "1", Name: "Ann", Bot: true},
		"nobody (an anonymous admin)":   {},
		"an id with a space":            {UserID: " 1"},
		"an id with a sign":             {UserID: "+1"},
		"an id that ends like Ann's is": {UserID: "01"},
	}
	events := map[string]func(*bot.Event){
		"a press":             func(e *bot.Event) { e.Kind, e.Data = bot.KindPress, "g:"+string(gate.ID)+":stop" },
		"a press elsewhere":   func(e *bot.Event) { e.Kind, e.Data, e.Address = bot.KindPress, "g:"+string(gate.ID)+":stop", at("-7") },
		"a reply":             func(e *bot.Event) { e.Text, e.ReplyTo = "stop", msg },
		"plain words":         func(e *bot.Event) { e.Text = "stop" },
		"a command":           func(e *bot.Event) { e.Text = "/abort" },
		"an edit":             func(e *bot.Event) { e.Kind, e.Text = bot.KindEdit, "/abort" },
		"forwarded":           func(e *bot.Event) { e.Text, e.Forwarded = "/abort", true },
		"a huge text":         func(e *bot.Event) { e.Text = "/abort " + strings.Repeat("x", 100_000) },
		"for another bot":     func(e *bot.Event) { e.Text, e.OtherBot = "/abort@other_bot", true },
		"a code of somebody":  func(e *bot.Event) { e.Text = "/pair AAAA-BBBB-CCCC" },
		"a start of nobody's": func(e *bot.Event) { e.Text = "/start" },
	}
	for who, sender := range senders {
		for what, change := range events {
			e := b.event("1", "1", "")
			change(&e)
			e.Sender = sender
			id := b.put(e)
			b.run()
			if !b.w.Handled(id) {
				t.Errorf("%s by %s was not brought to its end", what, who)
			}
			if got := b.session(s.ID); got.Status != pulse.SessionBlocked || len(got.Inputs) != 0 {
				t.Fatalf("%s by %s made the session %s with %d inputs", what, who, got.Status, len(got.Inputs))
			}
		}
	}
	if n := len(b.w.AllSessions()); n != 1 {
		t.Errorf("%d sessions", n)
	}
	want(t, b.press("1", "1", "g:"+string(gate.ID)+":more"), "10 more")
}
