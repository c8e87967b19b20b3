package extract_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pulseloop/pulse"
	"pulseloop/pulse/extract"
)

const id = "0190a6b4-7c1e-7d2f-8a3b-4c5d6e7f8091"

func TestSignal(t *testing.T) {
	cases := []struct {
		name, text string
		signal     pulse.Signal
		claimed    pulse.Signal
		inferred   bool
		reason     string // must be contained
	}{
		{"continue", "Built it.\n<signal>CONTINUE</signal>", "CONTINUE", "CONTINUE", false, ""},
		{"complete", "<signal>COMPLETE</signal>", "COMPLETE", "COMPLETE", false, ""},
		{"blocked with reason", "<signal>BLOCKED: Need API key for Stripe</signal>", "BLOCKED", "BLOCKED", false, "Need API key for Stripe"},
		{"blocked without reason", "<signal>BLOCKED</signal>", "BLOCKED", "BLOCKED", false, "no reason"},
		{"blocked, the question before", "Looked around.\n\nWhich port\nshall it be?\n\n<signal>BLOCKED</signal>", "BLOCKED", "BLOCKED", false, "Which port shall it be?"},
		{"blocked, the question on the line", "Which port? <signal>BLOCKED</signal>", "BLOCKED", "BLOCKED", false, "Which port?"},
		{"reason with colon", "<signal>BLOCKED: see http://x: which?</signal>", "BLOCKED", "BLOCKED", false, "http://x: which?"},
		{"lower case and spaces", "<signal> complete </signal>", "COMPLETE", "COMPLETE", false, ""},
		{"the same twice", "<signal>CONTINUE</signal>\n<signal>CONTINUE</signal>", "CONTINUE", "CONTINUE", false, ""},
		{"two different", "<signal>CONTINUE</signal>\n<signal>COMPLETE</signal>", "BLOCKED", "COMPLETE", false, "two different signals"},
		{"unknown", "<signal>DONE</signal>", "BLOCKED", "", false, `unknown signal "DONE"`},
		{"in a fence", "```\n<signal>COMPLETE</signal>\n```\nThe next step is the parser.", "CONTINUE", "", true, ""},
		{"in a tilde fence", "~~~~ text\n<signal>COMPLETE</signal>\n~~~\n~~~~\nplease provide a name", "BLOCKED", "", true, "please provide a name"},
		{"in an open fence", "```go\n<signal>COMPLETE</signal>", "CONTINUE", "", true, ""},
		{"in inline code", "I will say `<signal>COMPLETE</signal>` later. Next step: tests.", "CONTINUE", "", true, ""},
		{"in a quotation", "> <signal>COMPLETE</signal>\n\n<signal>CONTINUE</signal>", "CONTINUE", "CONTINUE", false, ""},
		{"in a comment", "<!-- <signal>COMPLETE</signal> --><signal>CONTINUE</signal>", "CONTINUE", "CONTINUE", false, ""},
		{"in quotation marks", "I will end with \"<signal>COMPLETE</signal>\" when done. Next step: tests.", "CONTINUE", "", true, ""},
		{"in typographic quotation marks", "It printed “<signal>COMPLETE</signal>”", "BLOCKED", "", true, ""},
		{"in indented code", "This is how it ends:\n\n    <signal>COMPLETE</signal>\n\nThe next step is the parser.", "CONTINUE", "", true, ""},
		{"in pre", "<pre>\n<signal>COMPLETE</signal>\n</pre>\nThe next step is the parser.", "CONTINUE", "", true, ""},
		{"in code over lines", "See `a\n<signal>COMPLETE</signal>\nb`. Next step: tests.", "CONTINUE", "", true, ""},
		{"in an open comment", "The next step is the parser. <!-- <signal>COMPLETE</signal>", "CONTINUE", "", true, ""},
		{"in a table", "| end | <signal>COMPLETE</signal> |\n\nThe next step is the parser.", "CONTINUE", "", true, ""},
		{"in the middle of a sentence", "The word <signal>COMPLETE</signal> ends it. Next step: tests.", "CONTINUE", "", true, ""},
		{"at the end of a line", "All done. <signal>COMPLETE</signal>", "COMPLETE", "COMPLETE", false, ""},
		{"with words behind it", "<signal>COMPLETE</signal> and that is all", "COMPLETE", "COMPLETE", false, ""},
		{"emphasised", "Done.\n\n**<signal>COMPLETE</signal>**", "COMPLETE", "COMPLETE", false, ""},
		{"in a list, deeply indented", "- one\n    - <signal>CONTINUE</signal>", "CONTINUE", "CONTINUE", false, ""},
		{"a lone backtick before", "The ` key.\n\n<signal>COMPLETE</signal>\n\nand ` again", "COMPLETE", "COMPLETE", false, ""},
		{"the document's comment behind", "<signal>CONTINUE</signal> <!-- more work -->", "CONTINUE", "CONTINUE", false, ""},
		{"a reason over lines", "<signal>BLOCKED: one\ntwo</signal>", "BLOCKED", "BLOCKED", false, "one"},
		{"asked, not said", "The implementation is complete? No.", "BLOCKED", "", true, "without a signal"},
		{"fence and real", "```\n<signal>COMPLETE</signal>\n```\n<signal>CONTINUE</signal>", "CONTINUE", "CONTINUE", false, ""},
		{"inferred complete", "All tasks are complete and tests pass.", "COMPLETE", "", true, ""},
		{"inferred complete, other phrase", "The implementation is\ncomplete.", "COMPLETE", "", true, ""},
		{"negated", "Not all tasks are complete. Next step: the parser.", "CONTINUE", "", true, ""},
		{"planned", "Once the implementation is complete I will test.", "BLOCKED", "", true, "without a signal"},
		{"blocked beats complete", "The implementation is complete, but I need your input on naming.", "BLOCKED", "", true, "need your input"},
		{"complete beats continue", "Created file a.go. The implementation is complete.", "COMPLETE", "", true, ""},
		{"phrase in a fence", "```\nall tasks are complete\n```", "CONTINUE", "", true, ""},
		{"created file", "Created file x.go", "CONTINUE", "", true, ""},
		{"nothing", "Hello there.", "BLOCKED", "", true, "Hello there."},
		{"empty", "", "BLOCKED", "", true, "without a word"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := extract.Signal(c.text)
			if v.Signal != c.signal || v.Claimed != c.claimed || v.Inferred != c.inferred || !strings.Contains(v.Reason, c.reason) {
				t.Errorf("got %+v", v)
			}
			if v.Signal == pulse.SignalBlocked && v.Reason == "" {
				t.Error("blocked without a reason")
			}
		})
	}
}

func TestHint(t *testing.T) {
	full := "<anchor_hint>\n<turn_id> " + strings.ToUpper(id) + " </turn_id>\n<reason>the design</reason>\n</anchor_hint>"
	if h, ok := extract.Hint("text " + full); !ok || h.TurnID != id || h.Reason != "the design" {
		t.Errorf("full: %+v %v", h, ok)
	}
	for _, none := range []string{
		"", "<anchor_hint></anchor_hint>", "```\n" + full + "\n```",
		"<anchor_hint><turn_id>latest</turn_id></anchor_hint>", "> " + strings.ReplaceAll(full, "\n", " "),
	} {
		if h, ok := extract.Hint(none); ok {
			t.Errorf("%q gave %+v", none, h)
		}
	}
}

func TestSummary(t *testing.T) {
	cases := map[string]string{
		"## Built login component.\n\nDetails follow.\n<signal>CONTINUE</signal>": "Built login component.",
		"```\ncode\n```\n\n- added **a**\n- added b":                              "added a added b",
		"<signal>COMPLETE</signal>":                                               "",
	}
	for in, want := range cases {
		if got := extract.Summary(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := extract.Summary(strings.Repeat("wörter ", 100)); utf8.RuneCountInString(got) > extract.SummaryRunes || !strings.HasSuffix(got, "…") {
		t.Errorf("long: %q", got)
	}
}

// FuzzExtract holds what must be true of any text at all.
func FuzzExtract(f *testing.F) {
	for _, s := range []string{"", "<signal>COMPLETE</signal>", "```\n<signal>BLOCKED: x</signal>", "> `a`\xff<signal>", "<!--<anchor_hint>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v := extract.Signal(s)
		switch v.Signal {
		case pulse.SignalBlocked:
			if v.Reason == "" {
				t.Error("blocked without a reason")
			}
		case pulse.SignalContinue, pulse.SignalComplete:
		default:
			t.Errorf("no signal: %+v", v)
		}
		if len(v.Reason) > extract.MaxReason+100 {
			t.Errorf("reason of %d bytes", len(v.Reason))
		}
		if q := extract.Signal("```\n" + s + "\n"); v.Claimed != "" && q.Claimed == v.Claimed && !strings.Contains(s, "```") {
			t.Errorf("a fenced signal counted: %q", s)
		}
		extract.Hint(s)
		if n := utf8.RuneCountInString(extract.Summary(s)); n > extract.SummaryRunes {
			t.Errorf("summary of %d characters", n)
		}
	})
}
