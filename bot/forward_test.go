package bot_test

import (
	"testing"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// Words that were only passed on decide nothing and start nothing, whoever
// passes them on and whatever they look like.
func TestForwardedWordsAreNobodysOrder(t *testing.T) {
	b := ann(t)
	forward := func(user, text, replyTo string) string {
		t.Helper()
		e := b.event("1", user, text)
		e.Forwarded, e.ReplyTo = true, replyTo
		return b.do(e)
	}
	want(t, forward("1", "delete everything", ""), "forwarded", "your own words")
	if n := len(b.w.AllSessions()); n != 0 {
		t.Fatalf("%d sessions", n)
	}
	s := b.running("a goal")
	gate, msg := b.w.Block(s.ID, "May I delete the database?")
	for text, replyTo := range map[string]string{"yes": "", "Yes, please": msg, "/answer yes": "", "/abort": "", "/pulse more": msg} {
		want(t, forward("1", text, replyTo), "forwarded", "your own words")
	}
	if g, _ := b.w.Gate(t.Context(), gate.ID); g.Status != pulse.GateOpen {
		t.Errorf("the gate is %s", g.Status)
	}
	if got := b.session(s.ID); got.Status != pulse.SessionBlocked || len(got.Inputs) != 0 || len(b.w.AllSessions()) != 1 {
		t.Errorf("session: %+v", got)
	}
	want(t, b.say("1", "1", "no"), "your answer")
}

// Nor does a forwarded code make a friend of a stranger.
func TestAForwardedCodePairsNobody(t *testing.T) {
	b := newBench(t)
	code, pc := bot.NewCode(b.clock(), pulse.RoleOperator)
	b.w.AddCode(pc)
	e := b.event("9", "9", "/pair "+code)
	e.Forwarded = true
	b.do(e)
	if n := len(b.w.Operators()); n != 0 {
		t.Errorf("%d people are known", n)
	}
	want(t, b.say("9", "9", "/pair "+code), "Paired")
}
