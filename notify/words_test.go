package notify_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pulseloop/notify"
	"pulseloop/pulse"
)

// wording is the seam of the loop, written out: notify does not import loop.
type wording interface {
	IterationDone(s pulse.Session, it pulse.Iteration) pulse.Message
	Completed(s pulse.Session, it pulse.Iteration) pulse.Message
	Blocked(s pulse.Session, g pulse.Gate) pulse.Message
	Failed(s pulse.Session, reason, hint string) pulse.Message
	Paused(s pulse.Session) pulse.Message
	Aborted(s pulse.Session, by string) pulse.Message
}

var _ wording = notify.Words{}

var session = pulse.Session{ID: "019a0000-0000-7000-8000-0000abcdef01", ProjectName: "my-app", MaxIterations: 10,
	CurrentIteration: 5, TotalCommits: 3, BranchName: "pulse/login-abcdef01", TotalTokens: 12345, TotalCostMicros: 123_400}

func TestFirstLines(t *testing.T) {
	w := notify.Words{}
	limit := session
	limit.Status = pulse.SessionBlocked
	one := session
	one.CurrentIteration, one.TotalCommits = 1, 1
	for _, c := range []struct {
		name, want string
		got        pulse.Message
	}{
		{"continue", "📍 [my-app] Iteration 3/10: Built login component. Continuing...",
			w.IterationDone(session, pulse.Iteration{Number: 3, OutputSummary: "Built login component"})},
		{"continue, own full stop", "📍 [my-app] Iteration 3/10: Built login component. Continuing...",
			w.IterationDone(session, pulse.Iteration{Number: 3, OutputSummary: "Built login\n component.\n"})},
		{"continue, nothing said", "📍 [my-app] Iteration 3/10: done. Continuing...", w.IterationDone(session, pulse.Iteration{Number: 3})},
		{"the last one, for now", "📍 [my-app] Iteration 3/10: Half done.", w.IterationDone(limit, pulse.Iteration{Number: 3, OutputSummary: "Half done"})},
		{"complete", "✅ [my-app] Session complete (5 iterations, 3 commits)", w.Completed(session, pulse.Iteration{})},
		{"complete, one each", "✅ [my-app] Session complete (1 iteration, 1 commit)", w.Completed(one, pulse.Iteration{})},
		{"blocked", "⏸️ [my-app] Blocked: Need API key for Stripe integration",
			w.Blocked(session, pulse.Gate{Prompt: "Need API key for Stripe integration"})},
		{"failed", "❌ [my-app] Failed: the agent is not logged in", w.Failed(session, "the agent is not logged in", "run claude login")},
		{"paused", "⏸️ [my-app] Paused after iteration 5/10", w.Paused(session)},
		{"aborted", "🛑 [my-app] Aborted by Ann (5 iterations, 3 commits)", w.Aborted(session, "Ann")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if first, _, _ := strings.Cut(c.got.Plain(), "\n"); first != c.want {
				t.Errorf("first line\n got %q\nwant %q", first, c.want)
			}
		})
	}
}

func TestCompletedDetails(t *testing.T) {
	got := notify.Words{}.Completed(session, pulse.Iteration{OutputSummary: "Added *login*.\nAll <b>green</b>.",
		CommitHash: "0123456789abcdef", FilesChanged: []string{"a.go", "b.go"}}).Plain()
	for _, want := range []string{"Added *login*.\nAll <b>green</b>.", "Branch: pulse/login-abcdef01", "Commit: 0123456 (2 files changed)",
		"Tokens: 12,345 · Cost: $0.12", "Unverified"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	unknown := session
	unknown.TotalTokens, unknown.TotalCostMicros = 0, 0
	if got := (notify.Words{}).Completed(unknown, pulse.Iteration{}).Plain(); strings.Contains(got, "Tokens") || strings.Contains(got, "Cost") {
		t.Errorf("tells of tokens or cost that are not known:\n%s", got)
	}
}

func TestBlockedShowsTheQuestionInFull(t *testing.T) {
	question := "Which database?\n\n1. PostgreSQL\n2. SQLite\n" + strings.Repeat("Because it matters. ", 200)
	m := notify.Words{}.Blocked(session, pulse.Gate{ID: "g", Prompt: question})
	if !strings.Contains(m.Plain(), strings.TrimSpace(question)) {
		t.Errorf("the question was cut:\n%s", m.Plain())
	}
	if !strings.Contains(m.Plain(), "/answer abcdef01 TEXT") || !strings.Contains(m.Plain(), "Reply to this message") {
		t.Errorf("does not say how to answer:\n%s", m.Plain())
	}
	if len(m.Buttons) != 0 {
		t.Errorf("a question of free text has buttons: %v", m.Buttons)
	}
}

func TestBlockedButtons(t *testing.T) {
	gate := pulse.Gate{ID: "019a0000-0000-7000-8000-000000000001", Kind: pulse.GateLimit, Prompt: "10 iterations are used up.",
		Options: []pulse.GateOption{{Key: "more", Label: "10 more"}, {Key: "stop", Label: "Stop"}, {Key: strings.Repeat("k", 60), Label: "Too long"}}}
	m := notify.Words{}.Blocked(session, gate)
	if len(m.Buttons) != 1 || len(m.Buttons[0]) != 2 {
		t.Fatalf("buttons: %v", m.Buttons)
	}
	if b := m.Buttons[0][0]; b.Data != "g:019a0000-0000-7000-8000-000000000001:more" || b.Label != "10 more" {
		t.Errorf("first button is %+v", b)
	}
	for _, b := range m.Buttons[0] {
		if len(b.Data) > 64 {
			t.Errorf("button data of %d bytes: %s", len(b.Data), b.Data)
		}
	}
	if !strings.Contains(m.Plain(), "write the word instead") {
		t.Errorf("the option without a button is not explained:\n%s", m.Plain())
	}
}

func TestFailedNamesTheWayOut(t *testing.T) {
	got := notify.Words{}.Failed(session, "exit status 1\nlong trace", "run claude login").Plain()
	for _, want := range []string{"exit status 1\nlong trace", "run claude login", "/resume abcdef01"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestClean(t *testing.T) {
	for name, c := range map[string][2]string{
		"plain":                 {"a\tb\nc", "a\tb\nc"},
		"colours":               {"\x1b[31mred\x1b[0m", "red"},
		"title":                 {"a\x1b]0;owned\x07b", "ab"},
		"clipboard":             {"a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"},
		"hyperlink":             {"\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\", "text"},
		"overwrite":             {"rm -rf /\rls", "rm -rf /\nls"},
		"windows lines":         {"a\r\nb", "a\nb"},
		"bidi":                  {"a\u202eb\u2066c", "abc"},
		"invisible":             {"a\u200bb\ufeffc\x00d", "abcd"},
		"tags":                  {"a\U000e0041b", "ab"},
		"c1 controls":           {"a\u009b31mb\u0085c", "abc"},
		"invalid bytes":         {"a\xffb", "a\ufffdb"},
		"family emoji":          {"👩‍👩‍👧", "👩‍👩‍👧"},
		"unfinished":            {"a\x1b[", "a"},
		"unfinished title":      {"a\x1b]0;rest", "a0;rest"},
		"title over a line end": {"a\x1b]0;x\ny", "a0;x\ny"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := notify.Clean(c[0]); got != c[1] {
				t.Errorf("Clean(%q) = %q, want %q", c[0], got, c[1])
			}
		})
	}
	if got := notify.Clean("a" + strings.Repeat("\u0301", 500)); utf8.RuneCountInString(got) > 10 {
		t.Errorf("a flood of %d marks is left", utf8.RuneCountInString(got)-1)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[31mred\x1b]0;x\x07\x9b1m\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := notify.Clean(s)
		if !utf8.ValidString(got) {
			t.Fatalf("Clean(%q) is not valid UTF-8", s)
		}
		for _, r := range got {
			if (r < 0x20 && r != '\n' && r != '\t') || r == 0x7f || r >= 0x80 && r < 0xa0 {
				t.Fatalf("Clean(%q) lets %U through", s, r)
			}
		}
		if notify.Clean(got) != got {
			t.Fatalf("Clean(%q) is not clean", s)
		}
	})
}
