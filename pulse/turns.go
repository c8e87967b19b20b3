package pulse

import "time"

// TurnRole says who spoke.
type TurnRole string

const (
	TurnUser      TurnRole = "user"
	TurnAssistant TurnRole = "assistant"
)

// TurnStatus is the state of a turn.
type TurnStatus string

const (
	TurnStreaming TurnStatus = "streaming"
	TurnCompleted TurnStatus = "completed"
	TurnFailed    TurnStatus = "failed"
)

// Turn is one invocation of an agent, or what a person said. Turns form a
// tree by Parent; a follow-up hangs on the last turn before it.
type Turn struct {
	ID          TurnID
	SessionID   SessionID
	ProjectID   ProjectID
	IterationID IterationID // "" for what a person said
	ParentID    TurnID
	Role        TurnRole
	Status      TurnStatus
	Depth       int
	Text        string // all messages joined; filled by reads, ignored by writes
	CreatedAt   time.Time
	EndedAt     time.Time
}

// TurnMessage is a block of text of a turn. Seq orders all blocks of a turn,
// tools and thoughts included.
type TurnMessage struct {
	TurnID TurnID
	Seq    int
	Text   string
	At     time.Time
}

// TurnThought is a block of the agent's reasoning.
type TurnThought struct {
	TurnID TurnID
	Seq    int
	Text   string
	At     time.Time
}

// ToolStatus is the state of a tool call.
type ToolStatus string

const (
	ToolRunning   ToolStatus = "running"
	ToolCompleted ToolStatus = "completed"
	ToolFailed    ToolStatus = "failed"
)

// TurnTool is a tool call of a turn. CallID is the agent CLI's own id for it
// and unique within the turn; a second write of the same CallID updates the
// first.
type TurnTool struct {
	TurnID  TurnID
	Seq     int
	CallID  string
	Name    string
	Summary string // one line for people: a path, a command
	Input   string // JSON
	Output  string
	Status  ToolStatus
	At      time.Time
	EndedAt time.Time
}

// TurnDetail is a turn with everything in it, blocks by Seq.
type TurnDetail struct {
	Turn     Turn
	Messages []TurnMessage
	Tools    []TurnTool
	Thoughts []TurnThought
}

// EventType names an event. The session:, turn: names are the document's and
// go over the WebSocket as they are.
type EventType string

const (
	EventSessionStarted   EventType = "session:started"
	EventSessionCompleted EventType = "session:completed"
	EventSessionError     EventType = "session:error"
	EventSessionChanged   EventType = "session:changed" // data: status, reason
	EventIterationStarted EventType = "iteration:started"
	EventIterationEnded   EventType = "iteration:ended"
	EventGateOpened       EventType = "gate:opened"
	EventGateResolved     EventType = "gate:resolved"
	EventTurnStarted      EventType = "turn:started"
	EventTurnCompleted    EventType = "turn:completed"
	EventToolStarted      EventType = "turn:tool_started"
	EventToolCompleted    EventType = "turn:tool_completed"
	EventTurnNote         EventType = "turn:note" // the agent's CLI retries, is limited, compacts; data: text, iterationId

	// The two below are stream frames: never rows of events, but numbered by
	// the holder of the claim.
	EventMessageDelta EventType = "turn:message_delta"
	EventThoughtDelta EventType = "turn:thought_delta"
)

// Event is a row of the append-only log. The store gives Seq, which is
// gapless within a session.
type Event struct {
	SessionID SessionID
	Seq       int64
	Type      EventType
	TurnID    TurnID
	At        time.Time
	Data      map[string]any // JSON object
}

// StreamDelta is a piece of text on its way. N counts from 1 within one
// attempt of one task.
type StreamDelta struct {
	TaskID    TaskID
	Attempt   int
	N         int64
	SessionID SessionID
	TurnID    TurnID
	Type      EventType // EventMessageDelta or EventThoughtDelta
	Text      string
	At        time.Time
}

// StreamBatch is what a daemon stores of a running agent in one write.
// Turns, Tools are written or updated by their key; the rest is appended.
type StreamBatch struct {
	Turns    []Turn
	Messages []TurnMessage
	Tools    []TurnTool
	Thoughts []TurnThought
	Events   []Event // SessionID and Seq are set by the store
	Deltas   []StreamDelta
	Sign     time.Time // last sign of life; zero: none in this batch
	Phase    Phase     // of the run, where Sign is given
}

// Empty reports whether there is nothing to write.
func (b StreamBatch) Empty() bool {
	return len(b.Turns)+len(b.Messages)+len(b.Tools)+len(b.Thoughts)+len(b.Events)+len(b.Deltas) == 0 && b.Sign.IsZero()
}

// DeltaPosition is a place in the stream of one session: deltas are ordered
// by task (ids sort by time), attempt, and number.
type DeltaPosition struct {
	TaskID  TaskID
	Attempt int
	N       int64
}
