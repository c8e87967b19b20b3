package notify

import (
	"context"
	"time"

	"pulseloop/pulse"
)

// Outbox is where messages wait to be sent.
type Outbox interface {
	// ClaimNotices takes up to limit notices that are due, most urgent
	// first and oldest first within that, at most one per address (chat),
	// passing over the addresses in skip and those on hold, and holds them
	// for lease under the token it answers. Their status is then sending.
	ClaimNotices(ctx context.Context, platforms []pulse.Platform, skip []pulse.Address, limit int, lease time.Duration) ([]pulse.Notice, pulse.ClaimToken, error)
	// SettleNotice stores what became of sending revision rev: sent (with
	// the external id), queued again at NextAt, dropped or dead; and parts,
	// the ids of the messages it became so far if they are several. If the
	// notice has a later revision by now, its text stays queued.
	// pulse.ErrFenced when the claim is not held any more.
	SettleNotice(ctx context.Context, token pulse.ClaimToken, n pulse.Notice, rev int, parts []string) error
	// NoticeParts answers the ids of the messages a notice became so far.
	NoticeParts(ctx context.Context, id pulse.NoticeID) ([]string, error)
	// NextNoticeAt answers when the next queued notice comes due, zero if none.
	NextNoticeAt(ctx context.Context) (time.Time, error)
	// HoldChat keeps everything for a chat back (with edits: only edits)
	// until a time, or, when that is zero, until somebody writes there.
	HoldChat(ctx context.Context, a pulse.Address, edits bool, until time.Time, reason string) error
	// ExpireHeld ends the notices of these kinds from before a time in chats
	// that are held until somebody writes, and answers how many there were.
	ExpireHeld(ctx context.Context, kinds []pulse.NoticeKind, before time.Time) (int, error)
	// SessionStatus answers how a session stands; pulse.ErrNone.
	SessionStatus(ctx context.Context, id pulse.SessionID) (pulse.SessionStatus, error)
}

// Sender delivers to one platform. It may be called from several goroutines
// at once, for different addresses.
type Sender interface {
	Platform() pulse.Platform
	// Send delivers the notice: as an edit of n.ExternalID if that is set
	// and n.Editable, else as a new message, or as several, of which sent
	// lists those that are there already. It answers the external id of the
	// message (its first part) and how it went. After each part of several
	// it returns, so that no crash makes it send one twice that was noted. A
	// Sender never retries by itself and never sleeps for a rate limit.
	Send(ctx context.Context, n pulse.Notice, sent []string) Delivery
	// Ready says when the platform's limits next allow a message of this
	// kind to the address; a time that is not after now means at once.
	Ready(a pulse.Address, edit bool) time.Time
}

// Outcome classes how a delivery went.
type Outcome string

const (
	Sent      Outcome = "sent"      // also: an edit that changed nothing
	Pending   Outcome = "pending"   // nothing is wrong, but there is more to send, or our own limits keep it back: go on after RetryAfter
	RetryAt   Outcome = "retry_at"  // the platform named a time to wait
	Refused   Outcome = "refused"   // the chat takes nothing from us until its person comes back: blocked, thrown out
	Transient Outcome = "transient" // surely not delivered; try again
	Ambiguous Outcome = "ambiguous" // may have been delivered: connection lost after the request was written
	Permanent Outcome = "permanent" // will never be delivered: no such chat, refused content
	LostEdit  Outcome = "lost_edit" // the message to edit is gone: send it anew
)

// Delivery is the result of one Send.
type Delivery struct {
	Outcome    Outcome
	ExternalID string
	Parts      []string      // the ids of its messages so far, if it takes several
	RetryAfter time.Duration // for RetryAt and Pending
	Moved      pulse.Address // the chat has a new address (group became supergroup), or the topic is gone and its parent was used
	Err        error         // for the logs; never contains a token
}
