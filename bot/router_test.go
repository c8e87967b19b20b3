package bot_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pulseloop/bot"
	"pulseloop/bot/bottest"
	"pulseloop/loop"
	"pulseloop/pulse"
)

var errDown = errors.New("database is down")

func TestTwiceDelivered(t *testing.T) {
	b := ann(t)
	in := pulse.Inbound{ID: pulse.InboundID(pulse.NewUUID(b.clock())), Platform: pulse.PlatformTelegram, Source: "bot", UpdateID: "7", Order: 7,
		Payload: []byte(`{"Kind":"message","Address":{"platform":"telegram","chat":"1"},"Private":true,"Sender":{"UserID":"1"},"MessageID":"5","Text":"a goal"}`), ReceivedAt: b.clock()}
	again := in
	again.ID = pulse.InboundID(pulse.NewUUID(b.clock()))
	for _, u := range []pulse.Inbound{in, again} {
		if _, err := b.w.Receive(t.Context(), "bot", []pulse.Inbound{u}, "8"); err != nil {
			t.Fatal(err)
		}
		b.run()
	}
	if n := len(b.w.AllSessions()); n != 1 {
		t.Errorf("%d sessions of one message", n)
	}
}

func TestTwoRoutersHandleAnUpdateOnce(t *testing.T) {
	b := ann(t)
	first := b.r
	b.restart()
	b.put(b.event("1", "1", "a goal"))
	b.w.BeforeApply(func() {
		if _, err := first.RunOnce(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b.run()
	if n := len(b.w.AllSessions()); n != 1 {
		t.Errorf("%d sessions of one message", n)
	}
	if n := len(b.w.Notices(at("1"))); n != 1 {
		t.Errorf("%d replies", n)
	}
}

func TestFailuresAreTriedAgainInOrder(t *testing.T) {
	b := ann(t)
	b.w.FailApply(errDown, errDown)
	one := b.put(b.event("1", "1", "a goal"))
	two := b.put(b.event("1", "1", "and guidance"))
	other := b.put(b.event("2", "1", "/list"))
	for range 3 {
		b.run()
		b.later(5 * time.Second)
	}
	if !b.w.Handled(one) || !b.w.Handled(two) || !b.w.Handled(other) {
		t.Fatal("something was left")
	}
	all := b.w.AllSessions()
	if len(all) != 1 || all[0].Goal != "a goal" || len(all[0].Inputs) != 1 {
		t.Errorf("the second message overtook the first: %+v", all)
	}
}

func TestWhatKeepsFailingIsToldOf(t *testing.T) {
	b := ann(t)
	boom := &failing{err: errDown}
	b.r = bot.New(bot.Config{Inbox: b.w, People: b.w, Reader: b.w, Store: b.w, Clock: b.clock, Doer: boom, MaxTries: 3,
		Adapters: []bot.Adapter{{Platform: pulse.PlatformTelegram, Decoder: bottest.Decoder{}}}})
	id := b.put(b.event("1", "1", "a goal"))
	for range 3 {
		if b.w.Handled(id) {
			t.Fatal("given up too early")
		}
		b.run()
		b.later(time.Minute)
	}
	want(t, b.w.Last(at("1")).Message.Plain(), "could not be done")
	if !b.w.Handled(id) || boom.calls != 3 {
		t.Errorf("handled %v after %d tries", b.w.Handled(id), boom.calls)
	}
}

func TestAPanicIsOneUpdatesOwn(t *testing.T) {
	b := ann(t)
	b.r = bot.New(bot.Config{Inbox: b.w, People: b.w, Reader: b.w, Store: b.w, Clock: b.clock, Doer: &failing{panics: true}, MaxTries: 2,
		Adapters: []bot.Adapter{{Platform: pulse.PlatformTelegram, Decoder: bottest.Decoder{}}, {Platform: pulse.PlatformConsole, Decoder: panicky{}}}})
	e := b.event("3", "1", "x")
	e.Platform = pulse.PlatformConsole
	b.w.Deliver("console", e)
	bad := b.put(b.event("1", "1", "a goal"))
	good := b.put(b.event("2", "1", "/list"))
	b.run()
	if !b.w.Handled(good) {
		t.Error("another chat was harmed")
	}
	b.later(time.Minute)
	b.run()
	if !b.w.Handled(bad) {
		t.Error("the update that panics was never given up")
	}
}

type failing struct {
	loop.Doer
	err    error
	panics bool
	calls  int
}

func (f *failing) Start(context.Context, loop.StartRequest) (pulse.Session, error) {
	f.calls++
	if f.panics {
		panic("boom")
	}
	return pulse.Session{}, f.err
}

type panicky struct{}

func (panicky) Decode(pulse.Inbound) bot.Event { panic("cannot decode") }

func TestProjectChoiceSurvivesARestart(t *testing.T) {
	b := ann(t)
	other := b.w.AddProject("other")
	goal := b.put(b.event("1", "1", "add a health endpoint"))
	b.run()
	ask := b.w.Last(at("1"))
	want(t, ask.Message.Plain(), "Which project")
	if b.w.Handled(goal) || len(b.w.AllSessions()) != 0 || len(ask.Message.Buttons) != 1 || len(ask.Message.Buttons[0]) != 2 {
		t.Fatalf("asked with %v", ask.Message.Buttons)
	}
	b.restart()
	b.later(2 * time.Minute)
	b.run()
	if n := len(b.w.Notices(at("1"))); n != 1 {
		t.Errorf("asked %d times", n)
	}
	data := ""
	for _, btn := range ask.Message.Buttons[0] {
		if btn.Label == "other" {
			data = btn.Data
		}
	}
	b.restart()
	want(t, b.press("1", "1", data), "works on other now")
	b.run()
	all := b.w.AllSessions()
	if len(all) != 1 || all[0].ProjectID != other.ID || all[0].Goal != "add a health endpoint" || !b.w.Handled(goal) {
		t.Fatalf("sessions: %+v", all)
	}
	want(t, b.press("1", "1", data), "already")
	want(t, b.say("1", "1", "/pulse the next"), "🚀 [other]")
}

func TestProjectByCommandLetsTheGoalGo(t *testing.T) {
	b := ann(t)
	b.w.AddProject("other")
	goal := b.put(b.event("1", "1", "a goal"))
	b.run()
	want(t, b.say("1", "1", "/project nope"), "no project nope")
	want(t, b.say("1", "1", "/project OTHER"), "works on other now")
	b.run()
	if all := b.w.AllSessions(); len(all) != 1 || all[0].ProjectName != "other" || !b.w.Handled(goal) {
		t.Errorf("sessions: %+v", all)
	}
}

func TestAGoalWhoseProjectIsNeverChosen(t *testing.T) {
	b := ann(t)
	b.w.AddProject("other")
	goal := b.put(b.event("1", "1", "a goal"))
	for range 26 {
		b.run()
		b.later(time.Hour)
	}
	want(t, b.w.Last(at("1")).Message.Plain(), "No project was chosen", "a goal")
	if !b.w.Handled(goal) || len(b.w.AllSessions()) != 0 {
		t.Error("the goal was not brought to an end")
	}
}

func TestCommands(t *testing.T) {
	b := ann(t)
	if got := b.say("1", "1", "/status"); !strings.Contains(got, "no session") {
		t.Errorf("status of nothing: %q", got)
	}
	s := b.running("a goal")
	id := pulse.Short(s.ID)
	b.w.AddIteration(pulse.Iteration{ID: "i1", SessionID: s.ID, Number: 1, Status: pulse.IterationComplete, Signal: pulse.SignalContinue,
		CommitHash: "0123456789", FilesChanged: []string{"a"}, OutputSummary: "built it", TaskContent: "the exact <b>prompt</b>"})
	for _, c := range []struct {
		text string
		want []string
	}{
		{"/status", []string{"running", "a goal", id}},
		{"/status " + id, []string{"running"}},
		{"/status #" + strings.ToUpper(id), []string{"running"}},
		{"/status 00000000", []string{"no session"}},
		{"/STATUS", []string{"running"}},
		{"/list", []string{id, "[my-app]", "a goal"}},
		{"/show", []string{"1. complete, CONTINUE, 0123456 (1 file): built it"}},
		{"/prompt", []string{"Prompt of iteration 1", "the exact <b>prompt</b>"}},
		{"/projects", []string{"my-app", "/src/my-app"}},
		{"/project", []string{"works on my-app"}},
		{"/help", []string{"/pulse GOAL", "/answer [ID] TEXT", "/pair CODE"}},
		{"/nonsense", []string{"do not know /nonsense", "/help"}},
		{"/", []string{"do not know"}},
		{"/pulse", []string{"The goal is empty", "/pulse add a health endpoint"}},
		{"/pulse \u200b \u202e", []string{"The goal is empty"}},
		{"/pulse " + strings.Repeat("é", loop.MaxGoalBytes/2) + "x", []string{"The goal has 65537 bytes", "At most 65536"}},
		{"/answer", []string{"empty"}},
		{"/answer yes", []string{"does not wait for this answer"}},
		{"/resume", []string{"running already"}},
		{"/pause", []string{"Paused", "a goal"}},
		{"/abort a", []string{"too short"}},
		{"/pause 99999999", []string{"no session"}},
		{"/resume use tabs", []string{"Goes on", "a goal"}},
		{"/abort " + id, []string{"Aborted"}},
		{"/resume " + id, []string{"is aborted", "final"}},
	} {
		t.Run(c.text[:min(len(c.text), 20)], func(t *testing.T) {
			b.t = t
			want(t, b.say("1", "1", c.text), c.want...)
		})
	}
	if got := b.session(s.ID).Inputs; len(got) != 1 || got[0].Text != "use tabs" {
		t.Errorf("what was said with /resume: %+v", got)
	}
}

func TestHelpListsOnlyWhatWorksHere(t *testing.T) {
	b := ann(t)
	help := b.say("1", "1", "/help")
	for _, c := range bot.Commands() {
		if c.Help == "" || strings.ToLower(c.Name) != c.Name {
			t.Errorf("row %+v", c)
		}
		if shown := strings.Contains(help, "/"+c.Name+" "); shown == c.Hide {
			t.Errorf("/%s is shown: %v", c.Name, shown)
		}
	}
	e := b.event("1", "1", "/start x")
	e.Platform = pulse.PlatformConsole
	e.Address = pulse.Address{Platform: pulse.PlatformConsole, Chat: "c"}
	b.w.AddOperator(pulse.PlatformConsole, "1", "me", pulse.RoleOwner)
	want(t, b.do(e), "do not know /start")
}

func TestAnswerThatLooksLikeAnID(t *testing.T) {
	b := ann(t)
	s := b.running("a goal")
	b.w.Block(s.ID, "which code?")
	want(t, b.say("1", "1", "/answer 12345678"), "your answer")
	if got := b.session(s.ID).Inputs[0].Text; got != "12345678" {
		t.Errorf("answered %q", got)
	}
}

func TestBadText(t *testing.T) {
	b := ann(t)
	for text, goal := range map[string]string{
		"fix\x00 the\u202e bug\x1b[31m": "fix the bug[31m",
		"emoji 👩‍👩‍👧 stay":              "emoji 👩‍👩‍👧 stay",
		"a\r\nb\u2028c":                 "a\nb\nc",
		"bad \xff bytes":                "bad \ufffd bytes",
		strings.Repeat("é", 32<<10):     strings.Repeat("é", 32<<10),
	} {
		b.say(fmt.Sprint(len(b.w.AllSessions())+10), "1", text)
		all := b.w.AllSessions()
		if got := all[len(all)-1].Goal; got != goal {
			t.Errorf("goal of %.40q is %.40q", text, got)
		}
	}
	want(t, b.say("1", "1", " \u200b \n"), "no words")
	b.w.Deliver("bot", bot.Event{Kind: "no such kind", Platform: pulse.PlatformTelegram, Address: at("1"), Sender: bot.Sender{UserID: "1"}})
	b.w.Deliver("bot", bot.Event{Platform: "no such platform"})
	b.run()
	if n, _ := b.r.RunOnce(t.Context()); n != 0 {
		t.Errorf("%d updates were left", n)
	}
}

func TestRunWakesAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bottest.New(t, nil)
		w.AddProject("my-app")
		w.AddOperator(pulse.PlatformTelegram, "1", "Ann", pulse.RoleOwner)
		wakes := make(chan struct{}, 1)
		r := bot.New(bot.Config{Inbox: w, People: w, Reader: w, Store: w, Waker: waker(wakes), Poll: time.Hour,
			Doer:     loop.NewActions(w, plainWords{}, loop.Config{}),
			Adapters: []bot.Adapter{{Platform: pulse.PlatformTelegram, Decoder: bottest.Decoder{}}}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		for i := range 3 {
			w.Deliver("bot", bot.Event{Kind: bot.KindMessage, Platform: pulse.PlatformTelegram, Address: at(fmt.Sprint(i)), Private: true,
				Sender: bot.Sender{UserID: "1"}, MessageID: "1", Text: "a goal"})
		}
		wakes <- struct{}{}
		synctest.Wait()
		if n := len(w.AllSessions()); n != 3 {
			t.Errorf("%d sessions after the wake-up", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

type waker <-chan struct{}

func (w waker) Wakes(pulse.Topic) (<-chan struct{}, func()) { return w, func() {} }

// Whatever is said or pressed, the update comes to its end, with every notice
// in order (the world checks them) and nothing done for strangers.
func FuzzRouter(f *testing.F) {
	f.Add("1", "add a health endpoint", "g:019a0000-0000-7000-8000-000000000001:more", "gate")
	f.Add("9", "/pair AAAA-BBBB-CCCC", "p::", "")
	f.Add("1", "/answer 12345678 x", "p:019a0000-0000-7000-8000-000000000001:zz", "sent-0")
	f.Add("1", "/resume\x00\u202e #abc", "x", "\xff")
	f.Fuzz(func(t *testing.T, user, text, data, reply string) {
		b := ann(t)
		s := b.running("a goal")
		b.w.Block(s.ID, "which?", pulse.GateOption{Key: "more"}, pulse.GateOption{Key: "stop"})
		before := len(b.w.AllSessions())
		said := b.event("1", user, text)
		said.ReplyTo = reply
		pressed := b.event("1", user, "")
		pressed.Kind, pressed.Data, pressed.CallbackID = bot.KindPress, data, "cb"
		edited := said
		edited.Kind = bot.KindEdit
		for _, e := range []bot.Event{said, pressed, edited} {
			b.do(e)
		}
		if user != "1" && (len(b.w.AllSessions()) != before || b.session(s.ID).Version != s.Version+1 || len(b.w.Operators()) != 1) {
			t.Errorf("a stranger %q changed something by %q or %q", user, text, data)
		}
	})
}
