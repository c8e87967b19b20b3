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

// claimed is a notice in our hand.
type claimed struct {
	pulse.Notice
	token pulse.ClaimToken
	rev   int       // that was claimed; the notice may have a later one by now
	until time.Time // end of the claim
	parts []string  // messages it became, if it takes several
}

// as is the claim with what became of its notice.
func (c claimed) as(n pulse.Notice) claimed {
	c.Notice = n
	return c
}

// deliver sends one claimed message and stores what became of it. It answers
// whether the message reached the platform.
func (d *Dispatcher) deliver(ctx context.Context, c claimed) (bool, error) {
	n := c.Notice
	sender := d.senders[n.Address.Platform]
	if sender == nil {
		return false, d.settle(ctx, c.as(d.orphaned(n)))
	}
	if after, over, err := d.outlived(ctx, n); err != nil || over {
		return false, errors.Join(err, d.settle(ctx, c.as(after)))
	}
	if ready := sender.Ready(n.Address, isEdit(n)); ready.After(d.cfg.Clock()) {
		if !isEdit(n) && n.Kind != pulse.NoticeProgress {
			d.park(n.Address, ready) // nothing more urgent can wait behind it: claims take the urgent first
		}
		return false, d.settle(ctx, c.as(d.later(n, ready)))
	}
	if n.ExternalID != "" && !n.Editable { // sent in part
		parts, err := d.outbox.NoticeParts(ctx, n.ID)
		if err != nil {
			return false, errors.Join(fmt.Errorf("read parts of notice %s: %w", n.ID, err), d.settle(ctx, c.as(d.later(n, d.cfg.Clock().Add(d.cfg.BackoffMin)))))
		}
		c.parts = parts
	}
	got := d.attempt(ctx, sender, &c)
	if err := d.hold(ctx, c.Notice, got); err != nil {
		d.cfg.Log.Error("keep a chat back", "platform", string(n.Address.Platform), "err", err)
	}
	c.Notice = d.outcome(c.Notice, got)
	if c.Status == pulse.NoticeDead {
		d.cfg.Log.Warn("message cannot be delivered", "notice", string(n.ID), "kind", string(n.Kind), "platform", string(n.Address.Platform),
			"session", string(n.SessionID), "attempts", c.Attempts, "err", c.LastError)
	}
	return got.Outcome == Sent, d.settle(ctx, c)
}

// attempt calls the sender, again where a message or a chat has moved.
func (d *Dispatcher) attempt(ctx context.Context, sender Sender, c *claimed) Delivery {
	message := d.presentable(c.Message)
	send := func() Delivery {
		out := c.Notice
		out.Message = message
		got := d.send(ctx, sender, out, c.parts)
		if len(got.Parts) > len(c.parts) {
			c.parts = got.Parts
		}
		if got.ExternalID != "" && !c.Editable {
			c.ExternalID = got.ExternalID
		}
		return got
	}
	got := send()
	if got.Outcome == LostEdit && c.ExternalID != "" {
		c.ExternalID = ""
		got = send()
	}
	if !got.Moved.Zero() && got.Outcome != Sent && got.Outcome != Pending && got.Moved != c.Address {
		c.Address = got.Moved
		got = send()
	}
	if (got.Outcome == Sent || got.Outcome == Pending) && !got.Moved.Zero() {
		c.Address = got.Moved
	}
	return got
}

// outlived decides about live messages whose time is over. What was never
// shown need not be shown as over, and nothing may look like work in progress
// after the outcome was told: the closing form, which follows, does for it.
func (d *Dispatcher) outlived(ctx context.Context, n pulse.Notice) (pulse.Notice, bool, error) {
	if n.Kind != pulse.NoticeProgress || !n.Editable {
		return n, false, nil
	}
	over := Closed(n)
	if !over && n.SessionID != "" {
		status, err := d.outbox.SessionStatus(ctx, n.SessionID)
		if err != nil && !errors.Is(err, pulse.ErrNone) {
			return d.later(n, d.cfg.Clock().Add(d.cfg.BackoffMin)), true, fmt.Errorf("read the session of notice %s: %w", n.ID, err)
		}
		over = err == nil && status != pulse.SessionRunning
	}
	switch {
	case !over, Closed(n) && n.ExternalID != "":
		return n, false, nil
	case n.ExternalID == "":
		n.Status, n.LastError = pulse.NoticeDropped, "it was over before it was shown"
	default:
		n.Status, n.SentAt = pulse.NoticeSent, d.cfg.Clock().UTC() // what is there stays until its closing form comes
	}
	return n, true, nil
}

// hold makes durable for how long a chat is to be left alone, so that a
// restart does not forget it: what the platform asked for, or, when it takes
// nothing from us, until somebody writes there.
func (d *Dispatcher) hold(ctx context.Context, n pulse.Notice, got Delivery) error {
	var until time.Time
	switch got.Outcome {
	case RetryAt:
		until = d.cfg.Clock().Add(got.RetryAfter).UTC()
	case Refused:
		d.cfg.Log.Warn("a chat takes no messages; its messages wait until somebody writes there", "platform", string(n.Address.Platform),
			"chat", n.Address.Chat, "err", got.Err)
	default:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.Grace)
	defer cancel()
	reason := ""
	if got.Err != nil {
		reason = d.cfg.Redact(oneLine(got.Err.Error(), maxError))
	}
	return d.outbox.HoldChat(ctx, chat(n.Address), isEdit(n) && got.Outcome == RetryAt, until, reason)
}

func isEdit(n pulse.Notice) bool { return n.Editable && n.ExternalID != "" }

// send calls the sender, bounded in time. When the process is told to end, a
// delivery under way gets a grace, so that its outcome is not left open.
func (d *Dispatcher) send(ctx context.Context, s Sender, n pulse.Notice, sent []string) (got Delivery) {
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
	return s.Send(sendCtx, n, sent)
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
	case Pending, Refused: // not an attempt
		at := now.Add(max(got.RetryAfter, 10*time.Millisecond))
		if got.Outcome == Refused { // the hold keeps it, not this
			at = now.Add(d.cfg.BackoffMin)
		}
		if again {
			n.LastError = twice + n.LastError
		}
		if got.Outcome == Pending && !isEdit(n) && n.Kind != pulse.NoticeProgress {
			d.park(n.Address, at)
		}
		return d.later(n, at)
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
// stored as sent goes out a second time when its lease ends. So it tries until
// then, or for a grace once the process is told to end.
func (d *Dispatcher) settle(ctx context.Context, c claimed) error {
	grace := max(d.cfg.Grace, c.until.Sub(d.cfg.Clock()))
	held, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(d.cfg.Grace, cancel) })()
	wait := 50 * time.Millisecond
	for {
		err := d.outbox.SettleNotice(held, c.token, c.Notice, c.rev, c.parts)
		if err == nil || errors.Is(err, pulse.ErrFenced) || errors.Is(err, pulse.ErrStale) || errors.Is(err, pulse.ErrNone) {
			return nil // or somebody else has it by now
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			wait = min(2*wait, time.Second)
		case <-held.Done():
			timer.Stop()
			d.cfg.Log.Error("store the outcome of a message", "notice", string(c.ID), "status", string(c.Status), "err", err)
			return fmt.Errorf("settle notice %s: %w", c.ID, err)
		}
	}
}
