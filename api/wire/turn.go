package wire

import (
	"time"

	"pulseloop/pulse"
)

// Turn is a row of turns with its messages, tools and thoughts, each by seq.
type Turn struct {
	ID          pulse.TurnID      `json:"id"`
	SessionID   pulse.SessionID   `json:"session_id"`
	IterationID pulse.IterationID `json:"iteration_id"`
	ParentID    pulse.TurnID      `json:"parent_id"`
	Role        pulse.TurnRole    `json:"role"`
	Status      pulse.TurnStatus  `json:"status"`
	Depth       int               `json:"depth"`
	CreatedAt   *time.Time        `json:"created_at"`
	EndedAt     *time.Time        `json:"ended_at"`
	Messages    []TurnBlock       `json:"messages"`
	Tools       []TurnTool        `json:"tools"`
	Thoughts    []TurnBlock       `json:"thoughts"`
}

// TurnBlock is a block of text: a message or a thought.
type TurnBlock struct {
	Seq  int        `json:"seq"`
	Text string     `json:"text"`
	At   *time.Time `json:"at"`
}

// TurnTool is a tool call.
type TurnTool struct {
	Seq     int              `json:"seq"`
	CallID  string           `json:"call_id"`
	Name    string           `json:"name"`
	Summary string           `json:"summary"`
	Input   string           `json:"input"`
	Output  string           `json:"output"`
	Status  pulse.ToolStatus `json:"status"`
	At      *time.Time       `json:"at"`
	EndedAt *time.Time       `json:"ended_at"`
}

// FromTurn converts a turn with everything in it.
func FromTurn(d pulse.TurnDetail) Turn {
	t := Turn{
		ID: d.Turn.ID, SessionID: d.Turn.SessionID, IterationID: d.Turn.IterationID, ParentID: d.Turn.ParentID,
		Role: d.Turn.Role, Status: d.Turn.Status, Depth: d.Turn.Depth,
		CreatedAt: at(d.Turn.CreatedAt), EndedAt: at(d.Turn.EndedAt),
		Messages: []TurnBlock{}, Tools: []TurnTool{}, Thoughts: []TurnBlock{},
	}
	for _, m := range d.Messages {
		t.Messages = append(t.Messages, TurnBlock{Seq: m.Seq, Text: m.Text, At: at(m.At)})
	}
	for _, m := range d.Thoughts {
		t.Thoughts = append(t.Thoughts, TurnBlock{Seq: m.Seq, Text: m.Text, At: at(m.At)})
	}
	for _, k := range d.Tools {
		t.Tools = append(t.Tools, TurnTool{
			Seq: k.Seq, CallID: k.CallID, Name: k.Name, Summary: k.Summary, Input: k.Input, Output: k.Output,
			Status: k.Status, At: at(k.At), EndedAt: at(k.EndedAt),
		})
	}
	return t
}

// FromTurns converts a list.
func FromTurns(in []pulse.TurnDetail) []Turn {
	out := make([]Turn, 0, len(in))
	for _, d := range in {
		out = append(out, FromTurn(d))
	}
	return out
}
