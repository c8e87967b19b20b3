package bot_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// A message whose handling failed stays in front of the later ones of its chat, also for a process that knows nothing of it.
func TestTheOrderOfAChatOutlivesTheProcess(t *testing.T) {
	b := ann(t)
	b.w.FailApply(errDown)
	one := b.put(b.event("1", "1", "a goal"))
	b.run()
	b.restart() // killed before the next try
	two := b.put(b.event("1", "1", "and guidance"))
	other := b.put(b.event("2", "1", "/list"))
	b.run()
	if b.w.Handled(one) || b.w.Handled(two) {
		t.Fatal("the second message overtook the first")
	}
	if !b.w.Handled(other) {
		t.Error("another chat waits for it")
	}
	b.restart()
	b.later(5 * time.Second)
	for range 3 {
		b.run()
	}
	if all := b.w.AllSessions(); len(all) != 1 || all[0].Goal != "a goal" || len(all[0].Inputs) != 1 {
		t.Errorf("sessions: %+v", all)
	}
}

// Whatever fails, and whenever the process is killed, each chat's messages have their effects in the order they were said.
func TestOrderUnderFailuresAndRestarts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	b := ann(t)
	said := map[string][]string{}
	for _, c := range []string{"1", "2", "3"} {
		b.say(c, "1", "a goal of chat "+c)
	}
	for step := range 400 {
		if step < 150 {
			c := fmt.Sprint(1 + dice.IntN(3))
			word := fmt.Sprintf("word%03d", step)
			said[c] = append(said[c], word)
			b.put(b.event(c, "1", word))
			if dice.IntN(3) == 0 {
				b.w.FailApply(errDown)
			}
		}
		if dice.IntN(4) == 0 {
			b.restart()
		}
		b.later(time.Duration(dice.IntN(4)) * time.Second)
		b.run()
	}
	for _, s := range b.w.AllSessions() {
		var got []string
		for _, in := range s.Inputs {
			got = append(got, in.Text)
		}
		if want := strings.Join(said[s.ChatID], " "); strings.Join(got, " ") != want {
			t.Errorf("chat %s said %s\nand the session has %s", s.ChatID, want, strings.Join(got, " "))
		}
	}
}

func TestAChatThatRefusedIsTriedAgainWhenSomebodyWrites(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bot.Event)
		want   bool
	}{
		"a message":             {func(*bot.Event) {}, true},
		"a button":              {func(e *bot.Event) { e.Kind, e.Data = bot.KindPress, "g:1:y" }, true},
		"let in again":          {func(e *bot.Event) { e.Kind, e.Back = bot.KindIgnored, true }, true},
		"in one of its threads": {func(e *bot.Event) { e.Address.Thread = "7" }, true},
		"blocked":               {func(e *bot.Event) { e.Kind = bot.KindIgnored }, false},
		"another chat":          {func(e *bot.Event) { e.Address.Chat = "2" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := ann(t)
			b.w.Refuse(at("1"))
			e := b.event("1", "1", "/list")
			c.change(&e)
			b.put(e)
			b.run()
			if b.w.Refusing(at("1")) == c.want {
				t.Errorf("released: %v, want %v", !c.want, c.want)
			}
		})
	}
}

func TestTheListShowsWhoCannotBeTold(t *testing.T) {
	b := ann(t)
	b.say("1", "1", "a goal")
	if got := b.say("2", "1", "/list"); strings.Contains(got, "takes no messages") {
		t.Errorf("the list: %s", got)
	}
	b.w.Refuse(at("1"))
	want(t, b.say("2", "1", "/list"), "a goal (🔇 its chat takes no messages from me)")
}

func TestAMovedChatKeepsItsBindingAndItsPeople(t *testing.T) {
	b := ann(t)
	b.say("-1", "1", "a goal")
	e := bot.Event{Kind: bot.KindMoved, Platform: pulse.PlatformTelegram, Address: at("-1"), To: at("-1001")}
	b.w.FailApply(errors.New("killed in between"))
	b.put(e)
	b.put(e) // the old group and the new one both tell it
	for range 4 {
		b.run()
		b.restart()
		b.later(2 * time.Second)
	}
	all := b.w.AllSessions()
	if len(all) != 1 || all[0].ChatID != "-1001" {
		t.Fatalf("sessions: %+v", all)
	}
	if ch, err := b.w.Channel(t.Context(), at("-1001")); err != nil || ch.SessionID != all[0].ID || ch.ProjectID != all[0].ProjectID {
		t.Errorf("the new address is bound to %+v: %v", ch, err)
	}
	want(t, b.say("-1001", "1", "use tabs"), "Noted")
}
