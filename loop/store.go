package loop

import (
	"context"
	"time"

	"pulseloop/pulse"
)

// Store is what the Runner and the use cases need of the database. Reads see
// every write that was answered before; writes go through Apply alone, but
// for Take, whose UPDATE is itself the decision.
type Store interface {
	// Session reads one session; pulse.CodeNotFound if there is none.
	Session(ctx context.Context, id pulse.SessionID) (pulse.Session, error)

	// Take gives the due session that waits longest a hold for lease and a
	// step token; pulse.ErrNone if none is due, with the time at which the
	// next one will be (zero if none).
	Take(ctx context.Context, token string, lease time.Duration) (pulse.Session, time.Time, error)

	// CurrentIteration reads the session's latest iteration with its task;
	// pulse.ErrNone before the first.
	CurrentIteration(ctx context.Context, id pulse.SessionID) (pulse.Iteration, pulse.Task, error)

	// OpenGate reads the session's open gate; pulse.ErrNone without one.
	OpenGate(ctx context.Context, id pulse.SessionID) (pulse.Gate, error)

	// Project reads a project by id; ProjectByName by name; both answer
	// pulse.CodeNotFound.
	Project(ctx context.Context, id pulse.ProjectID) (pulse.Project, error)
	ProjectByName(ctx context.Context, name string) (pulse.Project, error)

	// Apply writes a change if its guard holds, in one transaction, and
	// wakes who may be waiting: else pulse.ErrStale or pulse.ErrDone.
	Apply(ctx context.Context, g pulse.Guard, c pulse.Change) error
}

// Reaper returns tasks whose lease has ended to the queue, or, after their
// last attempt, marks them dead and wakes their session. It answers how many
// of each. It belongs to the Runner's tick.
type Reaper interface {
	Reap(ctx context.Context) (requeued, dead int, err error)
}

// Prompter builds what an iteration starts from (loop/recall).
type Prompter interface {
	Prepare(ctx context.Context, s pulse.Session, p pulse.Project, prev *pulse.Iteration) (Prepared, error)
}

// Prepared is a prompt with where its context came from.
type Prepared struct {
	Prompt        string
	Anchor        pulse.Anchor
	Slice         pulse.Slice
	ContextTokens int
}
