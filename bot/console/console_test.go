package console_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pulseloop/bot"
	"pulseloop/bot/bottest"
	"pulseloop/bot/console"
	"pulseloop/notify"
	"pulseloop/pulse"
)

// buffer is an output that two goroutines may use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func events(t *testing.T, c *console.Console, w *bottest.World) []bot.Event {
	t.Helper()
	var out []bot.Event
	for _, in := range w.Inbound() {
		out = append(out, c.Decode(in))
	}
	return out
}

func send(t *testing.T, c *console.Console, n pulse.Notice) {
	t.Helper()
	n.Address = c.Address()
	if d := c.Send(t.Context(), n, nil); d.Outcome != notify.Sent || d.ExternalID == "" {
		t.Errorf("delivery: %+v", d)
	}
}

func live(slot, text string) pulse.Notice {
	return pulse.Notice{Kind: pulse.NoticeProgress, Slot: slot, Editable: true, Message: pulse.Text(text)}
}

func TestLinesBecomeUpdatesInOrder(t *testing.T) {
	w := bottest.New(t, nil)
	var out buffer
	c := console.New(console.Config{In: strings.NewReader("add a health endpoint\n\n  \n/status\r\nfirst \\\nsecond\nno line feed"), Out: &out,
		Intake: w, ConsoleID: "local", User: "me", Boot: "b1"})
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range events(t, c, w) {
		got = append(got, e.Text)
		if e.Kind != bot.KindMessage || e.Sender.UserID != "me" || e.Address != c.Address() || !e.Private || e.MessageID != fmt.Sprint(i+1) {
			t.Errorf("event: %+v", e)
		}
	}
	if want := "add a health endpoint|/status|first \nsecond|no line feed"; strings.Join(got, "|") != want {
		t.Errorf("lines: %q", got)
	}
	if in := w.Inbound()[0]; in.Source != "console:b1" || in.Platform != pulse.PlatformConsole {
		t.Errorf("update: %+v", in)
	}
	if !strings.Contains(out.String(), "› add a health endpoint\n") {
		t.Errorf("the transcript lacks what was typed: %q", out.String())
	}
}

func TestWhatIsTypedOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, keys := io.Pipe()
		w, out := bottest.New(t, nil), &buffer{}
		c := console.New(console.Config{In: r, Out: out, TTY: true, Intake: w})
		done := make(chan error, 1)
		go func() { done <- c.Run(t.Context()) }()
		for _, burst := range [][]string{
			{"first of a paste\n", "\n", "  second\n", "third\n"}, // one read a line, as terminals have it
			{"on its own\n"},
			{"/status\n", "/help\n", "and words\n"},
			{"\x1b[A\x1b[1;5Cup\x1b[200~ and\x1bOP down\x1b[201~\x1b\n"},
			{strings.Repeat("x", 4095) + "\n"},
			{strings.Repeat("y", 4094) + "\n"},
			{"the last"},
		} {
			for _, line := range burst {
				if _, err := io.WriteString(keys, line); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		keys.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		var got []string
		for _, e := range events(t, c, w) {
			got = append(got, e.Text)
		}
		want := []string{"first of a paste\n\n  second\nthird", "on its own", "/status", "/help", "and words", "up and down", strings.Repeat("y", 4094), "the last"}
		if !slices.Equal(got, want) {
			t.Errorf("messages: %.300q", got)
		}
		if n := strings.Count(out.String(), "at most 4095 bytes of a line"); n != 1 {
			t.Errorf("%d lines are said to be cut", n)
		}
	})
}

func TestLongLinesAreRefused(t *testing.T) {
	w := bottest.New(t, nil)
	var out buffer
	c := console.New(console.Config{In: strings.NewReader(strings.Repeat("x", 1<<20) + "\nshort\n" + strings.Repeat("y\\\n", 1<<17) + "end\n"), Out: &out, Intake: w})
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range events(t, c, w) {
		if len(e.Text) > 256<<10 {
			t.Errorf("a line of %d bytes was taken", len(e.Text))
		}
	}
	if n := len(w.Inbound()); n != 1 {
		t.Errorf("%d lines were taken, want one", n)
	}
	if got := events(t, c, w)[0].Text; got != "short" || !strings.Contains(out.String(), "longer than 256 KB") {
		t.Errorf("first line taken is %.20q", got)
	}
}

func TestNumbersPressButtons(t *testing.T) {
	w := bottest.New(t, nil)
	var out buffer
	c := console.New(console.Config{In: strings.NewReader(""), Out: &out, Intake: w})
	if err := c.Say(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	send(t, c, pulse.Notice{Kind: pulse.NoticeGate, Slot: "g", Message: pulse.Message{Spans: []pulse.Span{{Text: "Blocked"}},
		Buttons: [][]pulse.Button{{{Label: "10 more", Data: "g:1:more"}, {Label: "Stop\x1b[2J", Data: "g:1:stop"}}}}})
	if !strings.Contains(out.String(), "[1] 10 more   [2] Stop\n") {
		t.Errorf("buttons: %q", out.String())
	}
	for _, line := range []string{"3", "2", "2"} {
		if err := c.Say(t.Context(), line); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, e := range events(t, c, w) {
		got = append(got, string(e.Kind)+" "+e.Text+e.Data)
	}
	if want := "message 1, message 3, press g:1:stop, message 2"; strings.Join(got, ", ") != want {
		t.Errorf("events: %q", got)
	}
}

func TestAnOutageDelaysLinesAndLosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bottest.New(t, nil)
		var out buffer
		in := &flaky{Intake: w, failures: 5}
		c := console.New(console.Config{In: strings.NewReader("one\ntwo\n"), Out: &out, Intake: in})
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(w.Inbound()); n != 2 {
			t.Errorf("%d of 2 lines arrived", n)
		}
		if n := strings.Count(out.String(), "trying on"); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

type flaky struct {
	bot.Intake
	failures int
}

func (f *flaky) Receive(ctx context.Context, source string, u []pulse.Inbound, offset string) (int, error) {
	if f.failures > 0 {
		f.failures--
		return 0, errors.New("database is down")
	}
	return f.Intake.Receive(ctx, source, u, offset)
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, in := io.Pipe()
		c := console.New(console.Config{In: r, Out: &buffer{}, TTY: true, Intake: bottest.New(t, nil)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		in.Close()
	})
	if err := console.New(console.Config{Out: &buffer{}}).Run(t.Context()); err == nil {
		t.Error("a console without input ran")
	}
}

func TestAgentsTextCannotSteerTheTerminal(t *testing.T) {
	var out buffer
	c := console.New(console.Config{Out: &out})
	send(t, c, pulse.Notice{Kind: pulse.NoticeFinal, Slot: "f", Message: pulse.Message{Spans: []pulse.Span{
		{Text: "done\x1b]0;owned\x07\x1b[2J\rover"}, {Text: "\x1b]52;c;ZXZpbA==\x07code", Style: pulse.StyleCode}}}})
	send(t, c, live("p", "⚙️ head\n▸ step\x1b[31m\x07"))
	if got := out.String(); strings.ContainsAny(got, "\x1b\x07\r") || !strings.Contains(got, "done\n   overcode") {
		t.Errorf("printed %q", got)
	}
	var colours buffer
	c = console.New(console.Config{Out: &colours, TTY: true})
	send(t, c, pulse.Notice{Kind: pulse.NoticeFinal, Slot: "f", Message: pulse.Message{Spans: []pulse.Span{{Text: "a\x1b[2J"}, {Text: "b\nc", Style: pulse.StyleCode}}}})
	if got := colours.String(); got != "a\x1b[36mb\x1b[0m\n   \x1b[36mc\x1b[0m\n" {
		t.Errorf("printed %q", got)
	}
}

func TestAppendedProgressIsCompact(t *testing.T) {
	var out buffer
	c := console.New(console.Config{Out: &out})
	for _, text := range []string{"⚙️ [my-app] Iteration 1/10 · 0s\nthe agent is at work", "⚙️ [my-app] Iteration 1/10 · 2s · 1 step\n▸ Read a.go",
		"⚙️ [my-app] Iteration 1/10 · 4s · 1 step\n✓ Read a.go", "⚙️ [my-app] Iteration 1/10 · 9s · 2 steps\n✓ Read a.go\n▸ Bash go test ./...",
		"▪️ [my-app] Iteration 1/10 ended after 9s · 2 steps"} {
		send(t, c, live("p1", text))
	}
	send(t, c, pulse.Notice{Kind: pulse.NoticeFinal, Slot: "f", Message: pulse.Text("✅ [my-app] Session complete (1 iteration, 1 commit)\n\nBuilt it.")})
	want := "⚙️ [my-app] Iteration 1/10\n   · Read a.go\n   · Bash go test ./...\n✅ [my-app] Session complete (1 iteration, 1 commit)\n\n   Built it.\n"
	if got := out.String(); got != want {
		t.Errorf("printed\n%q\nwant\n%q", got, want)
	}
}

func TestLiveLineOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, keys := io.Pipe()
		term := &terminal{wide: 60}
		w := bottest.New(t, nil)
		c := console.New(console.Config{In: r, Out: term, TTY: true, Width: func() int { return 60 }, Intake: w})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		enter := func(s string) {
			t.Helper()
			term.typeKeys(s + "\n")
			if _, err := io.WriteString(keys, s+"\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // of the bubble: longer than a paste pauses
			synctest.Wait()
		}
		is := func(want string) {
			t.Helper()
			if got := term.shown(); got != want {
				t.Errorf("the screen shows\n%s\n-- want\n%s", got, want)
			}
		}
		synctest.Wait()
		is("›")
		enter("a goal")
		is("› a goal\n›")
		send(t, c, live("p1", "⚙️ Iteration 1/10 · 1s\n▸ Read a.go"))
		is("› a goal\n⚙️ Iteration 1/10 · 1s · ▸ Read a.go\n›")
		term.typeKeys("use ta")
		send(t, c, live("p1", "⚙️ Iteration 1/10 · 3s\n▸ Read b.go"))
		is("› a goal\n⚙️ Iteration 1/10 · 3s · ▸ Read b.go\n› use ta")
		term.typeKeys("bs\n")
		if _, err := io.WriteString(keys, "use tabs\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		is("› a goal\n› use tabs\n⚙️ Iteration 1/10 · 3s · ▸ Read b.go\n›")
		send(t, c, pulse.Notice{Kind: pulse.NoticeReply, Slot: "r", Message: pulse.Text("📝 Noted.")})
		is("› a goal\n› use tabs\n📝 Noted.\n⚙️ Iteration 1/10 · 3s · ▸ Read b.go\n›")
		long := strings.Repeat("long ", 20)
		enter(long)
		send(t, c, live("p1", "⚙️ "+strings.Repeat("wide ", 30)))
		if got := strings.Split(term.shown(), "\n"); len(got) != 7 || !strings.HasPrefix(got[3], "› long") || !strings.HasSuffix(got[5], "…") {
			t.Errorf("after a line that wraps the screen shows\n%s", term.shown())
		}
		send(t, c, pulse.Notice{Kind: pulse.NoticeFinal, Slot: "f", Message: pulse.Text("✅ Done")})
		send(t, c, live("p1", "▪️ Iteration 1/10 ended"))
		if got := term.shown(); !strings.HasSuffix(got, "\n✅ Done\n›") || strings.Contains(got, "⚙️") {
			t.Errorf("after the end the screen shows\n%s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := term.shown(); !strings.HasSuffix(got, "✅ Done") {
			t.Errorf("left behind\n%s", got)
		}
		keys.Close()
	})
}

func TestDeliveriesThatCannotBe(t *testing.T) {
	c := console.New(console.Config{Out: &buffer{}})
	d := c.Send(t.Context(), pulse.Notice{Address: pulse.Address{Platform: pulse.PlatformConsole, Chat: "another"}, Kind: pulse.NoticeReply, Message: pulse.Text("x")}, nil)
	if d.Outcome != notify.Permanent {
		t.Errorf("another console's message: %+v", d)
	}
	c = console.New(console.Config{Out: broken{}})
	if d := c.Send(t.Context(), pulse.Notice{Address: c.Address(), Kind: pulse.NoticeReply, Message: pulse.Text("x")}, nil); d.Outcome != notify.Permanent || d.Err == nil {
		t.Errorf("a terminal that is gone: %+v", d)
	}
	if at := c.Ready(c.Address(), false); at.After(time.Now()) {
		t.Error("a terminal is not ready")
	}
	for _, raw := range []string{"", "{", "[]", `{"text":"x"}`} {
		if e := c.Decode(pulse.Inbound{Payload: []byte(raw)}); e.Kind != bot.KindIgnored {
			t.Errorf("%q decoded to %+v", raw, e)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestALateStateDoesNotFollowItsOutcome(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	state := func(slot, text string, after time.Duration) pulse.Notice {
		n := live(slot, text)
		n.SessionID, n.CreatedAt = "s1", at.Add(after)
		return n
	}
	var out buffer
	c := console.New(console.Config{Out: &out})
	send(t, c, state("progress:i1", "⚙️ [my-app] Iteration 1/10", 0))
	send(t, c, pulse.Notice{SessionID: "s1", Kind: pulse.NoticeFinal, Message: pulse.Text("✅ complete"), CreatedAt: at.Add(2 * time.Second)})
	send(t, c, state("progress:i1", "⚙️ [my-app] Iteration 1/10\n▸ read_file", time.Second))
	other := state("progress:i9", "⚙️ [site] Iteration 1/10", time.Second)
	other.SessionID = "s2"
	send(t, c, other)
	send(t, c, state("progress:i2", "⚙️ [my-app] Iteration 2/10", 3*time.Second))
	if got, want := out.String(), "⚙️ [my-app] Iteration 1/10\n✅ complete\n⚙️ [site] Iteration 1/10\n⚙️ [my-app] Iteration 2/10\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

func TestPrintLeavesTheTypedLineWhereItIs(t *testing.T) {
	for tty, want := range map[bool]string{true: "Listening on port 1\nready\n›", false: "Listening on port 1\nready"} {
		synctest.Test(t, func(t *testing.T) {
			screen := &terminal{}
			in, keys := io.Pipe()
			c := console.New(console.Config{In: in, Out: screen, TTY: tty, Intake: bottest.New(t, nil)})
			done := make(chan error, 1)
			go func() { done <- c.Run(t.Context()) }()
			synctest.Wait()
			c.Print("Listening on port 1\n")
			c.Print("ready")
			if got := screen.shown(); got != want {
				t.Errorf("terminal %t: the screen shows %q, want %q", tty, got, want)
			}
			keys.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNothingAsksForAReplyInATerminal(t *testing.T) {
	s := pulse.Session{ID: "01a1f7de-8be9-7581-8f0e-639125505b1b", ProjectName: "my-app", CurrentIteration: 1, MaxIterations: 10, BranchName: "pulse/x"}
	question := pulse.Gate{ID: "g1", SessionID: s.ID, Prompt: "Which port?"}
	choice := question
	choice.Options = []pulse.GateOption{{Key: "more", Label: "2 more"}, {Key: "stop", Label: "Stop"}}
	var words notify.Words
	for want, m := range map[string]pulse.Message{
		"To go on from here, send /resume":  words.Completed(s, pulse.Iteration{}),
		"Type the answer, or send /answer":  words.Blocked(s, question),
		"Or type the word, or send /answer": words.Blocked(s, choice),
	} {
		var out buffer
		c := console.New(console.Config{Out: &out})
		send(t, c, pulse.Notice{Kind: pulse.NoticeFinal, Message: m})
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(strings.ToLower(got), "reply") {
			t.Errorf("printed %q, want %q in it", got, want)
		}
	}
}
