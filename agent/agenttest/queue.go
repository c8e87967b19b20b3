package agenttest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"pulseloop/pulse"
)

// Queue is a store of tasks in memory.
type Queue struct {
	t     testing.TB
	clock func() time.Time

	mu      sync.Mutex
	tasks   map[pulse.TaskID]*entry
	order   []pulse.TaskID
	routes  []string
	daemons map[pulse.DaemonID]pulse.Daemon
	tokens  int
	waiters map[chan struct{}]pulse.Topic
	changed chan struct{}
	fault   Fault
	calls   map[Op]int
}

// entry is a task with what was written about it.
type entry struct {
	task    pulse.Task
	stream  pulse.StreamBatch
	turns   map[pulse.TurnID]pulse.Turn
	seqs    map[string]bool
	deltaN  map[pulse.ClaimToken]int64
	refused map[pulse.ClaimToken]time.Time // when its holder was told that it is gone
}

// Op names a method of the queue.
type Op string

// The methods, as a Fault is asked about them.
const (
	OpClaim     Op = "claim"
	OpHeartbeat Op = "heartbeat"
	OpRunning   Op = "running"
	OpAppend    Op = "append"
	OpFinish    Op = "finish"
	OpRelease   Op = "release"
	OpEnlist    Op = "enlist"
)

// Fault makes calls go wrong. It is asked before a call, with done false: an
// error fails the call without effect. It is asked again after a call that
// took effect, with done true: an error is its answer all the same, as when a
// connection breaks after the commit. It may block until ctx ends.
type Fault func(ctx context.Context, op Op, done bool) error

// New returns an empty queue that serves every route of its tasks. A nil
// clock is the time of day.
func New(t testing.TB, clock func() time.Time) *Queue {
	if clock == nil {
		clock = time.Now
	}
	return &Queue{t: t, clock: clock, tasks: map[pulse.TaskID]*entry{}, daemons: map[pulse.DaemonID]pulse.Daemon{},
		waiters: map[chan struct{}]pulse.Topic{}, changed: make(chan struct{}), calls: map[Op]int{}}
}

// SetFault replaces the fault; nil means that all goes well.
func (q *Queue) SetFault(f Fault) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fault = f
}

// Add queues a task. Empty ids are filled in.
func (q *Queue) Add(task pulse.Task) pulse.Task {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock()
	task.ID = cmp.Or(task.ID, pulse.TaskID(pulse.NewUUID(now)))
	task.SessionID = cmp.Or(task.SessionID, pulse.SessionID(pulse.NewUUID(now)))
	task.IterationID = cmp.Or(task.IterationID, pulse.IterationID(pulse.NewUUID(now)))
	task.Kind = cmp.Or(task.Kind, pulse.TaskIterate)
	task.Route = cmp.Or(task.Route, "project:test")
	task.Status, task.CreatedAt = pulse.TaskQueued, now
	if q.tasks[task.ID] != nil {
		q.t.Errorf("queue: task %s is added twice", task.ID)
	}
	if !slices.Contains(q.routes, task.Route) {
		q.routes = append(q.routes, task.Route)
	}
	q.tasks[task.ID] = &entry{task: task, turns: map[pulse.TurnID]pulse.Turn{}, seqs: map[string]bool{},
		deltaN: map[pulse.ClaimToken]int64{}, refused: map[pulse.ClaimToken]time.Time{}}
	q.order = append(q.order, task.ID)
	q.wake()
	return task
}

// Cancel cancels a task that is not over.
func (q *Queue) Cancel(id pulse.TaskID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.tasks[id]; pulse.TaskTransitions.Allows(e.task.Status, pulse.TaskCancelled) {
		e.task.Status = pulse.TaskCancelled
	}
	q.wake()
}

// Steal ends the claim of a task, as if its lease had ended, and queues the
// task again.
func (q *Queue) Steal(id pulse.TaskID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.requeue(q.tasks[id])
	q.wake()
}

// Reap queues every task again whose lease has ended, and answers how many.
func (q *Queue) Reap() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, e := range q.tasks {
		if held(e) && !e.task.LeaseUntil.After(q.clock()) {
			q.requeue(e)
			n++
		}
	}
	q.wake()
	return n
}

func (q *Queue) requeue(e *entry) {
	if held(e) {
		e.task.Status, e.task.ClaimToken, e.task.LeaseUntil = pulse.TaskQueued, "", time.Time{}
	}
}

func held(e *entry) bool {
	return e.task.Status == pulse.TaskClaimed || e.task.Status == pulse.TaskRunning
}

// Task gives a task as it is.
func (q *Queue) Task(id pulse.TaskID) pulse.Task {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tasks[id].task
}

// Stream gives all that was appended to a task, turns as they are now.
func (q *Queue) Stream(id pulse.TaskID) pulse.StreamBatch {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.tasks[id]
	s := e.stream
	s.Turns = nil
	for _, id := range slices.Sorted(maps.Keys(e.turns)) {
		s.Turns = append(s.Turns, e.turns[id])
	}
	return s
}

// Calls counts the calls of a method, failed ones included.
func (q *Queue) Calls(op Op) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.calls[op]
}

// Daemons lists who has enlisted.
func (q *Queue) Daemons() []pulse.Daemon {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.SortedFunc(maps.Values(q.daemons), func(a, b pulse.Daemon) int { return cmp.Compare(a.ID, b.ID) })
}

// Await waits until cond holds of the task, for at most half a minute.
func (q *Queue) Await(id pulse.TaskID, what string, cond func(pulse.Task, pulse.StreamBatch) bool) pulse.Task {
	q.t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		q.mu.Lock()
		changed := q.changed
		q.mu.Unlock()
		if t := q.Task(id); cond(t, q.Stream(id)) {
			return t
		}
		select {
		case <-changed:
		case <-limit.C:
			q.t.Fatalf("waited in vain for %s; the task is %+v", what, q.Task(id))
		}
	}
}

// AwaitStatus waits until the task has a status.
func (q *Queue) AwaitStatus(id pulse.TaskID, s pulse.TaskStatus) pulse.Task {
	q.t.Helper()
	return q.Await(id, "status "+string(s), func(t pulse.Task, _ pulse.StreamBatch) bool { return t.Status == s })
}

// call does one method: the fault before, the effect, the fault after.
func (q *Queue) call(ctx context.Context, op Op, effect func() error) error {
	q.mu.Lock()
	q.calls[op]++
	fault := q.fault
	q.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, op, false); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	q.mu.Lock()
	err := effect()
	close(q.changed)
	q.changed = make(chan struct{})
	q.mu.Unlock()
	if err == nil && fault != nil {
		return fault(ctx, op, true)
	}
	return err
}

func (q *Queue) wake() {
	for ch, topic := range q.waiters {
		if topic != pulse.TopicTasks {
			continue
		}
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	close(q.changed)
	q.changed = make(chan struct{})
}

// Wakes tells of changes.
func (q *Queue) Wakes(topic pulse.Topic) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters[ch] = topic
	return ch, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiters, ch)
	}
}

// Waiting counts those who were not yet told that nobody listens any more.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiters)
}

// reaction is how long a daemon may take to let go of a claim that is gone.
const reaction = 3 * time.Second

// live finds the claim of a fence. Whoever asks again in earnest after it
// was refused has not understood.
func (q *Queue) live(op Op, f pulse.Fence) (*entry, error) {
	e := q.tasks[f.TaskID]
	if e == nil || f.Token == "" {
		q.t.Errorf("queue: %s with fence %+v, which names no claim", op, f)
		return nil, pulse.ErrFenced
	}
	if held(e) && e.task.ClaimToken == f.Token && e.task.LeaseUntil.After(q.clock()) {
		return e, nil
	}
	if at, told := e.refused[f.Token]; told && q.clock().Sub(at) > reaction {
		q.t.Errorf("queue: %s of task %s %v after its claim was refused", op, f.TaskID, q.clock().Sub(at))
	} else if !told {
		e.refused[f.Token] = q.clock()
	}
	return nil, pulse.ErrFenced
}

// sameFacts compares two results.
func sameFacts(a, b *pulse.TaskResult) bool { return reflect.DeepEqual(a, b) }
