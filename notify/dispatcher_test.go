package notify_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pulseloop/notify"
	"pulseloop/notify/notifytest"
	"pulseloop/pulse"
)

type bench struct {
	t      *testing.T
	outbox *notifytest.Outbox
	sender *notifytest.Sender
	d      *notify.Dispatcher
	made   int
}

func newBench(t *testing.T, change ...func(*notify.Config)) *bench {
	b := &bench{t: t, outbox: notifytest.NewOutbox(t, nil), sender: notifytest.NewSender(t, pulse.PlatformTelegram)}
	cfg := notify.Config{Senders: []notify.Sender{b.sender}, Jitter: func() float64 { return 0 }}
	for _, c := range change {
		c(&cfg)
	}
	b.d = notify.NewDispatcher(b.outbox, cfg)
	return b
}

func to(chat string) pulse.Address {
	return pulse.Address{Platform: pulse.PlatformTelegram, Chat: chat}
}

func (b *bench) put(chat, slot string, k pulse.NoticeKind) pulse.Notice {
	b.made++
	n := pulse.Notice{ID: pulse.NoticeID(fmt.Sprintf("n%d", b.made)), Address: to(chat), Slot: slot, Kind: k,
		Editable: k == pulse.NoticeProgress, Message: pulse.Text(slot)}
	b.outbox.Put(n)
	return n
}

func (b *bench) once(want int) {
	b.t.Helper()
	sent, err := b.d.RunOnce(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if sent != want {
		b.t.Errorf("%d messages sent, want %d", sent, want)
	}
}

// drain runs until nothing has been sent for a while of the bubble's clock.
func (b *bench) drain(during time.Duration) {
	b.t.Helper()
	for range int(during / time.Second) {
		if _, err := b.d.RunOnce(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

func (b *bench) texts() string {
	var out []string
	for _, m := range b.sender.Shown() {
		out = append(out, m.Text)
	}
	return strings.Join(out, " ")
}

func TestFinalsGoBeforeEditsAndOneAtATimeAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put("1", "progress", pulse.NoticeProgress)
		b.put("1", "info", pulse.NoticeInfo)
		b.put("1", "final", pulse.NoticeFinal)
		b.put("2", "other", pulse.NoticeReply)
		b.once(2)
		b.once(1)
		b.once(1)
		b.once(0)
		if got := b.texts(); !strings.HasSuffix(strings.ReplaceAll(got, "other ", ""), "info final progress") {
			t.Errorf("order is %q", got)
		}
	})
}

func TestLiveMessageIsEditedNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		n := b.put("1", "p", pulse.NoticeProgress)
		b.once(1)
		n.Message = pulse.Text("second")
		b.outbox.Put(n)
		b.once(1)
		shown := b.sender.Shown()
		if len(shown) != 1 || shown[0].Text != "second" || shown[0].Edits != 1 {
			t.Errorf("shown: %+v", shown)
		}
		b.sender.Delete(shown[0].ID)
		n.Message = pulse.Text("third")
		b.outbox.Put(n)
		b.once(1)
		if got := b.texts(); got != "third" {
			t.Errorf("after the message was deleted: %q", got)
		}
		if got := b.outbox.Get("p").ExternalID; got != b.sender.Shown()[0].ID {
			t.Errorf("the new message's id was not kept: %q", got)
		}
	})
}

func TestAnEditWhileSendingIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		n := b.put("1", "p", pulse.NoticeProgress)
		hold := make(chan struct{})
		b.sender.Next(to("1"), notifytest.Behaviour{Hold: hold})
		done := make(chan struct{})
		go func() { defer close(done); b.once(1) }()
		synctest.Wait()
		n.Message = pulse.Text("newer")
		b.outbox.Put(n)
		close(hold)
		<-done
		b.once(1)
		if got := b.texts(); got != "newer" {
			t.Errorf("shown: %q", got)
		}
	})
}

func TestPunishmentDelaysOneChatOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sender.Next(to("1"), notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.RetryAt, RetryAfter: time.Hour}})
		b.put("1", "a", pulse.NoticeFinal)
		b.once(0)
		b.put("1", "b", pulse.NoticeFinal)
		for i := range 5 {
			b.put(fmt.Sprint(i+2), fmt.Sprintf("c%d", i), pulse.NoticeReply)
		}
		b.once(5)
		calls := b.sender.Calls()
		b.drain(59 * time.Minute)
		if b.sender.Calls() != calls {
			t.Errorf("sent into a punished chat %d times", b.sender.Calls()-calls)
		}
		b.drain(2 * time.Minute)
		if got := b.texts(); !strings.HasSuffix(got, "a b") {
			t.Errorf("after the punishment: %q", got)
		}
		if n := b.outbox.Get("a"); n.Attempts != 0 {
			t.Errorf("a time to wait counted as %d attempts", n.Attempts)
		}
	})
}

func TestThreadsOfAPunishedChatWaitToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sender.Next(to("1"), notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.RetryAt, RetryAfter: 30 * time.Second}})
		b.put("1", "a", pulse.NoticeFinal)
		b.once(0)
		topic := to("1")
		topic.Thread = "7"
		b.outbox.Put(pulse.Notice{ID: "topic", Address: topic, Slot: "t", Kind: pulse.NoticeFinal, Message: pulse.Text("t")})
		b.once(0)
		if b.sender.Calls() != 1 {
			t.Error("sent into a thread of a punished chat")
		}
		b.drain(time.Minute)
		if len(b.sender.Shown()) != 2 {
			t.Errorf("shown: %q", b.texts())
		}
	})
}

func TestLimitsOfEditsDoNotHoldFinalsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		free := time.Now().Add(20 * time.Second)
		b.sender.ReadyWhen(func(_ pulse.Address, edit bool) time.Time {
			if edit {
				return free
			}
			return time.Time{}
		})
		n := b.put("1", "p", pulse.NoticeProgress)
		b.once(1)
		n.Message = pulse.Text("edited")
		b.outbox.Put(n)
		b.once(0)
		b.put("1", "final", pulse.NoticeFinal)
		b.once(1)
		b.drain(25 * time.Second)
		if got := b.texts(); got != "edited final" {
			t.Errorf("shown: %q", got)
		}
	})
}

func TestAPunishedEditDoesNotHoldFinalsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		n := b.put("1", "p", pulse.NoticeProgress)
		b.once(1)
		b.sender.Next(to("1"), notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.RetryAt, RetryAfter: time.Minute}})
		n.Message = pulse.Text("edited")
		b.outbox.Put(n)
		b.once(0)
		b.put("1", "final", pulse.NoticeFinal)
		b.once(1)
		b.drain(2 * time.Minute)
		if got := b.texts(); got != "edited final" {
			t.Errorf("shown: %q", got)
		}
	})
}

func TestAmbiguousByKind(t *testing.T) {
	lost := notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.Ambiguous, Err: errors.New("connection reset")}, Show: true}
	for _, c := range []struct {
		kind   pulse.NoticeKind
		losses int
		shown  int
		status pulse.NoticeStatus
	}{
		{pulse.NoticeProgress, 1, 1, pulse.NoticeDropped},
		{pulse.NoticeFinal, 3, 4, pulse.NoticeSent},
		{pulse.NoticeGate, 2, 3, pulse.NoticeSent},
		{pulse.NoticeReply, 1, 2, pulse.NoticeSent},
		{pulse.NoticeReply, 2, 2, pulse.NoticeDropped},
		{pulse.NoticeInfo, 5, 2, pulse.NoticeDropped},
	} {
		t.Run(fmt.Sprintf("%s, lost %d times", c.kind, c.losses), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				for range c.losses {
					b.sender.Next(to("1"), lost)
				}
				b.put("1", "x", c.kind)
				b.drain(time.Minute)
				if got := len(b.sender.Shown()); got != c.shown {
					t.Errorf("appeared %d times, want %d", got, c.shown)
				}
				if got := b.outbox.Get("x").Status; got != c.status {
					t.Errorf("status is %s, want %s", got, c.status)
				}
			})
		})
	}
}

func TestATransientErrorBetweenDoesNotEarnAThirdCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		lost := notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.Ambiguous}, Show: true}
		b.sender.Next(to("1"), lost, notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.Transient, Err: errors.New("502")}}, lost)
		b.put("1", "x", pulse.NoticeReply)
		b.drain(time.Minute)
		if got := len(b.sender.Shown()); got != 2 {
			t.Errorf("appeared %d times", got)
		}
	})
}

func TestBackoffGrowsAndTheMessageArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		down := notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.Transient, Err: errors.New("502")}}
		for range 8 {
			b.sender.Next(to("1"), down)
		}
		start := time.Now()
		b.put("1", "x", pulse.NoticeFinal)
		b.drain(6 * time.Minute) // 1+2+4+8+16+32+64+128 s
		shown := b.sender.Shown()
		if len(shown) != 1 {
			t.Fatalf("shown %d times", len(shown))
		}
		if took := shown[0].At.Sub(start); took < 255*time.Second || took > 270*time.Second {
			t.Errorf("arrived after %s", took)
		}
	})
}

func TestHopelessMessagesDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sender.Next(to("1"), notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.Permanent, Err: errors.New("blocked by the user")}})
		b.put("1", "x", pulse.NoticeFinal)
		b.put("1", "y", pulse.NoticeFinal)
		b.drain(3 * time.Second)
		if n := b.outbox.Get("x"); n.Status != pulse.NoticeDead || !strings.Contains(n.LastError, "blocked") {
			t.Errorf("first is %s: %s", n.Status, n.LastError)
		}
		if b.outbox.Get("y").Status != pulse.NoticeSent {
			t.Error("the second one was held back")
		}
		for range 5000 {
			b.sender.Next(to("2"), notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.Transient, Err: errors.New("502")}})
		}
		b.put("2", "z", pulse.NoticeReply)
		b.drain(3 * time.Hour)
		if n := b.outbox.Get("z"); n.Status != pulse.NoticeDead || n.Attempts < 5 {
			t.Errorf("after 3 h of failures it is %s after %d attempts", n.Status, n.Attempts)
		}
	})
}

func TestMovedChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sender.Next(to("1"), notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.Transient, Moved: to("-100"), Err: errors.New("group upgraded")}})
		b.put("1", "x", pulse.NoticeFinal)
		b.once(1)
		if s := b.sender.Shown(); len(s) != 1 || s[0].Address != to("-100") {
			t.Errorf("shown: %+v", s)
		}
	})
}

func TestWhatLeavesIsCleanedAndRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *notify.Config) {
			c.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }
		})
		b.outbox.Put(pulse.Notice{ID: "a", Address: to("1"), Slot: "x", Kind: pulse.NoticeReply, Message: pulse.Message{
			Spans:   []pulse.Span{{Text: "key hunt\x1b[0mer2"}, {Text: " and hunter2", Style: pulse.StyleCode}},
			Buttons: [][]pulse.Button{{{Label: "use hunter2", Data: "g:1:x"}}}}})
		b.once(1)
		m := b.sender.Shown()[0]
		if m.Text != "key [redacted] and [redacted]" || m.Buttons[0][0].Label != "use [redacted]" || m.Buttons[0][0].Data != "g:1:x" {
			t.Errorf("sent %q with %v", m.Text, m.Buttons)
		}
		if got := b.outbox.Get("x").Message.Plain(); !strings.Contains(got, "\x1b") {
			t.Error("the stored message was changed")
		}
	})
}

func TestAPanicOfASenderIsAnAmbiguousDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sender.Next(to("1"), notifytest.Behaviour{Panic: true})
		b.put("1", "x", pulse.NoticeFinal)
		b.drain(5 * time.Second)
		if b.texts() != "x" {
			t.Errorf("shown: %q", b.texts())
		}
	})
}

func TestRunGoesOnWhileOneSendHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.d.Run(ctx) }()
		b.sender.Next(to("1"), notifytest.Behaviour{Hold: make(chan struct{})})
		b.put("1", "hangs", pulse.NoticeFinal)
		time.Sleep(2 * time.Second)
		b.put("1", "waits for it", pulse.NoticeFinal) // the sender reports two at once
		for i := range 30 {
			b.put(fmt.Sprint(i+2), fmt.Sprintf("x%d", i), pulse.NoticeFinal)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := len(b.sender.Shown()); got != 30 {
			t.Errorf("%d of 30 arrived beside a hanging one", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := b.outbox.Get("hangs").Status; got != pulse.NoticeQueued {
			t.Errorf("the hanging one was left %s", got)
		}
	})
}

func TestAClaimOfADeadProcessIsSentByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put("1", "x", pulse.NoticeFinal)
		if _, _, err := b.outbox.ClaimNotices(t.Context(), []pulse.Platform{pulse.PlatformTelegram}, nil, 1, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		b.once(0)
		time.Sleep(31 * time.Second)
		b.once(1)
	})
}

func TestTheOutcomeSurvivesAShortOutageOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		hold := make(chan struct{})
		b.sender.Next(to("1"), notifytest.Behaviour{Hold: hold})
		b.put("1", "x", pulse.NoticeFinal)
		done := make(chan struct{})
		go func() { defer close(done); b.once(1) }()
		synctest.Wait()
		b.outbox.FailWith(errors.New("database is restarting"))
		close(hold)
		time.Sleep(time.Second)
		b.outbox.FailWith(nil)
		<-done
		if got := b.outbox.Get("x").Status; got != pulse.NoticeSent {
			t.Errorf("status is %s", got)
		}
	})
}
