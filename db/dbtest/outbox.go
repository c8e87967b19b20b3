package dbtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pulseloop/pulse"
)

func testOutbox(t *testing.T, open func(testing.TB) Place) {
	cases(t, open, map[string]func(*fixture){
		"a slot is said once":               slotOnce,
		"a live message is replaced":        liveMessage,
		"a change while it is being sent":   changedWhileSending,
		"given up stays given up":           givenUp,
		"one a chat, most urgent first":     oneAChat,
		"a dead sender's message":           lostSender,
		"two dispatchers":                   twoDispatchers,
		"retry and move":                    retryAndMove,
		"a message of several parts":        severalParts,
		"chats that are held":               heldChats,
		"held too long":                     heldTooLong,
		"replies find their session":        replies,
		"the watermark moves once":          watermark,
		"numbers without gaps":              gapless,
		"deltas after a position":           deltas,
		"moving sessions":                   moving,
		"waiters are woken":                 woken,
		"a chain of audit entries":          audited,
		"settings":                          settings,
		"people and places":                 people,
		"wrong codes are counted by sender": wrongCodes,
	})
}

var chat = pulse.Address{Platform: pulse.PlatformTelegram, Chat: "42"}

func (f *fixture) tell(to pulse.Address, slot string, kind pulse.NoticeKind, words string, change ...func(*pulse.Notice)) {
	f.t.Helper()
	n := pulse.Notice{ID: pulse.NoticeID(f.id()), Address: to, Slot: slot, Kind: kind, Message: pulse.Text(words)}
	for _, c := range change {
		c(&n)
	}
	f.apply(pulse.Guard{}, pulse.Change{Notices: []pulse.Notice{n}})
}

func live(n *pulse.Notice) { n.Editable = true }

func (f *fixture) claimNotices(limit int, skip ...pulse.Address) []pulse.Notice {
	f.t.Helper()
	out, token, err := f.ClaimNotices(f.ctx, []pulse.Platform{pulse.PlatformTelegram, pulse.PlatformConsole}, skip, limit, lease)
	if err != nil {
		f.t.Fatalf("claim notices: %v", err)
	}
	for _, n := range out {
		f.tokens[n.ID] = token
	}
	return out
}

func (f *fixture) settle(n pulse.Notice, status pulse.NoticeStatus, change ...func(*pulse.Notice)) {
	f.t.Helper()
	rev := n.Revision
	n.Status = status
	for _, c := range change {
		c(&n)
	}
	if err := f.SettleNotice(f.ctx, f.tokens[n.ID], n, rev, nil); err != nil {
		f.t.Fatalf("settle notice: %v", err)
	}
}

func sentAs(id string) func(*pulse.Notice) { return func(n *pulse.Notice) { n.ExternalID = id } }

// only claims the one notice that must be due.
func (f *fixture) only(words string) pulse.Notice {
	f.t.Helper()
	got := f.claimNotices(10)
	if len(got) != 1 || got[0].Message.Plain() != words {
		f.t.Fatalf("due: %+v, want only %q", got, words)
	}
	return got[0]
}

func slotOnce(f *fixture) {
	f.tell(chat, "s", pulse.NoticeFinal, "first")
	f.tell(chat, "s", pulse.NoticeFinal, "second")
	n := f.only("first")
	equal(f.t, n.Revision, 1, "revision")
	equal(f.t, n.Status, pulse.NoticeSending, "status")
	f.settle(n, pulse.NoticeSent, sentAs("m1"))
	f.tell(chat, "s", pulse.NoticeFinal, "third")
	equal(f.t, len(f.claimNotices(10)), 0, "due after it was sent")
	f.tell(pulse.Address{Platform: "telegram", Chat: "42", Thread: "7"}, "s", pulse.NoticeFinal, "in the topic")
	f.only("in the topic")
	mustCode(f.t, f.SettleNotice(f.ctx, f.tokens[n.ID], pulse.Notice{ID: n.ID, Status: pulse.NoticeSending}, 1, nil), pulse.CodeConflict, "settled as still sending")
}

func liveMessage(f *fixture) {
	f.tell(chat, "p", pulse.NoticeProgress, "one", live)
	f.tell(chat, "p", pulse.NoticeProgress, "two", live)
	n := f.only("two")
	equal(f.t, n.Revision, 2, "revision")
	f.settle(n, pulse.NoticeSent, sentAs("m1"))
	f.tell(chat, "p", pulse.NoticeFinal, "three", live)
	n = f.only("three")
	equal(f.t, n.ExternalID, "m1", "message to edit")
	equal(f.t, n.Kind, pulse.NoticeFinal, "kind")
	equal(f.t, n.Revision, 3, "revision")
}

func changedWhileSending(f *fixture) {
	f.tell(chat, "p", pulse.NoticeProgress, "one", live)
	n := f.only("one")
	f.tell(chat, "p", pulse.NoticeProgress, "two", live)
	equal(f.t, len(f.claimNotices(10)), 0, "due while it is being sent")
	f.settle(n, pulse.NoticeSent, sentAs("m1"))
	n = f.only("two")
	equal(f.t, n.ExternalID, "m1", "message to edit")
	equal(f.t, n.Revision, 2, "revision")
	f.settle(n, pulse.NoticeSent)
	equal(f.t, len(f.claimNotices(10)), 0, "due when all is said")
	at, err := f.NextNoticeAt(f.ctx)
	mustBe(f.t, err, nil, "next")
	equal(f.t, at.IsZero(), true, "nothing next")
}

func givenUp(f *fixture) {
	for _, status := range []pulse.NoticeStatus{pulse.NoticeDead, pulse.NoticeDropped} {
		f.tell(chat, string(status), pulse.NoticeProgress, "one", live)
		f.settle(f.only("one"), status, func(n *pulse.Notice) { n.LastError = "no such chat" })
		f.tell(chat, string(status), pulse.NoticeProgress, "two", live)
		equal(f.t, len(f.claimNotices(10)), 0, "due after "+string(status))
	}
	f.tell(chat, "blocked", pulse.NoticeProgress, "one", live)
	n := f.only("one")
	f.tell(chat, "blocked", pulse.NoticeProgress, "two", live)
	f.settle(n, pulse.NoticeDead)
	equal(f.t, len(f.claimNotices(10)), 0, "due for a dead address")
	counts, err := f.Counts(f.ctx)
	mustBe(f.t, err, nil, "counts")
	equal(f.t, counts["notices_dead"], 2, "dead")
}

func oneAChat(f *fixture) {
	other := pulse.Address{Platform: pulse.PlatformTelegram, Chat: "43"}
	f.tell(chat, "a", pulse.NoticeProgress, "progress")
	f.clock.Advance(time.Second)
	f.tell(chat, "b", pulse.NoticeInfo, "info")
	f.clock.Advance(time.Second)
	f.tell(chat, "c", pulse.NoticeFinal, "final")
	f.tell(other, "d", pulse.NoticeReply, "reply")
	f.tell(pulse.Address{Platform: pulse.PlatformSMS, Chat: "+1"}, "e", pulse.NoticeFinal, "another platform")
	f.tell(other, "f", pulse.NoticeFinal, "later", func(n *pulse.Notice) { n.NextAt = f.clock.Now().Add(time.Hour) })
	got := f.claimNotices(10)
	equal(f.t, len(got), 2, "claimed")
	equal(f.t, got[0].Message.Plain(), "info", "first: what is said once goes out in its order")
	equal(f.t, got[1].Message.Plain(), "reply", "second")
	equal(f.t, len(f.claimNotices(10)), 0, "claimed while both chats are busy")
	f.settle(got[0], pulse.NoticeSent)
	f.settle(got[1], pulse.NoticeSent)
	equal(f.t, len(f.claimNotices(10, chat)), 0, "claimed with the chat skipped")
	f.settle(f.only("final"), pulse.NoticeSent)
	f.settle(f.only("progress"), pulse.NoticeSent)
	f.tell(chat, "g", pulse.NoticeProgress, "one")
	f.tell(other, "h", pulse.NoticeFinal, "two")
	equal(f.t, f.claimNotices(1)[0].Message.Plain(), "two", "with a limit of one")
	equal(f.t, len(f.claimNotices(0)), 0, "with a limit of none")
	_, _, err := f.ClaimNotices(f.ctx, nil, nil, 5, lease)
	mustBe(f.t, err, nil, "without platforms")
}

func lostSender(f *fixture) {
	f.tell(chat, "a", pulse.NoticeFinal, "hello")
	first := f.only("hello")
	equal(f.t, first.Attempts, 0, "attempts")
	at, err := f.NextNoticeAt(f.ctx)
	mustBe(f.t, err, nil, "next")
	equal(f.t, at, f.clock.Now().Add(lease), "next is the end of the hold")
	f.clock.Advance(lease)
	stopped := f.tokens[first.ID]
	again := f.only("hello")
	equal(f.t, again.Attempts, 1, "the lost attempt counts")
	first.Status, first.ExternalID = pulse.NoticeSent, "late"
	mustBe(f.t, f.SettleNotice(f.ctx, stopped, first, 1, []string{"late", "later"}), pulse.ErrFenced, "the first sender awakes while the second sends")
	f.settle(again, pulse.NoticeSent, sentAs("m1"))
	mustBe(f.t, f.SettleNotice(f.ctx, stopped, first, 1, nil), pulse.ErrFenced, "the first sender awakes after the second")
	mustBe(f.t, f.SettleNotice(f.ctx, "", first, 1, nil), pulse.ErrFenced, "without a claim")
	parts, err := f.NoticeParts(f.ctx, first.ID)
	mustBe(f.t, err, nil, "parts")
	equal(f.t, strings.Join(parts, " "), "m1", "what the one who held it sent")
	counts, err := f.Counts(f.ctx)
	mustBe(f.t, err, nil, "counts")
	equal(f.t, counts["notices_sent"], 1, "sent")
}

func twoDispatchers(f *fixture) {
	const chats, each = 12, 5
	for i := range chats {
		for j := range each {
			f.tell(pulse.Address{Platform: pulse.PlatformTelegram, Chat: label(i)}, label(j), pulse.NoticeInfo, "x")
		}
	}
	total := make([]int, 4)
	errs := together(4, func(i int) error {
		for range 40 {
			got, token, err := f.ClaimNotices(f.ctx, []pulse.Platform{pulse.PlatformTelegram}, nil, 3, lease)
			if err != nil {
				return err
			}
			busy := map[string]bool{}
			for _, n := range got {
				if busy[n.Address.Chat] {
					f.t.Errorf("two of chat %s at once", n.Address.Chat)
				}
				busy[n.Address.Chat] = true
				n.Status = pulse.NoticeSent
				if err := f.SettleNotice(f.ctx, token, n, n.Revision, nil); err != nil {
					return err
				}
				total[i]++
			}
		}
		return nil
	})
	noErrors(f.t, errs)
	equal(f.t, total[0]+total[1]+total[2]+total[3], chats*each, "sent, each once")
}

func retryAndMove(f *fixture) {
	f.tell(chat, "a", pulse.NoticeFinal, "hello")
	until := f.clock.Now().Add(time.Minute)
	f.settle(f.only("hello"), pulse.NoticeQueued, func(n *pulse.Notice) {
		n.NextAt, n.LastError, n.Attempts = until, "429", 3
		n.Address.Chat = "-10042"
	})
	equal(f.t, len(f.claimNotices(10)), 0, "due before its time")
	at, err := f.NextNoticeAt(f.ctx)
	mustBe(f.t, err, nil, "next")
	equal(f.t, at, until, "next")
	f.clock.Advance(time.Minute)
	n := f.only("hello")
	equal(f.t, n.Address.Chat, "-10042", "new address")
	equal(f.t, n.Attempts, 3, "attempts")
	equal(f.t, n.LastError, "429", "error")
}

func replies(f *fixture) {
	s := f.addSession()
	gate := pulse.GateID(f.id())
	f.tell(chat, "gate", pulse.NoticeGate, "which?", func(n *pulse.Notice) { n.SessionID, n.GateID = s.ID, gate })
	f.settle(f.only("which?"), pulse.NoticeSent, sentAs("m7"))
	id, g, err := f.SessionByMessage(f.ctx, chat, "m7")
	mustBe(f.t, err, nil, "find")
	equal(f.t, id, s.ID, "session")
	equal(f.t, g, gate, "gate")
	for _, other := range []pulse.Address{{Platform: "telegram", Chat: "1"}, {Platform: "discord", Chat: "42"}} {
		_, _, err = f.SessionByMessage(f.ctx, other, "m7")
		mustBe(f.t, err, pulse.ErrNone, "in another place")
	}
	_, _, err = f.SessionByMessage(f.ctx, chat, "")
	mustBe(f.t, err, pulse.ErrNone, "no message")
}

func severalParts(f *fixture) {
	s := f.addSession()
	gate := pulse.GateID(f.id())
	f.tell(chat, "long", pulse.NoticeGate, "long", func(n *pulse.Notice) { n.SessionID, n.GateID, n.ReplyTo = s.ID, gate, "7" })
	n := f.only("long")
	until := f.clock.Now().Add(time.Second)
	n.Status, n.NextAt, n.ExternalID = pulse.NoticeQueued, until, "m1"
	mustBe(f.t, f.SettleNotice(f.ctx, f.tokens[n.ID], n, 1, []string{"m1", "m2"}), nil, "two parts are there")
	f.clock.Advance(time.Second)
	n = f.only("long")
	equal(f.t, n.ExternalID, "m1", "first part")
	n.Status = pulse.NoticeSent
	mustBe(f.t, f.SettleNotice(f.ctx, f.tokens[n.ID], n, 1, []string{"m1", "m2", "m3"}), nil, "all are")
	parts, err := f.NoticeParts(f.ctx, n.ID)
	mustBe(f.t, err, nil, "parts")
	equal(f.t, strings.Join(parts, " "), "m1 m2 m3", "parts in order")
	for _, id := range parts {
		got, g, err := f.SessionByMessage(f.ctx, chat, id)
		mustBe(f.t, err, nil, "find by "+id)
		equal(f.t, got, s.ID, "session of "+id)
		equal(f.t, g, gate, "gate of "+id)
	}
	_, _, err = f.SessionByMessage(f.ctx, pulse.Address{Platform: "telegram", Chat: "1"}, "m2")
	mustBe(f.t, err, pulse.ErrNone, "a part in another place")
	none, err := f.NoticeParts(f.ctx, pulse.NoticeID(f.id()))
	mustBe(f.t, err, nil, "parts of nothing")
	equal(f.t, len(none), 0, "parts of nothing")
}

func heldChats(f *fixture) {
	other := pulse.Address{Platform: pulse.PlatformTelegram, Chat: "43"}
	f.tell(chat, "p", pulse.NoticeProgress, "progress", live)
	f.settle(f.only("progress"), pulse.NoticeSent, sentAs("m1"))
	f.tell(chat, "p", pulse.NoticeProgress, "edit", live)
	f.tell(other, "a", pulse.NoticeFinal, "elsewhere")
	mustBe(f.t, f.HoldChat(f.ctx, chat, true, f.clock.Now().Add(time.Hour), "429"), nil, "hold edits")
	f.settle(f.only("elsewhere"), pulse.NoticeSent)
	f.tell(chat, "b", pulse.NoticeFinal, "final")
	f.settle(f.only("final"), pulse.NoticeSent)
	mustBe(f.t, f.HoldChat(f.ctx, chat, false, f.clock.Now().Add(2*time.Hour), "429"), nil, "hold all")
	mustBe(f.t, f.HoldChat(f.ctx, chat, false, f.clock.Now().Add(time.Minute), "429"), nil, "a shorter one does not end it")
	f.tell(chat, "c", pulse.NoticeFinal, "final 2")
	f.clock.Advance(time.Hour)
	equal(f.t, len(f.claimNotices(10)), 0, "due while the chat is held")
	released, err := f.ReleaseChat(f.ctx, chat)
	mustBe(f.t, err, nil, "release")
	equal(f.t, released, false, "what the platform asked for ends by itself")
	f.clock.Advance(time.Hour)
	f.settle(f.only("final 2"), pulse.NoticeSent)
	f.settle(f.only("edit"), pulse.NoticeSent, sentAs("m1"))

	mustBe(f.t, f.HoldChat(f.ctx, chat, false, time.Time{}, "bot was blocked"), nil, "until somebody writes")
	mustBe(f.t, f.HoldChat(f.ctx, chat, false, f.clock.Now().Add(time.Minute), "429"), nil, "which a time does not replace")
	f.tell(pulse.Address{Platform: "telegram", Chat: "42", Thread: "7"}, "d", pulse.NoticeFinal, "in its topic")
	f.clock.Advance(24 * time.Hour)
	equal(f.t, len(f.claimNotices(10)), 0, "due while nobody is there")
	held, err := f.HeldChats(f.ctx)
	mustBe(f.t, err, nil, "held")
	equal(f.t, len(held), 1, "held chats")
	equal(f.t, held[chat], "bot was blocked", "why")
	released, err = f.ReleaseChat(f.ctx, chat)
	mustBe(f.t, err, nil, "release")
	equal(f.t, released, true, "released")
	released, err = f.ReleaseChat(f.ctx, chat)
	mustBe(f.t, err, nil, "release again")
	equal(f.t, released, false, "released twice")
	f.only("in its topic")
}

func heldTooLong(f *fixture) {
	mustBe(f.t, f.HoldChat(f.ctx, chat, false, time.Time{}, "bot was blocked"), nil, "hold")
	f.tell(chat, "old", pulse.NoticeFinal, "old")
	f.tell(chat, "reply", pulse.NoticeReply, "reply")
	f.tell(chat, "p", pulse.NoticeProgress, "progress", live)
	f.tell(pulse.Address{Platform: pulse.PlatformTelegram, Chat: "43"}, "x", pulse.NoticeFinal, "elsewhere")
	f.clock.Advance(time.Hour)
	f.tell(chat, "new", pulse.NoticeFinal, "new")
	n, err := f.ExpireHeld(f.ctx, []pulse.NoticeKind{pulse.NoticeFinal, pulse.NoticeProgress}, f.clock.Now())
	mustBe(f.t, err, nil, "expire")
	equal(f.t, n, 2, "expired")
	_, err = f.ReleaseChat(f.ctx, chat)
	mustBe(f.t, err, nil, "release")
	var words []string
	for {
		got := f.claimNotices(10)
		if len(got) == 0 {
			break
		}
		for _, n := range got {
			words = append(words, n.Message.Plain())
			f.settle(n, pulse.NoticeSent)
		}
	}
	slices.Sort(words)
	equal(f.t, strings.Join(words, " "), "elsewhere new reply", "what is left")
	counts, err := f.Counts(f.ctx)
	mustBe(f.t, err, nil, "counts")
	equal(f.t, counts["notices_dead"], 1, "dead")
	equal(f.t, counts["notices_dropped"], 1, "dropped")
}

func watermark(f *fixture) {
	s := f.addSession()
	news, err := f.SessionsWithNews(f.ctx, 10)
	mustBe(f.t, err, nil, "news")
	equal(f.t, len(news), 0, "news of a quiet session")
	f.apply(pulse.Guard{}, pulse.Change{Events: []pulse.Event{{SessionID: s.ID, Type: pulse.EventSessionStarted}, {SessionID: s.ID, Type: pulse.EventSessionChanged}}})
	news, err = f.SessionsWithNews(f.ctx, 10)
	mustBe(f.t, err, nil, "news")
	equal(f.t, len(news), 1, "news")
	equal(f.t, news[0].Seen, 0, "seen")
	equal(f.t, news[0].Session.EventSeq, 2, "events")
	notice := []pulse.Notice{{Address: chat, Slot: "n", Kind: pulse.NoticeProgress, Message: pulse.Text("working")}}
	mustBe(f.t, f.Advance(f.ctx, s.ID, 0, 2, notice), nil, "advance")
	again := []pulse.Notice{{Address: chat, Slot: "again", Kind: pulse.NoticeProgress, Message: pulse.Text("twice")}}
	mustBe(f.t, f.Advance(f.ctx, s.ID, 0, 2, again), pulse.ErrStale, "advance again")
	mustCode(f.t, f.Advance(f.ctx, pulse.SessionID(f.id()), 0, 2, again), pulse.CodeNotFound, "advance of nothing")
	f.only("working")
	equal(f.t, f.session(s.ID).Version, s.Version, "version: telling is no decision on the session")
	news, err = f.SessionsWithNews(f.ctx, 10)
	mustBe(f.t, err, nil, "news")
	equal(f.t, len(news), 0, "news when all is seen")
}

// gapless has decisions and a daemon write events of one session at once.
func gapless(f *fixture) {
	s, _, fence := f.started()
	const writers, writes = 6, 10
	errs := together(writers, func(i int) error {
		for j := range writes {
			e := pulse.Event{SessionID: s.ID, Type: pulse.EventTurnStarted, Data: map[string]any{"by": float64(i), "n": float64(j)}}
			var err error
			if i%2 == 0 {
				err = f.Append(f.ctx, fence, pulse.StreamBatch{Events: []pulse.Event{e, e}, Sign: f.clock.Now()})
			} else {
				err = f.Apply(f.ctx, pulse.Guard{}, pulse.Change{Events: []pulse.Event{e, e}})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	noErrors(f.t, errs)
	var seq int64
	last := map[float64]float64{}
	for {
		page, err := f.Events(f.ctx, s.ID, seq, 7)
		mustBe(f.t, err, nil, "events")
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			equal(f.t, e.Seq, seq+1, "number")
			seq = e.Seq
			if by, ok := e.Data["by"].(float64); ok {
				n := e.Data["n"].(float64)
				equal(f.t, n >= last[by], true, "a writer's own order")
				last[by] = n
			}
		}
	}
	equal(f.t, seq, int64(1+2*writers*writes), "events")
	equal(f.t, f.session(s.ID).EventSeq, seq, "event_seq")
}

func deltas(f *fixture) {
	s, _, fence := f.started()
	turn := pulse.Turn{ID: pulse.TurnID(f.id()), Role: pulse.TurnAssistant, Status: pulse.TurnStreaming, CreatedAt: f.clock.Now()}
	batch := pulse.StreamBatch{Turns: []pulse.Turn{turn}}
	for n := range 5 {
		batch.Deltas = append(batch.Deltas, pulse.StreamDelta{N: int64(n + 1), TurnID: turn.ID, Type: pulse.EventMessageDelta, Text: label(n), At: f.clock.Now()})
	}
	mustBe(f.t, f.Append(f.ctx, fence, batch), nil, "append")
	mustBe(f.t, f.Append(f.ctx, fence, batch), nil, "append the same again")
	var pos pulse.DeltaPosition
	var words string
	for {
		page, err := f.Deltas(f.ctx, s.ID, pos, 2)
		mustBe(f.t, err, nil, "deltas")
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			words += d.Text + " "
			pos = pulse.DeltaPosition{TaskID: d.TaskID, Attempt: d.Attempt, N: d.N}
			equal(f.t, d.SessionID, s.ID, "session")
		}
	}
	equal(f.t, words, "n0 n1 n2 n3 n4 ", "deltas")
	f.clock.Advance(10 * time.Second)
	n, err := f.PurgeDeltas(f.ctx, f.clock.Now())
	mustBe(f.t, err, nil, "purge")
	equal(f.t, n, 0, "purged while the turn streams")
	turn.Status = pulse.TurnCompleted
	mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{turn}}), nil, "end of turn")
	n, err = f.PurgeDeltas(f.ctx, f.clock.Now().Add(-time.Minute))
	mustBe(f.t, err, nil, "purge")
	equal(f.t, n, 0, "purged too early")
	n, err = f.PurgeDeltas(f.ctx, f.clock.Now())
	mustBe(f.t, err, nil, "purge")
	equal(f.t, n, 5, "purged")
}

func moving(f *fixture) {
	pending := f.addSession()
	done := f.newSession()
	done.Status = pulse.SessionComplete
	f.apply(pulse.Guard{}, pulse.Change{NewSession: &done, Events: []pulse.Event{{SessionID: done.ID, Type: pulse.EventSessionCompleted}}})
	got, err := f.Moving(f.ctx)
	mustBe(f.t, err, nil, "moving")
	equal(f.t, len(got), 2, "moving")
	equal(f.t, got[done.ID], 1, "event_seq")
	f.clock.Advance(2 * time.Minute)
	got, err = f.Moving(f.ctx)
	mustBe(f.t, err, nil, "moving")
	_, ok := got[pending.ID]
	equal(f.t, len(got) == 1 && ok, true, "only the pending one")
}

func woken(f *fixture) {
	chans := map[pulse.Topic]<-chan struct{}{}
	for _, topic := range pulse.Topics() {
		ch, stop := f.Wakes(topic)
		defer stop()
		chans[topic] = ch
	}
	s, _, _ := f.dispatch(f.addSession())
	f.tell(chat, "x", pulse.NoticeInfo, "x")
	_, err := f.Receive(f.ctx, "bot", []pulse.Inbound{{UpdateID: "1", Payload: []byte("{}")}}, "")
	mustBe(f.t, err, nil, "receive")
	for topic, ch := range chans {
		await(f.t, ch, string(topic))
		equal(f.t, cap(ch), 1, "hints held")
	}
	ch, stop := f.Wakes(pulse.TopicEvents)
	stop()
	f.apply(pulse.Guard{}, pulse.Change{Events: []pulse.Event{{SessionID: s.ID, Type: pulse.EventSessionChanged}}})
	await(f.t, chans[pulse.TopicEvents], "the one still listening")
	equal(f.t, len(ch), 0, "hints after stop")
}
