// Package cli is the seam between the daemon and the agent CLIs. A Backend
// knows one CLI: how to find it, how to start it, and how to speak with it
// over the pipes of the child. It holds no policy: what a result means, when
// a run is over time, what is stored where, is decided elsewhere.
//
// A backend package imports this one and nothing of its siblings. Every
// backend passes the suite in clitest, and its decoder has a fuzz target and
// recorded streams of named CLI versions under testdata.
package cli

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"pulseloop/pulse"
)

// Backend drives one agent CLI.
//
// The order of calls for a run is Command, then (once the child runs)
// Converse exactly once. Probe may be called at any time. All methods may be
// called from several goroutines at once; a Backend keeps no state of a run.
type Backend interface {
	// Name is what people type, such as "claude".
	Name() string

	// Probe looks for the CLI. It never fails: what is wrong stands in the
	// answer, with the fix. It takes at most a few seconds, by ctx.
	Probe(ctx context.Context) Probe

	// Command says what to start for one run. It may write files below
	// in.StateDir, and nowhere else.
	Command(in Input) (Command, error)

	// Converse speaks with the running child until it has given its result
	// and its standard output has ended (or been silent for a while after the
	// result: some CLIs never exit), or until ctx ends. Every event is
	// handed to emit, in order, from the calling goroutine's stack or one
	// that has ended when Converse returns; emit may block, which must hold
	// up reading and nothing else. Lines of any length and of unknown kind
	// are normal input: they are bounded or skipped, never an error.
	//
	// Converse closes w.Stdin when the CLI needs no more input. It returns
	// an error only if the conversation could not be held (a write failed,
	// the stream ended without a result where the CLI always gives one); a
	// failure that the CLI itself reports is an event of kind EventResult
	// with Failed set. It does not wait for the child to exit.
	Converse(ctx context.Context, w Wire, in Input, controls <-chan Control, emit func(Event)) error
}

// Probe is what is known of an installed CLI.
type Probe struct {
	Name      string    `json:"name"`
	Path      string    `json:"path,omitempty"`
	Version   string    `json:"version,omitempty"`
	Installed bool      `json:"installed"`
	LoggedIn  bool      `json:"logged_in"` // has credentials it could use; not proven to be valid
	Problem   string    `json:"problem,omitempty"`
	Fix       string    `json:"fix,omitempty"` // what to type or do about Problem
	Can       Abilities `json:"can"`
}

// Ready reports whether a run could start.
func (p Probe) Ready() bool { return p.Installed && p.LoggedIn && p.Problem == "" }

// Abilities says what a CLI can do beside answering a prompt.
type Abilities struct {
	AskPermission bool `json:"ask_permission"`
	Resume        bool `json:"resume"`
	Steer         bool `json:"steer"`
	MCP           bool `json:"mcp"`
	Cost          bool `json:"cost"`
	Tokens        bool `json:"tokens"`
}

// Input is one run.
type Input struct {
	Prompt    string
	Dir       string // the worktree; the child's working directory
	StateDir  string // a directory for this run's own files, outside the worktree
	Model     string // "" = the CLI's own default
	Sandboxed bool   // the run is behind walls already; another sandbox inside would fail to make its own
	Role      pulse.Role
	SessionID pulse.SessionID
	Iteration int
	TaskID    pulse.TaskID
}

// Command is what to start. The environment of the child is an allow-list
// made by the daemon, then Pass (names copied from the daemon's own
// environment where set), then Env.
type Command struct {
	Path string
	Args []string
	Pass []string // names of variables, such as ANTHROPIC_API_KEY
	Env  []string // "K=V"
	Home *Home    // what the CLI keeps of its own; nil: nothing
}

// Home is the directory in which a CLI keeps its settings, its login and
// what it remembers. A run behind walls gets one of its own: what lies in the
// person's would be run or believed when they use the CLI themselves, and it
// tells of their other work.
type Home struct {
	Env    string            // the variable that names it, such as CODEX_HOME
	Dir    string            // where it is otherwise
	Share  []string          // entries of Dir that the CLI reads: seen, not changed
	Keep   []string          // files of Dir that the CLI renews, such as its login: changed for good
	Copies map[string]string // entries to begin with, and the files to copy
	Forget []string          // what copies that are JSON do not get: keys of the outermost object
}

// Wire is the child's pipes. Standard error is collected by the daemon.
type Wire struct {
	Stdin  io.WriteCloser
	Stdout io.Reader
}

// EventKind says what an event tells.
type EventKind string

const (
	EventStarted   EventKind = "started"    // Conversation, Model
	EventText      EventKind = "text"       // Text: a whole block of the answer
	EventTextDelta EventKind = "text_delta" // Text: a piece of the block that the next EventText gives whole
	EventThought   EventKind = "thought"    // Text: a whole block of reasoning
	EventToolStart EventKind = "tool_start" // Tool
	EventToolEnd   EventKind = "tool_end"   // Tool, same ID
	EventUsage     EventKind = "usage"      // Usage so far: replaces, never adds
	EventNote      EventKind = "note"       // Text: the CLI retries, is limited, compacts: for people
	EventResult    EventKind = "result"     // Result: the run's end; once
)

// Event is one thing an agent CLI said.
type Event struct {
	Kind         EventKind
	At           time.Time // zero: when it was read
	Text         string
	Conversation string
	Model        string
	Tool         *Tool
	Usage        *pulse.Usage
	Result       *Result
}

// Tool is a tool call of the agent.
type Tool struct {
	ID      string
	Name    string
	Input   json.RawMessage // JSON, may be empty at the end event
	Summary string          // one line for people: the path, the command; see Summarize
	Output  string          // at the end event, cut to 64 KiB
	Failed  bool
}

// Result is how the CLI said the run ended.
type Result struct {
	FinalText string // the agent's last answer: the text that may carry a signal
	Failed    bool
	Error     string // what the CLI said went wrong
	Hint      string // what a person can do, where it is known
	Usage     pulse.Usage
}

// Control is what is said to a running agent.
type Control struct {
	Kind ControlKind
	Text string
}

// ControlKind names a control.
type ControlKind string

const (
	ControlInterrupt ControlKind = "interrupt"
	ControlGuide     ControlKind = "guide"
)
