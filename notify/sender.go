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
	// passing over the addresses in skip, and holds them for lease. Their
	// status is then sending.
	ClaimNotices(ctx context.Context, platforms []pulse.Platform, skip []pulse.Address, limit int, lease time.Duration) ([]pulse.Notice, error)
	// SettleNotice stores what became of sending revision rev: sent (with
	// the external id), queued again at NextAt, dropped or dead. If the
	// notice has a later revision by now, its text stays queued.
	SettleNotice(ctx context.Context, n pulse.Notice, rev int) error
	// NextNoticeAt answers when the next queued notice comes due, zero if none.
	NextNoticeAt(ctx context.Context) (time.Time, error)
}

// Sender delivers to one platform. It may be called from several goroutines
// at once, for different addresses.
type Sender interface {
	Platform() pulse.Platform
	// Send delivers the notice: as an edit of n.ExternalID if that is set
	// and n.Editable, else as a new message. It answers the external id of
	// the message (its first chunk) and how it went. A Sender never retries
	// by itself and never sleeps for a rate limit.
	Send(ctx context.Context, n pulse.Notice) Delivery
	// Ready says when the platform's limits next allow a message of this
	// kind to the address; a time that is not after now means at once.
	Ready(a pulse.Address, edit bool) time.Time
}

// Outcome classes how a delivery went.
type Outcome string

const (
	Sent      Outcome = "sent"      // also: an edit that changed nothing
	RetryAt   Outcome = "retry_at"  // the platform named a time to wait
	Transient Outcome = "transient" // surely not delivered; try again
	Ambiguous Outcome = "ambiguous" // may have been delivered: connection lost after the request was written
	Permanent Outcome = "permanent" // will never be delivered: blocked, no such chat, refused content
	LostEdit  Outcome = "lost_edit" // the message to edit is gone: send it anew
)

// Delivery is the result of one Send.
type Delivery struct {
	Outcome    Outcome
	ExternalID string
	RetryAfter time.Duration // for RetryAt
	Moved      pulse.Address // the chat has a new address (group became supergroup), or the topic is gone and its parent was used
	Err        error         // for the logs; never contains a token
}
