package agent

import (
	"context"
	"time"

	"pulseloop/pulse"
)

// Queue is where a daemon gets its work and reports its facts. Every write is
// guarded by the claim's token: one that comes late changes nothing and
// answers pulse.ErrFenced. Times of leases are the database's.
type Queue interface {
	// Claim takes the most urgent queued task of the routes, gives it a
	// fresh token and a lease, and counts the attempt. pulse.ErrNone if
	// there is none.
	Claim(ctx context.Context, daemon pulse.DaemonID, routes []string, lease time.Duration) (pulse.Claim, error)

	// ClaimMany is Claim for up to n tasks at once, the most urgent first,
	// each with a token of its own.
	ClaimMany(ctx context.Context, daemon pulse.DaemonID, routes []string, n int, lease time.Duration) ([]pulse.Claim, error)

	// Heartbeat renews the lease. cancelled is true when the task was
	// cancelled: the daemon must end the agent and report nothing more.
	// An unheld claim answers pulse.ErrFenced.
	Heartbeat(ctx context.Context, f pulse.Fence, lease time.Duration) (cancelled bool, err error)

	// Running marks the claimed task and its iteration as running.
	Running(ctx context.Context, f pulse.Fence) error

	// Append stores a batch of what the agent does, in one transaction.
	Append(ctx context.Context, f pulse.Fence, b pulse.StreamBatch) error

	// Finish stores the result as complete (r.Error == "") or failed, and
	// wakes the session. Repeating it with the same token is harmless.
	Finish(ctx context.Context, f pulse.Fence, r pulse.TaskResult) error

	// Release hands the task back to the queue without counting the attempt.
	Release(ctx context.Context, f pulse.Fence) error
}

// Registry is where a daemon makes itself known.
type Registry interface {
	// Enlist writes or renews the daemon's row and answers which routes it
	// serves: its own, and those of the projects it can reach.
	Enlist(ctx context.Context, d Enlistment) (routes []string, err error)
}

// Enlistment is what a daemon says of itself.
type Enlistment = pulse.Daemon

// Waker tells that something may have changed. A receive is a hint: the
// receiver looks, and polls besides.
type Waker interface {
	// Wakes gives a channel that gets a value, never more than one at once,
	// after a commit on the topic. The stop function ends it.
	Wakes(topic pulse.Topic) (wakes <-chan struct{}, stop func())
}
