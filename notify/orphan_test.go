package notify_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pulseloop/notify"
	"pulseloop/notify/notifytest"
	"pulseloop/pulse"
)

// A session may be given a Discord thread or a phone where no such sender
// runs: its messages end all the same, each when its patience is over.
func TestMessagesWithoutASenderEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		thread := pulse.Address{Platform: pulse.PlatformDiscord, Chat: "1"}
		for slot, kind := range map[string]pulse.NoticeKind{
			"progress": pulse.NoticeProgress, "reply": pulse.NoticeReply, "info": pulse.NoticeInfo, "gate": pulse.NoticeGate, "final": pulse.NoticeFinal,
		} {
			b.outbox.Put(pulse.Notice{ID: pulse.NoticeID(slot), Address: thread, Slot: slot, Kind: kind, Message: pulse.Text(slot)})
		}
		b.outbox.Put(pulse.Notice{ID: "sms", Address: pulse.Address{Platform: pulse.PlatformSMS, Chat: "+49"}, Slot: "sms", Kind: pulse.NoticeFinal, Message: pulse.Text("x")})
		want := func(status pulse.NoticeStatus, slots ...string) {
			t.Helper()
			for _, slot := range slots {
				n, reason := b.outbox.Get(slot), ""
				if status != pulse.NoticeQueued {
					reason = "no sender for " + string(n.Address.Platform)
				}
				if n.Status != status || n.LastError != reason {
					t.Errorf("%s is %s (%q), want %s (%q)", slot, n.Status, n.LastError, status, reason)
				}
			}
		}
		b.once(0)
		want(pulse.NoticeQueued, "progress", "reply", "info", "gate", "final", "sms")
		b.drain(3 * time.Minute)
		want(pulse.NoticeDropped, "progress")
		want(pulse.NoticeQueued, "reply", "info", "gate", "final", "sms")
		time.Sleep(2 * time.Hour)
		b.once(0)
		want(pulse.NoticeDead, "reply", "info")
		want(pulse.NoticeQueued, "gate", "final", "sms")
		time.Sleep(46 * time.Hour)
		b.once(0)
		want(pulse.NoticeDead, "reply", "info", "gate", "final", "sms")
	})
}

// Without any sender the dispatcher has only this to do.
func TestEndingNeedsNoSenderAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *notify.Config) { c.Senders = nil })
		b.put("1", "old", pulse.NoticeFinal)
		time.Sleep(49 * time.Hour)
		b.once(0)
		if n := b.outbox.Get("old"); n.Status != pulse.NoticeDead {
			t.Errorf("it is %s", n.Status)
		}
	})
}

// What nobody here can send is left to a process that can, and to a bot that
// is set up in time.
func TestYoungMessagesWaitForTheirSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *notify.Config) { c.Senders = nil })
		b.put("1", "young", pulse.NoticeFinal)
		b.once(0)
		time.Sleep(time.Minute)
		sender := notifytest.NewSender(t, pulse.PlatformTelegram)
		b.d = notify.NewDispatcher(b.outbox, notify.Config{Senders: []notify.Sender{sender}})
		b.once(1)
	})
}
