package notify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pulseloop/notify"
	"pulseloop/notify/notifytest"
	"pulseloop/pulse"
)

// next is the dispatcher of the process that follows: it knows nothing but what is in the outbox.
func (b *bench) next() {
	b.d = notify.NewDispatcher(b.outbox, notify.Config{Senders: []notify.Sender{b.sender}, Jitter: func() float64 { return 0 }})
}

func TestPartsThatAreThereAreNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		three := notifytest.Behaviour{Of: 3}
		b.sender.Next(to("1"), three, notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.Transient, Err: errors.New("502")}}, three, three)
		b.put("1", "long", pulse.NoticeFinal)
		b.put("1", "after", pulse.NoticeFinal)
		b.once(0)
		for range 8 { // each step is another process
			b.next()
			time.Sleep(2 * time.Second)
			if _, err := b.d.RunOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := b.texts(), "long 1/3 long 2/3 long 3/3 after"; got != want {
			t.Errorf("shown %q, want %q", got, want)
		}
		parts, err := b.outbox.NoticeParts(t.Context(), b.outbox.Get("long").ID)
		if err != nil || len(parts) != 3 || parts[0] != b.outbox.Get("long").ExternalID {
			t.Errorf("on record are the parts %q: %v", parts, err)
		}
	})
}

func TestWhoLostItsClaimSettlesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		hold := make(chan struct{})
		b.sender.Next(to("1"), notifytest.Behaviour{Hold: hold, Delivery: notify.Delivery{Outcome: notify.Permanent, Err: errors.New("late")}})
		b.put("1", "x", pulse.NoticeFinal)
		done := make(chan struct{})
		go func() { defer close(done); b.once(0) }()
		synctest.Wait()
		b.outbox.Taken("x") // the process was stopped for longer than its hold
		other := notifytest.NewSender(t, pulse.PlatformTelegram)
		second := notify.NewDispatcher(b.outbox, notify.Config{Senders: []notify.Sender{other}})
		if sent, err := second.RunOnce(t.Context()); sent != 1 || err != nil {
			t.Fatalf("the one that took over sent %d: %v", sent, err)
		}
		close(hold)
		<-done
		if n := b.outbox.Get("x"); n.Status != pulse.NoticeSent || n.LastError != "" {
			t.Errorf("the one that was stopped made it %s: %s", n.Status, n.LastError)
		}
	})
}

func TestWhatThePlatformAskedForOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		began := time.Now()
		b.sender.Next(to("1"), notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.RetryAt, RetryAfter: time.Hour, Err: errors.New("429")}})
		b.put("1", "a", pulse.NoticeFinal)
		b.once(0)
		b.next()
		b.put("1", "b", pulse.NoticeReply)
		b.put("2", "elsewhere", pulse.NoticeReply)
		b.once(1)
		for len(b.sender.Shown()) < 3 {
			b.drain(time.Minute)
			if time.Since(began) > 2*time.Hour {
				t.Fatalf("two hours later only this was sent: %s", b.texts())
			}
		}
		if first := b.sender.Shown()[1]; first.Slot != "a" || first.At.Sub(began) < time.Hour {
			t.Errorf("%s was sent %s after a wait of an hour was named", first.Slot, first.At.Sub(began))
		}
	})
}

func TestAPunishedEditHoldsNoFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		n := b.put("1", "p", pulse.NoticeProgress)
		b.once(1)
		n.Message = pulse.Text("more")
		b.outbox.Put(n)
		b.sender.Next(to("1"), notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.RetryAt, RetryAfter: time.Hour, Err: errors.New("429")}})
		b.once(0)
		b.next()
		b.put("1", "final", pulse.NoticeFinal)
		b.once(1)
		if got := b.texts(); got != "p final" {
			t.Errorf("shown: %q", got)
		}
	})
}

func TestARefusingChatWaitsForItsPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sender.Next(to("1"), notifytest.Behaviour{Delivery: notify.Delivery{Outcome: notify.Refused, Err: errors.New("bot was blocked by the user")}})
		b.put("1", "a", pulse.NoticeFinal)
		b.once(0)
		b.put("1", "b", pulse.NoticeFinal)
		b.put("1", "r", pulse.NoticeReply)
		b.put("2", "elsewhere", pulse.NoticeFinal)
		b.next()
		b.drain(2*time.Hour + 2*time.Minute)
		if calls := b.sender.Calls(); calls != 2 {
			t.Errorf("%d calls: a chat that refuses is left alone", calls)
		}
		if n := b.outbox.Get("r"); n.Status != pulse.NoticeDead {
			t.Errorf("after two hours a reply that nobody waits for is %s", n.Status)
		}
		if held, ok := b.outbox.Holds()[to("1")]; !ok || !held.IsZero() {
			t.Errorf("the chat is held: %v, until %v", ok, held)
		}
		b.outbox.Release(to("1"))
		b.drain(5 * time.Second)
		if got := b.texts(); got != "elsewhere a b" {
			t.Errorf("shown: %q", got)
		}
	})
}

func TestWhatIsOverIsNotShownAsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		live := func(slot, text string, s pulse.SessionID) {
			b.outbox.Put(pulse.Notice{ID: pulse.NoticeID("id-" + slot), Address: to("1"), Slot: slot, Kind: pulse.NoticeProgress, Editable: true,
				SessionID: s, Message: pulse.Text(text)})
		}
		b.outbox.Stands("running", pulse.SessionRunning)
		b.outbox.Stands("over", pulse.SessionRunning)
		live("shown", "⚙️ at work", "over")
		b.once(1)
		live("never shown", "▪️ ended", "running")
		live("late", "⚙️ at work", "done")
		b.outbox.Stands("over", pulse.SessionComplete)
		b.outbox.Stands("done", pulse.SessionComplete)
		live("shown", "⚙️ still at work", "over")
		b.drain(5 * time.Second)
		if got := b.texts(); got != "⚙️ at work" {
			t.Errorf("shown: %q", got)
		}
		for slot, want := range map[string]pulse.NoticeStatus{"never shown": pulse.NoticeDropped, "late": pulse.NoticeDropped, "shown": pulse.NoticeSent} {
			if got := b.outbox.Get(slot).Status; got != want {
				t.Errorf("%s is %s, want %s", slot, got, want)
			}
		}
		live("shown", "▪️ ended", "over")
		live("going on", "⚙️ at work on something else", "running")
		b.drain(5 * time.Second)
		if got := b.texts(); got != "▪️ ended ⚙️ at work on something else" {
			t.Errorf("shown: %q", got)
		}
	})
}

func TestChatsThatHangTakeNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *notify.Config) { c.Parallel = 2 })
		hold := make(chan struct{})
		for i := range 20 {
			chat := fmt.Sprint("hangs", i)
			b.sender.Next(to(chat), notifytest.Behaviour{Hold: hold})
			b.put(chat, chat, pulse.NoticeFinal)
		}
		time.Sleep(time.Second) // what hangs came first
		b.put("1", "other", pulse.NoticeFinal)
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- b.d.Run(ctx) }()
		time.Sleep(25 * time.Second) // each pair takes its two seconds, not its thirty
		if got := b.texts(); got != "other" {
			t.Errorf("shown while 20 chats hang: %q", got)
		}
		close(hold)
		time.Sleep(5 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		var slots []string
		for _, m := range b.sender.Shown() {
			slots = append(slots, m.Slot)
		}
		slices.Sort(slots)
		if n := len(slices.Compact(slots)); n != 21 {
			t.Errorf("%d of 21 messages are there: %s", n, strings.Join(slots, " "))
		}
	})
}

func TestALongOutageOfTheStoreSendsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		hold := make(chan struct{})
		b.sender.Next(to("1"), notifytest.Behaviour{Hold: hold})
		b.put("1", "x", pulse.NoticeReply)
		done := make(chan struct{})
		go func() { defer close(done); b.once(1) }()
		synctest.Wait()
		b.outbox.FailWith(errors.New("database is away"))
		close(hold)
		time.Sleep(30 * time.Second)
		b.outbox.FailWith(nil)
		<-done
		b.drain(3 * time.Minute)
		if got := b.texts(); got != "x" {
			t.Errorf("shown: %q", got)
		}
	})
}
