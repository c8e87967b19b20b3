package notify

import (
	"context"
	"slices"
	"time"

	"pulseloop/pulse"
)

const (
	orphanEvery = time.Minute      // between two looks at messages nobody here can send
	orphanRest  = 30 * time.Second // for how long a look keeps them from another process that can
	orphanBatch = 100
)

// orphans are the platforms that have no sender here.
func (d *Dispatcher) orphans() []pulse.Platform {
	all := []pulse.Platform{pulse.PlatformTelegram, pulse.PlatformDiscord, pulse.PlatformSMS, pulse.PlatformConsole}
	return slices.DeleteFunc(all, func(p pulse.Platform) bool { return d.senders[p] != nil })
}

// sweep ends messages for platforms without a sender once their patience is
// over, so that none waits for ever and a bot that is set up weeks later
// does not begin with a backlog. Younger ones stay: another process on the
// same database may send them, or the next start of this one.
func (d *Dispatcher) sweep(ctx context.Context) error {
	now := d.cfg.Clock()
	d.mu.Lock()
	due := d.swept.IsZero() || now.Sub(d.swept) >= orphanEvery || now.Before(d.swept)
	if due {
		d.swept = now
	}
	d.mu.Unlock()
	if !due {
		return nil
	}
	if err := d.expire(ctx, now); err != nil {
		return err
	}
	platforms := d.orphans()
	if len(platforms) == 0 {
		return nil
	}
	for ctx.Err() == nil {
		// A claim takes the first message of each chat alone; the rest is behind it.
		held := now.Add(d.cfg.Lease)
		notices, token, err := d.outbox.ClaimNotices(ctx, platforms, nil, orphanBatch, d.cfg.Lease)
		if err != nil || len(notices) == 0 {
			return err
		}
		for _, n := range notices {
			if err := d.settle(ctx, claimed{Notice: d.orphaned(n), token: token, rev: n.Revision, until: held}); err != nil {
				return err
			}
		}
	}
	return nil
}

// expire ends what has waited too long for somebody to write in a chat that
// takes nothing from us.
func (d *Dispatcher) expire(ctx context.Context, now time.Time) error {
	var ended int
	for _, kinds := range [][]pulse.NoticeKind{{pulse.NoticeFinal, pulse.NoticeGate}, {pulse.NoticeReply, pulse.NoticeInfo}, {pulse.NoticeProgress}} {
		n, err := d.outbox.ExpireHeld(ctx, kinds, now.Add(-d.patience(kinds[0])))
		if err != nil {
			return err
		}
		ended += n
	}
	if ended > 0 {
		d.cfg.Log.Warn("messages cannot be delivered: nobody wrote in chats that take none", "messages", ended)
	}
	return nil
}

// orphaned decides what becomes of a message nobody here can send.
func (d *Dispatcher) orphaned(n pulse.Notice) pulse.Notice {
	now := d.cfg.Clock().UTC()
	if now.Sub(n.CreatedAt) <= d.patience(n.Kind) {
		return d.later(n, now.Add(orphanRest))
	}
	n.Status, n.LastError = pulse.NoticeDead, "no sender for "+string(n.Address.Platform)
	if n.Kind == pulse.NoticeProgress {
		n.Status = pulse.NoticeDropped
		return n
	}
	d.cfg.Log.Warn("message cannot be delivered", "notice", string(n.ID), "kind", string(n.Kind), "platform", string(n.Address.Platform),
		"session", string(n.SessionID), "attempts", n.Attempts, "err", n.LastError)
	return n
}
