package loop

import (
	"context"
	"log/slog"
	"time"

	"pulseloop/pulse"
)

// Actor is who asks, and what has to be written together with the outcome.
type Actor struct {
	Operator pulse.OperatorID // "" for the machine's own user and the API
	Name     string           // to show, such as "Ann"
	Origin   pulse.Origin
	Inbound  pulse.InboundID // the update being handled; marked as handled in the same transaction
	// Also, if set, adds to the change before it is written: replies,
	// channel bindings. after is the session as it will be. It may run more
	// than once, because a decision on stale data is made again.
	Also func(after pulse.Session, c *pulse.Change)
}

// Words renders what people are told; the wording belongs to notify.
type Words interface {
	IterationDone(s pulse.Session, it pulse.Iteration) pulse.Message // CONTINUE
	Completed(s pulse.Session, it pulse.Iteration) pulse.Message
	Blocked(s pulse.Session, g pulse.Gate) pulse.Message
	Failed(s pulse.Session, reason, hint string) pulse.Message
	Paused(s pulse.Session) pulse.Message
	Aborted(s pulse.Session, by string) pulse.Message
	Unclaimed(s pulse.Session, waiting time.Duration) pulse.Message // no daemon takes its work
}

// Config is what the loop's decisions depend on. Zero fields take defaults.
type Config struct {
	Clock         func() time.Time
	Log           *slog.Logger
	MaxIterations int           // default for new sessions: 10
	SilenceLimit  time.Duration // an iteration without a sign of life: 5 minutes

	ToolSilenceLimit time.Duration // the same while a tool of the agent runs: 30 minutes
	IterationLimit   time.Duration // an iteration altogether: 0, no limit
	QueueLimit       time.Duration // a task nobody claims: told after 10 minutes
	Lease            time.Duration // hold of a step: 30 s
	MaxAttempts      int           // claims of one task before it is dead: 3
	DefaultAgent     string
	Agents           []string // those a session may name; none: any
}

// StartRequest is a new goal.
type StartRequest struct {
	Actor
	Project         pulse.Project // as registered
	Goal            string
	MaxIterations   int // 0 = default; 1 to 1000
	BranchName      string
	AnchorTurnID    pulse.TurnID
	ContextStrategy pulse.ContextStrategy
	Agent           string

	ChatID, ChatThreadID, PhoneNumber, DiscordThreadID, ConsoleID string
}

// Said is what became of plain words to a session.
type Said struct {
	Session pulse.Session
	As      pulse.InputKind
}

// Doer is every use case, as the surfaces (bot, api) call them. *Actions is
// the implementation.
//
//	Start  makes a session, due at once.
//	Pause  ends it after the current iteration (at once if none runs).
//	Resume lets a paused, blocked or failed session go on; text, if any, is carried into the next prompt.
//	Abort  stops it for good; the agent's processes are ended.
//	Answer resolves the gate (id "" = the open one) by a choice, by text, or both.
//	Say    takes plain words: an answer if a gate is open, guidance if it runs, else a follow-up.
type Doer interface {
	Start(ctx context.Context, r StartRequest) (pulse.Session, error)
	Pause(ctx context.Context, a Actor, id pulse.SessionID) (pulse.Session, error)
	Resume(ctx context.Context, a Actor, id pulse.SessionID, text string) (pulse.Session, error)
	Abort(ctx context.Context, a Actor, id pulse.SessionID) (pulse.Session, error)
	Answer(ctx context.Context, a Actor, id pulse.SessionID, gate pulse.GateID, choice, text string) (pulse.Session, error)
	Say(ctx context.Context, a Actor, id pulse.SessionID, text string) (Said, error)
}
