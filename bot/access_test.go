package bot_test

import (
	"strings"
	"testing"
	"time"

	"pulseloop/bot"
	"pulseloop/pulse"
)

func TestStrangersStartNothing(t *testing.T) {
	b := newBench(t)
	b.w.AddProject("my-app")
	b.w.AddOperator(pulse.PlatformTelegram, "1", "Ann", pulse.RoleOwner)
	session := b.running("something")
	gate, msg := b.w.Block(session.ID, "which?", pulse.GateOption{Key: "more"}, pulse.GateOption{Key: "stop"})
	before := b.w.Applied()
	edit := b.event("9", "9", "/pulse evil")
	edit.Kind = bot.KindEdit
	forward := b.event("9", "9", "goal")
	forward.Forwarded = true
	for _, e := range []bot.Event{b.event("9", "9", "delete everything"), b.event("9", "9", "/pulse delete everything"), b.event("1", "9", "/abort"),
		b.event("9", "9", "/list"), b.event("9", "9", "/start"), edit, forward} {
		b.do(e)
	}
	b.reply("1", "9", msg, "an answer")
	b.press("1", "9", "g:"+string(gate.ID)+":stop")
	if got := b.w.AllSessions(); len(got) != 1 || got[0].Status != pulse.SessionBlocked || len(got[0].Inputs) != 0 {
		t.Errorf("a stranger changed something: %+v", got)
	}
	if b.w.Applied() != before+9 {
		t.Errorf("%d writes for 9 updates", b.w.Applied()-before)
	}
}

func TestStrangersAreToldOnceAnHour(t *testing.T) {
	b := newBench(t)
	b.later(30 * time.Minute) // so that the hour on the clock changes meanwhile
	want(t, b.say("9", "9", "hello"), "/pair CODE")
	for range 5 {
		if got := b.say("9", "9", "hello?"); got != "" {
			t.Errorf("told again: %q", got)
		}
		b.later(10 * time.Minute)
	}
	b.restart()
	if got := b.say("8", "8", "hi"); got == "" {
		t.Error("another stranger was not told")
	}
	b.later(time.Hour)
	want(t, b.say("9", "9", "hello"), "/pair CODE")
	for _, e := range []bot.Event{b.event("-5", "7", "talk among people"), func() bot.Event {
		e := b.event("6", "6", "I am a bot")
		e.Sender.Bot = true
		return e
	}(), func() bot.Event {
		e := b.event("5", "", "nobody said this")
		return e
	}(), func() bot.Event {
		e := b.event("-5", "7", "/pulse x")
		e.OtherBot = true
		return e
	}()} {
		if got := b.do(e); got != "" {
			t.Errorf("%q was answered: %q", e.Text, got)
		}
	}
}

func TestPairing(t *testing.T) {
	b := newBench(t)
	first, pc := bot.NewCode(b.clock(), pulse.RoleOperator)
	b.w.AddCode(pc)
	want(t, b.say("1", "1", "/pair "+strings.ToLower(strings.ReplaceAll(first, "-", " "))), "owner")
	want(t, b.say("2", "2", "/pair "+first), "not right, was used, or is too old")
	second, pc := bot.NewCode(b.clock(), pulse.RoleOperator)
	b.w.AddCode(pc)
	want(t, b.say("2", "2", "/start "+second), "an operator")
	third, pc := bot.NewCode(b.clock(), pulse.RoleViewer)
	b.w.AddCode(pc)
	want(t, b.say("3", "3", "/pair "+third), "a viewer")
	late, pc := bot.NewCode(b.clock(), pulse.RoleOperator)
	b.w.AddCode(pc)
	b.later(bot.CodeLife)
	want(t, b.say("4", "4", "/pair "+late), "too old")
	want(t, b.say("1", "1", "/pair "+late), "We are paired, and you are the owner")
	var got []string
	for _, o := range b.w.Operators() {
		got = append(got, o.UserID+" "+string(o.Role))
	}
	if strings.Join(got, ", ") != "1 owner, 2 operator, 3 viewer" {
		t.Errorf("operators: %v", got)
	}
	if n := len(b.w.Audit()); n != 3 {
		t.Errorf("%d audit entries for 3 pairings", n)
	}
}

func TestAFirstViewerIsNotMadeOwner(t *testing.T) {
	b := newBench(t)
	code, pc := bot.NewCode(b.clock(), pulse.RoleViewer)
	b.w.AddCode(pc)
	want(t, b.say("1", "1", "/pair "+code), "a viewer")
}

func TestPairingTriesAreLimited(t *testing.T) {
	b := newBench(t)
	code, pc := bot.NewCode(b.clock(), pulse.RoleOperator)
	b.w.AddCode(pc)
	for range 5 {
		want(t, b.say("9", "9", "/pair AAAA-BBBB-CCCC"), "not right")
	}
	want(t, b.say("9", "9", "/pair "+code), "Too many codes")
	b.restart()
	want(t, b.say("9", "9", "/start "+code), "Too many codes")
	if len(b.w.Operators()) != 0 {
		t.Fatal("paired in spite of the limit")
	}
	want(t, b.say("8", "8", "/pair "+code), "Paired")
	b.later(61 * time.Minute)
	fresh, pc := bot.NewCode(b.clock(), pulse.RoleOperator)
	b.w.AddCode(pc)
	want(t, b.say("9", "9", "/pair "+fresh), "Paired")
}

func TestARetriedPairingCountsOnce(t *testing.T) {
	b := newBench(t)
	code, pc := bot.NewCode(b.clock(), pulse.RoleOperator)
	b.w.AddCode(pc)
	b.w.FailApply(errDown, errDown, errDown)
	id := b.put(b.event("9", "9", "/pair "+code))
	for range 4 {
		b.run()
		b.later(10 * time.Second)
	}
	if !b.w.Handled(id) || len(b.w.Operators()) != 1 {
		t.Error("not paired after the store came back")
	}
	if n, _ := b.w.FailedPairing(t.Context(), pulse.PlatformTelegram, "9"); n != 2 {
		t.Errorf("%d tries counted before this one, want 1", n-1)
	}
}

func TestViewersMayOnlyRead(t *testing.T) {
	b := ann(t)
	b.w.AddOperator(pulse.PlatformTelegram, "2", "Vera", pulse.RoleViewer)
	s := b.running("a goal")
	gate, msg := b.w.Block(s.ID, "which?", pulse.GateOption{Key: "more"}, pulse.GateOption{Key: "stop"})
	for _, text := range []string{"a goal of mine", "/pulse a goal", "/abort", "/pause", "/resume", "/answer yes", "/project my-app"} {
		want(t, b.say("1", "2", text), "You may look, but not change")
	}
	want(t, b.reply("1", "2", msg, "yes"), "may look")
	want(t, b.press("1", "2", "g:"+string(gate.ID)+":more"), "may look")
	if got := b.session(s.ID); got.Status != pulse.SessionBlocked || len(b.w.AllSessions()) != 1 {
		t.Errorf("a viewer changed something: %+v", got)
	}
	want(t, b.say("1", "2", "/list"), "a goal")
	want(t, b.say("1", "2", "/status"), "blocked")
	want(t, b.say("1", "2", "/show"), "a goal")
	want(t, b.say("1", "2", "/project"), "my-app")
	if got := b.say("1", "2", "/help"); strings.Contains(got, "/abort") || !strings.Contains(got, "/list") {
		t.Errorf("help of a viewer: %s", got)
	}
}

func TestCodes(t *testing.T) {
	seen := map[string]bool{}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 1000 {
		code, pc := bot.NewCode(now, pulse.RoleOperator)
		if len(code) != 14 || strings.Trim(code, "0123456789ABCDEFGHJKMNPQRSTVWXYZ-") != "" || seen[code] {
			t.Fatalf("code %q", code)
		}
		seen[code] = true
		if pc.Hash != bot.HashCode(strings.ToLower(code)) || strings.Contains(pc.Hash, code) || pc.ExpiresAt.Sub(now) != 10*time.Minute {
			t.Fatalf("record of %q: %+v", code, pc)
		}
	}
	if bot.HashCode("P0I1-l0Oo") != bot.HashCode("p011 1000") {
		t.Error("letters that look like digits make a difference")
	}
	if bot.HashCode("P000") == bot.HashCode("P001") {
		t.Error("different codes have one hash")
	}
}

func TestChatThatMoved(t *testing.T) {
	b := ann(t)
	s := b.running("a goal")
	e := bot.Event{Kind: bot.KindMoved, Platform: pulse.PlatformTelegram, Address: at("1"), To: at("-1001")}
	b.do(e)
	if got := b.session(s.ID); got.ChatID != "-1001" {
		t.Errorf("the session still speaks to %s", got.ChatID)
	}
	want(t, b.say("-1001", "1", "use tabs"), "Noted")
	if got := b.session(s.ID); len(got.Inputs) != 1 {
		t.Errorf("guidance from the new address did not arrive: %+v", got.Inputs)
	}
}
