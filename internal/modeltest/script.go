package modeltest

import (
	"encoding/json"
	"strings"
	"time"
)

// Script answers the conversations it matches. The zero matchers match every conversation, so order scripts from the
// particular to the general: the first that matches answers.
type Script struct {
	// Name shows up in violations.
	Name string
	// Prompt, if set, must occur in the last plain thing a person said (Request.Prompt).
	Prompt string
	// Match, if set, must hold too.
	Match func(Request) bool
	// Once gives the script to the first conversation it matches; later conversations fall through to the next script,
	// which is how two runs with the same prompt get different answers.
	Once bool
	// Turns are the answers: Turns[n] is given when n tool rounds lie behind since the last prompt.
	Turns [][]Step
	// Reply, used where Turns is nil, computes the answer from the request.
	Reply func(Request) []Step
	// Usage is reported for every answer; zero means DefaultUsage.
	Usage Usage
	// Faults are consulted before the answer, in order; the first that applies is what the client gets.
	Faults []Fault
}

// Usage is what one answer claims to have cost, in tokens. Input counts what came from no cache.
type Usage struct {
	Input, CacheRead, CacheWrite, Output, Reasoning int
}

// DefaultUsage has a different number in every place, so that a test notices when two are mixed up.
func DefaultUsage() Usage {
	return Usage{Input: 120, CacheRead: 800, CacheWrite: 60, Output: 45, Reasoning: 7}
}

// Fault makes the server misbehave instead of answering.
type Fault struct {
	// Turn is the number of tool rounds at which the fault strikes; -1 means at every one.
	Turn int
	// Times limits how many requests are hit; zero means all of them.
	Times int
	// Status, if set, is answered with the provider's error body.
	Status int
	// RetryAfter is sent as the header of that name, in seconds, with a Status.
	RetryAfter time.Duration
	// Message replaces the error text that goes with Status.
	Message string
	// Hang keeps the stream open and silent after After events, until the client goes or the server closes.
	Hang bool
	// Cut ends the connection without the end of the stream after After events.
	Cut bool
	// After counts the events sent before Hang or Cut.
	After int
}

// StepKind is what a Step makes the model do.
type StepKind string

// The things a scripted model can do.
const (
	StepSay   StepKind = "say"
	StepThink StepKind = "think"
	StepTool  StepKind = "tool"
)

// Step is one block of an answer.
type Step struct {
	Kind StepKind
	// Text is what is said or thought.
	Text string
	// Tool is the name of the tool to call, which the request must offer.
	Tool string
	// Input is the tool's input. A string is raw: the input of a freeform tool, or JSON that may be broken on purpose.
	Input any
}

// Say is an answer's visible text.
func Say(text string) Step { return Step{Kind: StepSay, Text: text} }

// Think is an answer's reasoning.
func Think(text string) Step { return Step{Kind: StepThink, Text: text} }

// Tool is a tool call; input is marshalled to JSON unless it is a string.
func Tool(name string, input any) Step { return Step{Kind: StepTool, Tool: name, Input: input} }

// Turns is shorthand for a script that answers every conversation.
func Turns(turns ...[]Step) []Script { return []Script{{Name: "only", Turns: turns}} }

func (s Step) rawInput() (string, error) {
	if raw, ok := s.Input.(string); ok {
		return raw, nil
	}
	if s.Input == nil {
		return "{}", nil
	}
	b, err := json.Marshal(s.Input)
	return string(b), err
}

func (s Script) matches(r Request) bool {
	if s.Prompt != "" && !strings.Contains(r.Prompt(), s.Prompt) {
		return false
	}
	return s.Match == nil || s.Match(r)
}

func (s Script) usage() Usage {
	if s.Usage == (Usage{}) {
		return DefaultUsage()
	}
	return s.Usage
}
