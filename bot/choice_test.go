package bot_test

import (
	"testing"

	"pulseloop/loop"
	"pulseloop/pulse"
)

// Words that are none of the choices decide nothing: the choices are shown
// again, with their buttons, and these work.
func TestWordsThatChooseNothingAreAskedAgain(t *testing.T) {
	for _, c := range []struct{ name, text, what string }{
		{"plain words", "no, rather not like this", ""}, {"a reply", "hm", "reply"}, {"a command", "/answer do it differently", ""},
		{"a command with the id", "/answer ID do it differently", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := ann(t)
			s := b.running("a goal")
			gate, msg := b.w.Block(s.ID, "10 iterations are done.", pulse.GateOption{Key: loop.ChoiceMore, Label: "10 more"}, pulse.GateOption{Key: loop.ChoiceStop, Label: "Stop here"})
			e := b.event("1", "1", c.text)
			if c.what == "reply" {
				e.ReplyTo = msg
			}
			if c.name == "a command with the id" {
				e.Text = "/answer " + pulse.Short(s.ID) + " do it differently"
			}
			want(t, b.do(e), "⚠️ 10 iterations are done.", "more: 10 more", "stop: Stop here")
			if got := b.session(s.ID); got.Status != pulse.SessionBlocked || len(got.Inputs) != 0 {
				t.Fatalf("the words decided: %+v", got)
			}
			n := b.w.Last(at("1"))
			if n.GateID != gate.ID || n.SessionID != s.ID || len(n.Message.Buttons) != 1 || len(n.Message.Buttons[0]) != 2 || n.Message.Buttons[0][1].Label != "Stop here" {
				t.Fatalf("the answer: %+v", n)
			}
			b.press("1", "1", n.Message.Buttons[0][1].Data)
			if got := b.session(s.ID); got.Status != pulse.SessionAborted {
				t.Errorf("after the button: %s", got.Status)
			}
		})
	}
}

// A label in other letters is a choice.
func TestATypedLabelIsAChoice(t *testing.T) {
	b := ann(t)
	s := b.running("a goal")
	b.w.Block(s.ID, "10 iterations are done.", pulse.GateOption{Key: loop.ChoiceMore, Label: "10 more"}, pulse.GateOption{Key: loop.ChoiceStop, Label: "Stop here"})
	want(t, b.say("1", "1", "stop HERE"), "🛑 Stop here")
}
