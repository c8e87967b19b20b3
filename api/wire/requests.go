package wire

import (
	"time"

	"pulseloop/pulse"
)

// Start is the body of POST /api/pulse/start.
type Start struct {
	ProjectName     string                `json:"projectName,omitempty"`
	ProjectPath     string                `json:"projectPath,omitempty"`
	Goal            string                `json:"goal"`
	MaxIterations   *int                  `json:"maxIterations,omitempty"`
	ChatID          ChatID                `json:"chatId,omitempty"`
	PhoneNumber     string                `json:"phoneNumber,omitempty"`
	DiscordThreadID string                `json:"discordThreadId,omitempty"`
	BranchName      string                `json:"branchName,omitempty"`
	AnchorTurnID    pulse.TurnID          `json:"anchorTurnId,omitempty"`
	ContextStrategy pulse.ContextStrategy `json:"contextStrategy,omitempty"`
	Agent           string                `json:"agent,omitempty"`
	CreatedBy       pulse.Origin          `json:"createdBy,omitempty"`
}

// ChatID is a Telegram chat id: a JSON number, as Telegram writes it, or a
// string of the same digits.
type ChatID string

// UnmarshalJSON accepts both forms; what the digits mean is checked later.
func (c *ChatID) UnmarshalJSON(b []byte) error {
	if len(b) >= 2 && b[0] == '"' {
		b = b[1 : len(b)-1]
	}
	*c = ChatID(b)
	if *c == "null" {
		*c = ""
	}
	return nil
}

// Resume is the optional body of POST /api/pulse/{id}/resume.
type Resume struct {
	Answer string `json:"answer,omitempty"`
}

// Answer is the body of POST /api/pulse/{id}/answer.
type Answer struct {
	GateID pulse.GateID `json:"gateId,omitempty"`
	Choice string       `json:"choice,omitempty"`
	Text   string       `json:"text,omitempty"`
}

// Message is the body of POST /api/sessions/{id}/message.
type Message struct {
	Text string `json:"text"`
}

// NewProject is the body of POST /api/projects.
type NewProject struct {
	Name string `json:"name,omitempty"`
	Path string `json:"path"`
}

// Pair is the optional body of POST /api/pair.
type Pair struct {
	Role pulse.OperatorRole `json:"role,omitempty"`
}

// SessionReply answers whatever changes a session.
type SessionReply struct {
	Session Session `json:"session"`
}

// MessageReply says what became of a message.
type MessageReply struct {
	Session Session         `json:"session"`
	As      pulse.InputKind `json:"as"`
}

// SessionDetail answers GET /api/pulse/{id}.
type SessionDetail struct {
	Session    Session     `json:"session"`
	Iterations []Iteration `json:"iterations"`
	Gate       *Gate       `json:"gate"` // the open one, or null
}

// SessionList answers GET /api/pulse.
type SessionList struct {
	Sessions []Session `json:"sessions"`
}

// EventList answers GET /api/pulse/{id}/events. Next is the cursor to go on
// from; More tells that there is more already.
type EventList struct {
	Events []Frame `json:"events"`
	Next   int64   `json:"next"`
	More   bool    `json:"more"`
}

// TurnList answers GET /api/pulse/{id}/turns.
type TurnList struct {
	Turns []Turn `json:"turns"`
}

// ProjectList answers GET /api/projects.
type ProjectList struct {
	Projects []Project `json:"projects"`
}

// ProjectReply answers POST /api/projects.
type ProjectReply struct {
	Project Project `json:"project"`
}

// PairReply is a one-time code: send it to the bot as /pair CODE.
type PairReply struct {
	Code      string             `json:"code"`
	Role      pulse.OperatorRole `json:"role"`
	ExpiresAt time.Time          `json:"expires_at"`
}

// Status answers /healthz and /readyz.
type Status struct {
	Status string `json:"status"`
}

// Error is the body of every refusal.
type Error struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail is what people see of a failure.
type ErrorDetail struct {
	Code    pulse.Code `json:"code"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
}
