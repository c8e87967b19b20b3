package api

import (
	"context"

	"pulseloop/pulse"
)

// Reader is what the API shows of sessions.
type Reader interface {
	Sessions(ctx context.Context, f pulse.SessionFilter) ([]pulse.Session, error)
	FindSession(ctx context.Context, idOrSuffix string) (pulse.Session, error)
	Iterations(ctx context.Context, id pulse.SessionID) ([]pulse.Iteration, error)
	OpenGate(ctx context.Context, id pulse.SessionID) (pulse.Gate, error)
	Turns(ctx context.Context, id pulse.SessionID) ([]pulse.TurnDetail, error)
	Projects(ctx context.Context) ([]pulse.Project, error)
}

// Feed is what the WebSocket reads from: committed events by session and
// sequence number, and the deltas of running turns.
type Feed interface {
	// Events reads a session's events after seq, in order, at most limit.
	Events(ctx context.Context, id pulse.SessionID, after int64, limit int) ([]pulse.Event, error)
	// Deltas reads a session's stream deltas after the position, in order.
	Deltas(ctx context.Context, id pulse.SessionID, after pulse.DeltaPosition, limit int) ([]pulse.StreamDelta, error)
	// Moving lists sessions with their event_seq that are pending or
	// running, or changed within the last minute.
	Moving(ctx context.Context) (map[pulse.SessionID]int64, error)
	Wakes(topic pulse.Topic) (wakes <-chan struct{}, stop func())
}
