package telegram_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/notify"
	"pulseloop/notify/notifytest"
	"pulseloop/pulse"
)

// The dispatcher and the sender together: a live message that someone deletes, a result of three messages, an answer lost on the
// way, a retry_after; everything arrives, in order, and the platform is never asked too often.
func TestThroughTheDispatcher(t *testing.T) {
	e, s, clock := limited(t)
	ann := e.srv.User("Ann")
	chat := ann.Private()
	outbox := notifytest.NewOutbox(t, clock.Now)
	d := notify.NewDispatcher(outbox, notify.Config{Senders: []notify.Sender{s}, Clock: clock.Now})
	put := func(slot string, kind pulse.NoticeKind, body string, editable bool) {
		outbox.Put(pulse.Notice{ID: pulse.NoticeID("id-" + slot), Address: address(chat), Slot: slot, Kind: kind, Editable: editable,
			Message: pulse.Text(body), CreatedAt: clock.Now()})
	}
	settle := func(what string, ok func() bool) {
		t.Helper()
		for range 3000 {
			if _, err := d.RunOnce(e.ctx); err != nil {
				t.Fatal(err)
			}
			if ok() {
				return
			}
			clock.add(100 * time.Millisecond)
		}
		t.Fatalf("%s: never; %+v", what, outbox.All())
	}
	shows := func(parts ...string) func() bool {
		return func() bool {
			var all []string
			for _, m := range chat.FromBot() {
				all = append(all, m.Text[:min(len(m.Text), 12)])
			}
			return strings.Join(all, "|") == strings.Join(parts, "|")
		}
	}
	put("live", pulse.NoticeProgress, "working 1", true)
	settle("progress", shows("working 1"))
	put("live", pulse.NoticeProgress, "working 2", true)
	settle("edit", shows("working 2"))
	chat.Delete(chat.FromBot()[0].ID)
	put("live", pulse.NoticeProgress, "working 3", true)
	settle("progress after its message was deleted", shows("working 3"))

	e.srv.Inject(telegramtest.Fault{Method: "sendMessage", Skip: 1, RetryAfter: 3})
	a, b, c := strings.Repeat("a", 4096), strings.Repeat("b", 4096), "the end"
	put("final", pulse.NoticeFinal, a+b+c, false)
	settle("a long result", shows("working 3", a[:12], b[:12], c))

	e.srv.Inject(telegramtest.Fault{Method: "sendMessage", Cut: true, Applied: true})
	put("gate", pulse.NoticeGate, "approve?", false)
	settle("a gate whose answer was lost comes again", shows("working 3", a[:12], b[:12], c, "approve?", "approve?"))
	settle("all settled", func() bool {
		for _, n := range outbox.All() {
			if n.Status != pulse.NoticeSent || n.ExternalID == "" {
				return false
			}
		}
		return true
	})
	refused := 0
	for _, call := range e.srv.Calls() {
		if call.Status == 429 {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d calls were answered 429, only the injected one should be: %s", refused, fmt.Sprint(e.srv.Calls()))
	}
}
