package bot_test

import (
	"strings"
	"testing"
	"time"

	"pulseloop/bot"
	"pulseloop/bot/bottest"
	"pulseloop/pulse"
)

func TestPlainTextIsAGoalThenGuidanceThenAGoal(t *testing.T) {
	b := ann(t)
	want(t, b.say("1", "1", "add a health endpoint"), "🚀 [my-app] Started: add a health endpoint")
	all := b.w.AllSessions()
	if len(all) != 1 || all[0].Goal != "add a health endpoint" || all[0].ChatID != "1" || all[0].CreatedBy != pulse.OriginTelegram {
		t.Fatalf("sessions: %+v", all)
	}
	want(t, b.say("1", "1", "use port 8080"), "Noted")
	if s := b.session(all[0].ID); len(s.Inputs) != 1 || s.Inputs[0].Text != "use port 8080" || s.Inputs[0].Kind != pulse.InputGuidance || s.Inputs[0].By != "Ann" {
		t.Errorf("inputs: %+v", s.Inputs)
	}
	b.w.Change(all[0].ID, func(s *pulse.Session) { s.Status = pulse.SessionComplete })
	want(t, b.say("1", "1", "now add a test"), "🚀", "now add a test")
	if n := len(b.w.AllSessions()); n != 2 {
		t.Errorf("%d sessions", n)
	}
}

func TestBlockedSessionTakesPlainTextAsTheAnswer(t *testing.T) {
	b := ann(t)
	s := b.running("a goal")
	gate, _ := b.w.Block(s.ID, "Need API key for Stripe integration")
	want(t, b.say("1", "1", "it is in the vault"), "your answer")
	g, _ := b.w.Gate(t.Context(), gate.ID)
	if g.Status != pulse.GateResolved || g.Text != "it is in the vault" || g.DecidedName != "Ann" {
		t.Errorf("gate: %+v", g)
	}
	if got := b.session(s.ID); got.Status != pulse.SessionRunning || got.Inputs[0].Kind != pulse.InputAnswer {
		t.Errorf("session: %+v", got)
	}
}

func TestTheBlockedSessionOfTheChatIsAnsweredBehindAFinishedOne(t *testing.T) {
	b := ann(t)
	old := b.running("old")
	newer := b.running("newer")
	b.w.Block(old.ID, "which way?")
	b.w.Change(newer.ID, func(s *pulse.Session) { s.Status = pulse.SessionComplete })
	b.say("1", "1", "left")
	if got := b.session(old.ID); got.Status != pulse.SessionRunning {
		t.Errorf("the waiting session is %s", got.Status)
	}
}

func TestWhatIsUnclearIsAsked(t *testing.T) {
	b := ann(t)
	one, two, three := b.running("one"), b.running("two"), b.running("three")
	b.w.Block(one.ID, "a?")
	_, msg := b.w.Block(two.ID, "b?")
	b.w.Change(three.ID, func(s *pulse.Session) { s.Status = pulse.SessionComplete })
	want(t, b.say("1", "1", "yes"), "cannot tell which one")
	b.reply("1", "1", msg, "yes")
	if b.session(one.ID).Status != pulse.SessionBlocked || b.session(two.ID).Status != pulse.SessionRunning {
		t.Error("the reply did not go to the session it replies to")
	}
}

func TestRepliesGoToTheSessionOfTheMessage(t *testing.T) {
	b := ann(t)
	one := b.running("one")
	b.w.Sent()
	started := b.w.Last(at("1")).ExternalID
	two := b.running("two")
	b.reply("1", "1", started, "for the first")
	if s := b.session(one.ID); len(s.Inputs) != 1 {
		t.Error("the reply did not reach the first session")
	}
	if s := b.session(two.ID); len(s.Inputs) != 0 {
		t.Error("the reply reached the second session")
	}
	b.w.Change(one.ID, func(s *pulse.Session) { s.Status, s.Inputs = pulse.SessionComplete, nil })
	want(t, b.reply("1", "1", started, "and a test"), "goes on from where it was")
	if s := b.session(one.ID); s.Status != pulse.SessionRunning || s.Run != 2 || s.Inputs[0].Kind != pulse.InputFollowUp {
		t.Errorf("follow-up: %+v", s)
	}
	want(t, b.reply("1", "1", started, "/status"), "one")
	want(t, b.reply("1", "1", "unknown message", "more"), "Noted") // falls back to the chat's session
}

// The platform shows a message before its id is stored here: a reply that is
// quicker than that goes to its session all the same.
func TestReplyQuickerThanTheMessageIsKnown(t *testing.T) {
	b := ann(t)
	s := b.running("a goal")
	b.w.Change(s.ID, func(s *pulse.Session) { s.Status = pulse.SessionComplete })
	e := b.event("1", "1", "and a test")
	e.ReplyTo = "sent-0"
	id := b.put(e)
	b.run()
	if b.w.Handled(id) {
		t.Fatal("a reply to a message that is not known yet was handled at once")
	}
	b.w.Sent()
	b.later(500 * time.Millisecond)
	b.run()
	if got := b.session(s.ID); !b.w.Handled(id) || got.Run != 2 || len(b.w.AllSessions()) != 1 {
		t.Errorf("handled %v, session %+v, %d sessions", b.w.Handled(id), got, len(b.w.AllSessions()))
	}
}

func TestFollowUpByCommand(t *testing.T) {
	b := ann(t)
	s := b.running("a goal")
	b.w.Change(s.ID, func(s *pulse.Session) { s.Status = pulse.SessionComplete })
	want(t, b.say("1", "1", "/resume"), "is complete")
	want(t, b.say("1", "1", "/resume "+pulse.Short(s.ID)+" add a test"), "goes on from where it was")
	if got := b.session(s.ID); got.Run != 2 || got.Inputs[0].Text != "add a test" || len(b.w.AllSessions()) != 1 {
		t.Errorf("follow-up: %+v", got)
	}
}

func TestButtonsOfTwoPeople(t *testing.T) {
	b := ann(t)
	b.w.AddOperator(pulse.PlatformTelegram, "2", "Bob", pulse.RoleOperator)
	s := b.running("a goal")
	gate, _ := b.w.Block(s.ID, "10 iterations are used up", pulse.GateOption{Key: "more", Label: "10 more"}, pulse.GateOption{Key: "stop", Label: "Stop"})
	want(t, b.press("1", "1", "g:"+string(gate.ID)+":more"), "10 more")
	want(t, b.press("1", "2", "g:"+string(gate.ID)+":stop"), "Ann decided this already: 10 more")
	if got := b.session(s.ID); got.Status != pulse.SessionRunning || got.MaxIterations != 20 {
		t.Errorf("session: %s with %d iterations", got.Status, got.MaxIterations)
	}
	acks := b.platform.Acks()
	if len(acks) != 2 || !strings.Contains(acks[0], "10 more") || !strings.Contains(acks[1], "Ann decided") {
		t.Errorf("acknowledged: %q", acks)
	}
}

func TestButtonsAtTheSameMoment(t *testing.T) {
	b := ann(t)
	b.w.AddOperator(pulse.PlatformTelegram, "2", "Bob", pulse.RoleOperator)
	s := b.running("a goal")
	gate, _ := b.w.Block(s.ID, "?", pulse.GateOption{Key: "more", Label: "More"}, pulse.GateOption{Key: "stop", Label: "Stop"})
	e := b.event("2", "2", "")
	e.Kind, e.Data = bot.KindPress, "g:"+string(gate.ID)+":stop"
	b.w.BeforeApply(func() { // Bob is quicker, from another process
		g := gate
		g.Status, g.Choice, g.DecidedName = pulse.GateResolved, "stop", "Bob"
		now := b.session(s.ID)
		version := now.Version
		now.Status = pulse.SessionAborted
		if err := b.w.Apply(t.Context(), pulse.Guard{SessionID: s.ID, Version: version}, pulse.Change{Session: &now, Gates: []pulse.Gate{g}}); err != nil {
			t.Error(err)
		}
	})
	want(t, b.press("1", "1", "g:"+string(gate.ID)+":more"), "Bob decided this already: Stop")
	if got := b.session(s.ID); got.Status != pulse.SessionAborted {
		t.Errorf("session is %s", got.Status)
	}
}

func TestTwoPeopleAnswerInWords(t *testing.T) {
	b := ann(t)
	b.w.AddOperator(pulse.PlatformTelegram, "2", "Bob", pulse.RoleOperator)
	s := b.running("a goal")
	_, msg := b.w.Block(s.ID, "which key?")
	b.reply("1", "1", msg, "the blue one")
	want(t, b.reply("1", "2", msg, "the red one"), "Ann answered this already", "Noted")
	if got := b.session(s.ID).Inputs; len(got) != 2 || got[0].Kind != pulse.InputAnswer || got[1].Kind != pulse.InputGuidance {
		t.Errorf("inputs: %+v", got)
	}
	b.w.Block(s.ID, "and now?")
	want(t, b.reply("1", "2", msg, "left"), "another question by now")
	want(t, b.say("1", "2", "/answer left"), "your answer")
}

func TestButtonsThatLeadNowhere(t *testing.T) {
	b := ann(t)
	for _, data := range []string{"", "g:", "g:x:y", "zzz", "g:019a0000-0000-7000-8000-000000000001:more", "p:019a0000-0000-7000-8000-000000000001:", strings.Repeat("x", 64)} {
		if got := b.press("1", "1", data); got == "" {
			t.Errorf("%q was not answered", data)
		}
	}
}

func TestAPanickingAcknowledgerHarmsNothing(t *testing.T) {
	b := ann(t)
	b.platform.Panic = true
	s := b.running("a goal")
	gate, _ := b.w.Block(s.ID, "?", pulse.GateOption{Key: "more"}, pulse.GateOption{Key: "stop"})
	b.press("1", "1", "g:"+string(gate.ID)+":more")
	if got := b.session(s.ID).Status; got != pulse.SessionRunning {
		t.Errorf("session is %s", got)
	}
}

func TestTypedChoices(t *testing.T) {
	b := ann(t)
	s := b.running("a goal")
	b.w.Block(s.ID, "?", pulse.GateOption{Key: "more", Label: "10 more"}, pulse.GateOption{Key: "stop", Label: "Stop"})
	want(t, b.say("1", "1", "STOP"), "the session ends here")
	if got := b.session(s.ID).Status; got != pulse.SessionAborted {
		t.Errorf("session is %s", got)
	}
}

func TestEditsAreNeverCarriedOut(t *testing.T) {
	b := ann(t)
	s := b.running("a goal")
	e := b.event("1", "1", "/abort")
	e.Kind = bot.KindEdit
	want(t, b.do(e), "as it was first sent")
	if got := b.do(e); got != "" {
		t.Errorf("told twice of one message: %q", got)
	}
	if got := b.session(s.ID); got.Status != pulse.SessionRunning || len(got.Inputs) != 0 {
		t.Errorf("an edit was carried out: %+v", got)
	}
}

func TestTopics(t *testing.T) {
	b := ann(t)
	b.platform = &bottest.Platform{}
	b.restart()
	got := b.say("-100", "1", "/pulse add a health endpoint\nwith tests")
	want(t, got, "topic of its own", "add a health endpoint")
	s := b.w.AllSessions()[0]
	if s.ChatID != "-100" || s.ChatThreadID != "1" || b.platform.Titles()[0] != "add a health endpoint" {
		t.Fatalf("session in %s/%s, topics %q", s.ChatID, s.ChatThreadID, b.platform.Titles())
	}
	topic := pulse.Address{Platform: pulse.PlatformTelegram, Chat: "-100", Thread: "1"}
	want(t, b.w.Last(topic).Message.Plain(), "🚀", "Session")
	in := b.event("-100", "1", "use port 8080")
	in.Address = topic
	want(t, b.do(in), "Noted")
	b.w.Change(s.ID, func(s *pulse.Session) { s.Status = pulse.SessionComplete })
	in = b.event("-100", "1", "add a test too")
	in.Address = topic
	want(t, b.do(in), "goes on from where it was")
	want(t, b.say("-100", "1", "another goal"), "topic of its own")
	if n := len(b.w.AllSessions()); n != 2 {
		t.Errorf("%d sessions", n)
	}
	in = b.event("-100", "1", "/pulse in this topic")
	in.Address = topic
	b.do(in)
	if all := b.w.AllSessions(); all[2].ChatThreadID != "1" || len(b.platform.Titles()) != 2 {
		t.Errorf("a goal within a topic went to %q", all[2].ChatThreadID)
	}
}

func TestTopicThatCannotBeOpened(t *testing.T) {
	b := ann(t)
	b.platform = &bottest.Platform{Err: errDown}
	b.restart()
	want(t, b.say("-100", "1", "/pulse a goal"), "could not be opened", "🚀")
	if s := b.w.AllSessions()[0]; s.ChatID != "-100" || s.ChatThreadID != "" {
		t.Errorf("session in %s/%s", s.ChatID, s.ChatThreadID)
	}
}

func TestARetriedStartUsesTheTopicItOpened(t *testing.T) {
	b := ann(t)
	b.platform = &bottest.Platform{}
	b.restart()
	b.w.FailApply(errDown)
	id := b.put(b.event("-100", "1", "/pulse a goal"))
	b.run()
	b.later(10e9)
	b.run()
	if !b.w.Handled(id) || len(b.platform.Titles()) != 1 || len(b.w.AllSessions()) != 1 {
		t.Errorf("handled %v, topics %q, %d sessions", b.w.Handled(id), b.platform.Titles(), len(b.w.AllSessions()))
	}
}
