package pulse

import (
	"fmt"
	"slices"
)

// Transitions is a written table of allowed state changes.
type Transitions[S ~string] map[S][]S

// Allows reports whether a record may go from one state to another.
func (t Transitions[S]) Allows(from, to S) bool { return slices.Contains(t[from], to) }

// Check is Allows as an error that names both states.
func (t Transitions[S]) Check(from, to S) error {
	if t.Allows(from, to) {
		return nil
	}
	return &Error{Code: CodeConflict, Message: fmt.Sprintf("a change from %s to %s is not allowed", from, to)}
}

// From lists, in no order, the states from which to may be reached.
func (t Transitions[S]) From(to S) []S {
	var out []S
	for from, tos := range t {
		if slices.Contains(tos, to) {
			out = append(out, from)
		}
	}
	slices.Sort(out)
	return out
}

// SessionStatus is the state of one goal.
type SessionStatus string

const (
	SessionPending  SessionStatus = "pending"
	SessionRunning  SessionStatus = "running"
	SessionComplete SessionStatus = "complete"
	SessionBlocked  SessionStatus = "blocked"
	SessionFailed   SessionStatus = "failed"
	SessionPaused   SessionStatus = "paused"
	SessionAborted  SessionStatus = "aborted"
)

// SessionTransitions is the one table of session changes; aborted is final.
var SessionTransitions = Transitions[SessionStatus]{
	SessionPending:  {SessionRunning, SessionPaused, SessionAborted},
	SessionRunning:  {SessionRunning, SessionComplete, SessionBlocked, SessionFailed, SessionPaused, SessionAborted},
	SessionBlocked:  {SessionRunning, SessionAborted},
	SessionPaused:   {SessionRunning, SessionAborted},
	SessionFailed:   {SessionRunning, SessionAborted},
	SessionComplete: {SessionRunning},
	SessionAborted:  {},
}

// SessionStatuses lists every session state in the order of a life.
func SessionStatuses() []SessionStatus {
	return []SessionStatus{SessionPending, SessionRunning, SessionPaused, SessionBlocked, SessionComplete, SessionFailed, SessionAborted}
}

// IterationStatus is the state of one dispatch.
type IterationStatus string

const (
	IterationPending    IterationStatus = "pending"
	IterationDispatched IterationStatus = "dispatched"
	IterationRunning    IterationStatus = "running"
	IterationComplete   IterationStatus = "complete"
	IterationFailed     IterationStatus = "failed"
	IterationTimeout    IterationStatus = "timeout"
)

// IterationTransitions is the one table of iteration changes.
var IterationTransitions = Transitions[IterationStatus]{
	IterationPending:    {IterationDispatched, IterationFailed},
	IterationDispatched: {IterationRunning, IterationComplete, IterationFailed, IterationTimeout},
	IterationRunning:    {IterationDispatched, IterationComplete, IterationFailed, IterationTimeout},
	IterationComplete:   {},
	IterationFailed:     {},
	IterationTimeout:    {},
}

// TaskStatus is the state of a row of inbox_tasks.
type TaskStatus string

const (
	TaskQueued    TaskStatus = "queued"
	TaskClaimed   TaskStatus = "claimed"
	TaskRunning   TaskStatus = "running"
	TaskComplete  TaskStatus = "complete"
	TaskFailed    TaskStatus = "failed"
	TaskCancelled TaskStatus = "cancelled"
	TaskDead      TaskStatus = "dead"
)

// TaskTransitions is the one table of task changes. A claimed or running
// task goes back to queued when its lease ends or its daemon hands it back.
var TaskTransitions = Transitions[TaskStatus]{
	TaskQueued:    {TaskClaimed, TaskCancelled, TaskDead},
	TaskClaimed:   {TaskRunning, TaskQueued, TaskComplete, TaskFailed, TaskCancelled, TaskDead},
	TaskRunning:   {TaskQueued, TaskComplete, TaskFailed, TaskCancelled, TaskDead},
	TaskComplete:  {},
	TaskFailed:    {},
	TaskCancelled: {},
	TaskDead:      {},
}

// Over reports whether the task will never run again.
func (s TaskStatus) Over() bool { return len(TaskTransitions[s]) == 0 }

// GateStatus is the state of a point at which a person decides.
type GateStatus string

const (
	GateOpen      GateStatus = "open"
	GateResolved  GateStatus = "resolved"
	GateExpired   GateStatus = "expired"
	GateCancelled GateStatus = "cancelled"
)

// GateTransitions is the one table of gate changes.
var GateTransitions = Transitions[GateStatus]{
	GateOpen:      {GateResolved, GateExpired, GateCancelled},
	GateResolved:  {},
	GateExpired:   {},
	GateCancelled: {},
}

// NoticeStatus is the state of an outgoing message.
type NoticeStatus string

const (
	NoticeQueued  NoticeStatus = "queued"
	NoticeSending NoticeStatus = "sending"
	NoticeSent    NoticeStatus = "sent"
	NoticeDropped NoticeStatus = "dropped" // progress that no longer matters
	NoticeDead    NoticeStatus = "dead"    // cannot be delivered; the reason is kept
)

// NoticeTransitions is the one table of message changes. A sent message
// whose text changes is queued again, as an edit.
var NoticeTransitions = Transitions[NoticeStatus]{
	NoticeQueued:  {NoticeSending, NoticeDropped, NoticeDead},
	NoticeSending: {NoticeQueued, NoticeSent, NoticeDropped, NoticeDead},
	NoticeSent:    {NoticeQueued},
	NoticeDropped: {},
	NoticeDead:    {},
}
