package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pulseloop/pulse"
)

// minAttempts is how often a message is tried before its age counts.
const minAttempts = 5

// maxHold bounds how long a message that failed keeps back the ones after it.
const maxHold = 30 * time.Second

// maxError bounds the error text that is stored with a message.
const maxError = 500

// twice marks, in the stored error, a message that was already sent again
// after a delivery nobody knows the outcome of.
const twice = "ambiguous: "

// deliver sends one claimed message and stores what became of it. It answers
// whether the message reached the platform.
func (d *Dispatcher) deliver(ctx context.Context, n pulse.Notice) (bool, error) {
	sender, rev := d.senders[n.Address.Platform], n.Revision
	if sender == nil {
		return false, d.settle(ctx, d.orphaned(n), rev)
	}
	if ready := sender.Ready(n.Address, isEdit(n)); ready.After(d.cfg.Clock()) {
		if !isEdit(n) && n.Kind != pulse.NoticeProgress {
			d.park(n.Address, ready) // nothing more urgent can wait behind it: claims take the urgent first
		}
		return false, d.settle(ctx, d.later(n, ready), rev)
	}
	out := n
	out.Message = d.presentable(n.Message)
	got := d.send(ctx, sender, out)
	if got.Outcome == LostEdit && n.ExternalID != "" {
		n.ExternalID, out.ExternalID = "", ""
		got = d.send(ctx, sender, out)
	}
	if !got.Moved.Zero() && got.Outcome != Sent && got.Moved != n.Address {
		n.Address, out.Address = got.Moved, got.Moved
		got = d.send(ctx, sender, out)
	}
	if got.Outcome == Sent && !got.Moved.Zero() {
		n.Address = got.Moved
	}
	after := d.outcome(n, got)
	if after.Status == pulse.NoticeDead {
		d.cfg.Log.Warn("message cannot be delivered", "notice", string(n.ID), "kind", string(n.Kind), "platform", string(n.Address.Platform),
			"session", string(n.SessionID), "attempts", after.Attempts, "err", after.LastError)
	}
	return got.Outcome == Sent, d.settle(ctx, after, rev)
}

func isEdit(n pulse.Notice) bool { return n.Editable && n.ExternalID != "" }

// send calls the sender, bounded in time. When the process is told to end, a
// delivery under way gets a grace, so that its outcome is not left open.
func (d *Dispatcher) send(ctx context.Context, s Sender, n pulse.Notice) (got Delivery) {
	defer func() {
		if v := recover(); v != nil {
			got = Delivery{Outcome: Ambiguous, Err: fmt.Errorf("sender panicked: %v", v)}
		}
	}()
	sendCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.SendTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		grace := time.NewTimer(d.cfg.Grace)
		defer grace.Stop()
		select {
		case <-grace.C:
			cancel()
		case <-sendCtx.Done():
		}
	})
	defer stop()
	return s.Send(sendCtx, n)
}

// presentable is the message as it may leave the house: cleaned, then
// redacted, so that an escape sequence inside a secret cannot hide it.
func (d *Dispatcher) presentable(m pulse.Message) pulse.Message {
	out := pulse.Message{Spans: make([]pulse.Span, len(m.Spans))}
	for i, s := range m.Spans {
		s.Text, s.Lang = d.cfg.Redact(Clean(s.Text)), oneLine(s.Lang, 40)
		out.Spans[i] = s
	}
	for _, row := range m.Buttons {
		var r []pulse.Button
		for _, b := range row {
			b.Label = d.cfg.Redact(oneLine(b.Label, 60))
			r = append(r, b)
		}
		out.Buttons = append(out.Buttons, r)
	}
	return out
}

// outcome decides what becomes of a message after a delivery.
func (d *Dispatcher) outcome(n pulse.Notice, got Delivery) pulse.Notice {
	now := d.cfg.Clock().UTC()
	again := strings.HasPrefix(n.LastError, twice)
	n.LastError = ""
	if got.Err != nil {
		n.LastError = d.cfg.Redact(oneLine(got.Err.Error(), maxError))
	}
	switch got.Outcome {
	case Sent:
		n.Status, n.SentAt, n.LastError = pulse.NoticeSent, now, ""
		if got.ExternalID != "" {
			n.ExternalID = got.ExternalID
		}
		return n
	case RetryAt: // the platform's word; not an attempt
		until := now.Add(max(got.RetryAfter, d.cfg.BackoffMin))
		if !isEdit(n) { // edits have limits of their own, which must not hold back a final
			d.park(n.Address, until)
		}
		if again {
			n.LastError = twice + n.LastError
		}
		return d.later(n, until)
	case Permanent:
		n.Attempts++
		n.Status = pulse.NoticeDead
		return n
	}
	n.Attempts++
	if got.Outcome == Ambiguous && !isEdit(n) { // an edit says the same however often it is made
		switch {
		case n.Kind == pulse.NoticeProgress:
			n.Status = pulse.NoticeDropped
			return n
		case n.Kind != pulse.NoticeFinal && n.Kind != pulse.NoticeGate && again:
			n.Status = pulse.NoticeDropped
			n.LastError = "sent twice, each time without an answer: " + n.LastError
			return n
		}
		again = true
	}
	if again {
		n.LastError = twice + n.LastError
	}
	if n.Attempts >= minAttempts && now.Sub(n.CreatedAt) > d.patience(n.Kind) {
		n.Status = pulse.NoticeDead
		if n.Kind == pulse.NoticeProgress {
			n.Status = pulse.NoticeDropped
		}
		return n
	}
	at := now.Add(d.backoff(n.Attempts))
	if n.Kind != pulse.NoticeProgress { // later messages wait their turn, but one bad message cannot hold up a chat for long
		d.park(n.Address, earlier(at, now.Add(maxHold)))
	}
	return d.later(n, at)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (d *Dispatcher) patience(k pulse.NoticeKind) time.Duration {
	switch k {
	case pulse.NoticeFinal, pulse.NoticeGate:
		return d.cfg.GiveUp.Final
	case pulse.NoticeProgress:
		return d.cfg.GiveUp.Live
	}
	return d.cfg.GiveUp.Other
}

func (d *Dispatcher) later(n pulse.Notice, at time.Time) pulse.Notice {
	n.Status, n.NextAt = pulse.NoticeQueued, at.UTC()
	return n
}

// backoff doubles with every attempt; the jitter takes up to half of it
// away, so that messages that failed together do not come back together.
func (d *Dispatcher) backoff(attempt int) time.Duration {
	wait := d.cfg.BackoffMax
	if attempt < 20 {
		wait = min(d.cfg.BackoffMin<<(attempt-1), d.cfg.BackoffMax)
	}
	return wait - time.Duration(d.cfg.Jitter()*float64(wait)/2)
}

// settle stores an outcome, insistently: a message that was sent and is not
// stored as sent goes out a second time when its lease ends.
func (d *Dispatcher) settle(ctx context.Context, n pulse.Notice, rev int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.Grace)
	defer cancel()
	wait := 50 * time.Millisecond
	for {
		err := d.outbox.SettleNotice(ctx, n, rev)
		if err == nil || errors.Is(err, pulse.ErrFenced) || errors.Is(err, pulse.ErrStale) || errors.Is(err, pulse.ErrNone) {
			return nil // or somebody else has it by now
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			wait *= 2
		case <-ctx.Done():
			timer.Stop()
			d.cfg.Log.Error("store the outcome of a message", "notice", string(n.ID), "status", string(n.Status), "err", err)
			return fmt.Errorf("settle notice %s: %w", n.ID, err)
		}
	}
}
