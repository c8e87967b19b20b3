package chaos

import (
	"context"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"pulseloop/bot/telegram/telegramtest"
)

// Phases of a run. People read the phase before they speak.
const (
	talking int32 = iota // new goals, answers, all of it
	quiet                // nobody speaks any more
)

// talk is what happens in one chat: its people start a goal, hear what becomes of it, and speak again.
type talk struct {
	o     *oracle
	tg    *telegramtest.Server
	chat  *telegramtest.Chat
	users []*telegramtest.User
	dice  *rand.Rand
	phase *atomic.Int32
	deaf  bool // starts goals and hears nothing, as somebody does who blocked the bot

	heard   int       // the id of the last message read
	busy    bool      // a conversation is open
	since   time.Time // when it last moved
	presses int
}

// patience is after how long people begin anew when nothing comes back; the old goal goes on all the same.
const patience = 45 * time.Second

// run talks until everybody is to be quiet.
func (k *talk) run(ctx context.Context) {
	for ctx.Err() == nil && k.phase.Load() == talking {
		if !k.busy || time.Since(k.since) > patience {
			k.begin()
		}
		k.listen(ctx)
	}
}

// begin says a new goal.
func (k *talk) begin() {
	word, tag := kinds[k.dice.IntN(len(kinds))], k.o.tag()
	if k.deaf {
		word = "quick"
	}
	text := "/pulse " + word + " " + tag
	if !k.deaf && k.dice.IntN(4) == 0 {
		text = word + " " + tag // a goal too, if nothing is going on
	}
	k.busy, k.since = true, time.Now()
	k.say("goal", tag, text, 0)
}

func (k *talk) say(kind, tag, text string, reply int) {
	u := k.users[k.dice.IntN(len(k.users))]
	k.o.say(said{Tag: tag, Kind: kind, Chat: k.chat.ID, Who: u.FirstName, Text: text})
	if reply != 0 {
		k.chat.Reply(u, reply, text)
		return
	}
	k.chat.Say(u, text)
}

// listen waits for messages of the bot for a while, and reacts to each.
func (k *talk) listen(ctx context.Context) {
	if k.deaf {
		ctx, cancel := context.WithTimeout(ctx, between(k.dice, 6*time.Second, 12*time.Second))
		defer cancel()
		<-ctx.Done()
		k.busy = false
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var news []telegramtest.Message
	_ = k.tg.Await(ctx, func() bool {
		news = k.chat.MessagesAfter(k.heard)
		return len(news) > 0
	})
	for _, m := range news {
		if k.phase.Load() != talking {
			return
		}
		k.heard, k.since = m.ID, time.Now()
		k.react(m)
	}
}

var (
	resumeCommand = regexp.MustCompile(`/resume (\S+)`)
	answerCommand = regexp.MustCompile(`/answer (\S+)`)
)

func (k *talk) react(m telegramtest.Message) {
	switch text := m.Text; {
	case strings.HasPrefix(text, "⏸️") && strings.Contains(text, "Blocked:"), strings.Contains(text, "iterations are used"):
		k.decide(m)
	case strings.HasPrefix(text, "⏸️") && strings.Contains(text, "Paused"):
		k.resume(m)
	case strings.HasPrefix(text, "❌"):
		k.resume(m)
	case strings.HasPrefix(text, "✅"):
		k.busy = false
		if k.dice.IntN(4) == 0 {
			k.busy = true
			tag := k.o.tag()
			k.say("follow-up", tag, "also quick "+tag, m.ID)
		}
	case strings.HasPrefix(text, "🛑"):
		k.busy = false
	case strings.HasPrefix(text, "🚀"), strings.HasPrefix(text, "📍"):
		k.interfere(m)
	case strings.HasPrefix(text, "⚠️"):
		k.busy = k.busy && k.dice.IntN(2) == 0
	}
}

// interfere sometimes says something to a session that runs.
func (k *talk) interfere(m telegramtest.Message) {
	switch k.dice.IntN(12) {
	case 0, 1:
		tag := k.o.tag()
		k.say("guidance", tag, "mind the "+tag, 0)
	case 2:
		tag := k.o.tag()
		k.say("guidance", tag, "mind the "+tag, m.ID)
	case 3:
		k.say("command", "", "/pause", 0)
	case 4:
		if k.dice.IntN(3) == 0 {
			k.say("command", "", "/abort", 0)
		}
	case 5:
		k.say("command", "", "/status", 0)
	}
}

func (k *talk) resume(m telegramtest.Message) {
	cmd := resumeCommand.FindStringSubmatch(m.Text)
	if cmd == nil {
		return
	}
	if k.dice.IntN(3) == 0 {
		tag := k.o.tag()
		k.say("guidance", tag, "/resume "+cmd[1]+" with "+tag, 0)
		return
	}
	k.say("command", "", "/resume "+cmd[1], 0)
}

// decide answers a question: with a button where there is one (often twice, or by two people), else in words.
func (k *talk) decide(m telegramtest.Message) {
	if len(m.Buttons) > 0 && k.dice.IntN(3) > 0 {
		row := m.Buttons[0]
		b := row[k.dice.IntN(len(row))]
		for range 1 + k.dice.IntN(3) {
			u := k.users[k.dice.IntN(len(k.users))]
			k.o.say(said{Kind: "press", Chat: k.chat.ID, Who: u.FirstName, Text: b.Text})
			k.chat.PressData(u, m.ID, b.CallbackData)
			k.presses++
		}
		return
	}
	tag := k.o.tag()
	switch cmd := answerCommand.FindStringSubmatch(m.Text); {
	case cmd != nil && k.dice.IntN(3) == 0:
		k.say("answer", tag, "/answer "+cmd[1]+" left "+tag, 0)
	case k.dice.IntN(3) == 0:
		k.say("answer", tag, "right "+tag, 0)
	default:
		k.say("answer", tag, "straight on "+tag, m.ID)
	}
	if k.dice.IntN(4) == 0 { // an impatient person says it again
		tag := k.o.tag()
		k.say("answer", tag, "did you hear "+tag, m.ID)
	}
}
