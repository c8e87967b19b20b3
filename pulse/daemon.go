package pulse

import "time"

// Daemon is a process that runs agents beside the code.
type Daemon struct {
	ID      DaemonID
	Host    string
	Version string
	Slots   int
	Agents  []string // backends that are ready there
	SeenAt  time.Time
}

// Topic names what a waiter waits for. The store wakes it after a commit
// that may concern it.
type Topic string

const (
	TopicTasks    Topic = "tasks"    // tasks queued or cancelled
	TopicSessions Topic = "sessions" // a session came due
	TopicNotices  Topic = "notices"  // a message to send
	TopicInbound  Topic = "inbound"  // an update to handle
	TopicEvents   Topic = "events"   // events or stream deltas
)

// Topics lists every topic.
func Topics() []Topic {
	return []Topic{TopicTasks, TopicSessions, TopicNotices, TopicInbound, TopicEvents}
}
