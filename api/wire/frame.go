package wire

import (
	"time"

	"pulseloop/pulse"
)

// FrameSubscribed acknowledges a subscription: its data holds the cursors
// (session to seq) from which the connection goes on.
const FrameSubscribed = "subscribed"

// Frame is one message of the WebSocket, and one entry of a session's event
// list.
//
// Seq is the event's number within its session. A stream delta is not an
// event and has no number of its own: it carries that of the event before
// it, so that the Seq of any frame may be kept as the session's cursor.
type Frame struct {
	Type       string          `json:"type"`
	Seq        int64           `json:"seq"`
	At         time.Time       `json:"at"`
	WorkflowID string          `json:"workflowId,omitempty"`
	SessionID  pulse.SessionID `json:"sessionId,omitempty"`
	TurnID     pulse.TurnID    `json:"turnId,omitempty"`
	Data       map[string]any  `json:"data"`
}

// Delta reports whether the frame is a piece of text on its way, which a
// slow reader may miss.
func (f Frame) Delta() bool {
	return f.Type == string(pulse.EventMessageDelta) || f.Type == string(pulse.EventThoughtDelta)
}

// FromEvent converts an event.
func FromEvent(e pulse.Event) Frame {
	data := e.Data
	if data == nil {
		data = map[string]any{}
	}
	return Frame{Type: string(e.Type), Seq: e.Seq, At: e.At.UTC(), SessionID: e.SessionID, TurnID: e.TurnID, Data: data}
}

// FromEvents converts a list.
func FromEvents(in []pulse.Event) []Frame {
	out := make([]Frame, 0, len(in))
	for _, e := range in {
		out = append(out, FromEvent(e))
	}
	return out
}

// FromDelta converts a stream delta; seq is that of the event before it.
func FromDelta(d pulse.StreamDelta, seq int64) Frame {
	return Frame{
		Type: string(d.Type), Seq: seq, At: d.At.UTC(), SessionID: d.SessionID, TurnID: d.TurnID,
		Data: map[string]any{"text": d.Text, "taskId": string(d.TaskID), "attempt": d.Attempt, "n": d.N},
	}
}

// Subscribe is the one message a WebSocket client sends.
//
// Sessions maps a session to the seq after which to go on: what was missed
// is sent first. All adds every other session. With All and no Sessions,
// the connection starts with what happens from now on; with both, a moving
// session that Sessions does not name is sent from its beginning, because
// it is one the client has not heard of.
type Subscribe struct {
	Type     string                    `json:"type"` // "subscribe"
	All      bool                      `json:"all,omitempty"`
	Sessions map[pulse.SessionID]int64 `json:"sessions,omitzero"`
}
