package notify

import (
	"context"

	"pulseloop/pulse"
)

// News is where the progress writer finds sessions with events it has not
// shown yet. Its watermark is stored beside the session's event_seq.
type News interface {
	// SessionsWithNews lists sessions whose event_seq is past the notify
	// watermark, with that watermark; at most limit.
	SessionsWithNews(ctx context.Context, limit int) ([]Unread, error)
	Events(ctx context.Context, id pulse.SessionID, after int64, limit int) ([]pulse.Event, error)
	// Advance writes the notices and moves the watermark from one position
	// to another in one transaction; pulse.ErrStale if it was moved meanwhile.
	Advance(ctx context.Context, id pulse.SessionID, from, to int64, notices []pulse.Notice) error
}

// Unread is a session with events past the watermark.
type Unread = pulse.Unread
