package bot_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pulseloop/bot"
	"pulseloop/bot/bottest"
	"pulseloop/loop"
	"pulseloop/pulse"
)

// plainWords is a wording that tests can recognise.
type plainWords struct{}

func (plainWords) IterationDone(pulse.Session, pulse.Iteration) pulse.Message {
	return pulse.Text("iteration")
}
func (plainWords) Completed(pulse.Session, pulse.Iteration) pulse.Message {
	return pulse.Text("completed")
}
func (plainWords) Blocked(pulse.Session, pulse.Gate) pulse.Message    { return pulse.Text("blocked") }
func (plainWords) Failed(pulse.Session, string, string) pulse.Message { return pulse.Text("failed") }
func (plainWords) Paused(pulse.Session) pulse.Message                 { return pulse.Text("paused") }
func (plainWords) Aborted(pulse.Session, string) pulse.Message        { return pulse.Text("aborted") }
func (plainWords) Unclaimed(pulse.Session, time.Duration) pulse.Message {
	return pulse.Text("unclaimed")
}

// bench is a router on a world in memory, with the real use cases.
type bench struct {
	t        *testing.T
	w        *bottest.World
	platform *bottest.Platform
	r        *bot.Router

	mu  sync.Mutex
	now time.Time
	n   int
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), platform: &bottest.Platform{No: true}}
	b.w = bottest.New(t, b.clock)
	b.restart()
	return b
}

// restart loses all that the router keeps in memory.
func (b *bench) restart() {
	b.r = bot.New(bot.Config{Inbox: b.w, People: b.w, Reader: b.w, Store: b.w, Clock: b.clock,
		Doer: loop.NewActions(b.w, plainWords{}, loop.Config{Clock: b.clock}),
		Adapters: []bot.Adapter{
			{Platform: pulse.PlatformTelegram, Decoder: bottest.Decoder{}, Presses: b.platform, Topics: b.platform},
			{Platform: pulse.PlatformConsole, Decoder: bottest.Decoder{}},
		}})
}

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) later(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bench) run() {
	b.t.Helper()
	if _, err := b.r.RunOnce(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

func at(chat string) pulse.Address {
	return pulse.Address{Platform: pulse.PlatformTelegram, Chat: chat}
}

func (b *bench) event(chat, user, text string) bot.Event {
	b.n++
	return bot.Event{Kind: bot.KindMessage, Platform: pulse.PlatformTelegram, Address: at(chat), Private: !strings.HasPrefix(chat, "-"),
		Sender: bot.Sender{UserID: user, Name: "U" + user}, MessageID: fmt.Sprint(b.n), Text: text, At: b.clock()}
}

// put delivers without handling; say delivers, handles, and answers the reply.
func (b *bench) put(e bot.Event) pulse.InboundID { return b.w.Deliver("bot", e) }

func (b *bench) say(chat, user, text string) string {
	b.t.Helper()
	return b.do(b.event(chat, user, text))
}

func (b *bench) do(e bot.Event) string {
	b.t.Helper()
	had := len(b.w.Notices(e.Address))
	id := b.put(e)
	b.run()
	if e.ReplyTo != "" && !b.w.Handled(id) {
		b.later(3 * time.Second) // a reply to what is not known waits a moment
		b.run()
	}
	if !b.w.Handled(id) {
		b.t.Errorf("the update %q was not brought to its end", e.Text)
	}
	var out []string
	for _, n := range b.w.Notices(e.Address)[had:] {
		out = append(out, n.Message.Plain())
	}
	return strings.Join(out, "\n---\n")
}

func (b *bench) press(chat, user, data string) string {
	b.t.Helper()
	e := b.event(chat, user, "")
	e.Kind, e.Data, e.CallbackID = bot.KindPress, data, fmt.Sprintf("cb%d", b.n)
	return b.do(e)
}

func (b *bench) reply(chat, user, to, text string) string {
	b.t.Helper()
	e := b.event(chat, user, text)
	e.ReplyTo = to
	return b.do(e)
}

// ann makes Ann, an operator in chat 1, and one project.
func ann(t *testing.T) *bench {
	b := newBench(t)
	b.w.AddOperator(pulse.PlatformTelegram, "1", "Ann", pulse.RoleOwner)
	b.w.AddProject("my-app")
	return b
}

// running starts a session in chat 1 and has it run.
func (b *bench) running(goal string) pulse.Session {
	b.t.Helper()
	b.say("1", "1", "/pulse "+goal)
	all := b.w.AllSessions()
	if len(all) == 0 {
		b.t.Fatal("nothing was started")
	}
	return b.w.Change(all[len(all)-1].ID, func(s *pulse.Session) { s.Status = pulse.SessionRunning })
}

func (b *bench) session(id pulse.SessionID) pulse.Session {
	b.t.Helper()
	s, err := b.w.Session(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func want(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("%q is missing in %q", p, got)
		}
	}
}
