// Package looptest has a store in memory for tests of decisions: it behaves
// as the database does (guards, state tables, sequence numbers, leases) and
// complains about misuse by failing the test. Its clock is the test's. It may
// be used from many goroutines.
package looptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pulseloop/pulse"
)

// Store is the memory.
type Store struct {
	t   testing.TB
	now func() time.Time

	mu         sync.Mutex
	sessions   map[pulse.SessionID]*pulse.Session
	iterations map[pulse.SessionID][]pulse.Iteration
	tasks      map[pulse.TaskID]*pulse.Task
	gates      map[pulse.GateID]*pulse.Gate
	projects   map[pulse.ProjectID]pulse.Project
	turns      map[pulse.TurnID]pulse.Turn
	order      []pulse.TurnID
	handled    map[pulse.InboundID]bool
	events     []pulse.Event
	notices    []pulse.Notice
	slices     []pulse.Slice
	before     func() // called once before the next Apply, outside the lock
}

// New returns an empty store with the clock of the test.
func New(t testing.TB, now func() time.Time) *Store {
	return &Store{t: t, now: now, sessions: map[pulse.SessionID]*pulse.Session{}, iterations: map[pulse.SessionID][]pulse.Iteration{},
		tasks: map[pulse.TaskID]*pulse.Task{}, gates: map[pulse.GateID]*pulse.Gate{}, projects: map[pulse.ProjectID]pulse.Project{},
		turns: map[pulse.TurnID]pulse.Turn{}, handled: map[pulse.InboundID]bool{}}
}

// BeforeApply runs f once, just before the next Apply looks at its guard:
// the place where another writer comes in between.
func (s *Store) BeforeApply(f func()) { s.before = f }

// Notices, Events, Slices give what was written, in order.
func (s *Store) Notices() []pulse.Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.notices)
}
func (s *Store) Events() []pulse.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}
func (s *Store) Slices() []pulse.Slice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.slices)
}

// Iterations gives a session's iterations in the order they were made.
func (s *Store) Iterations(id pulse.SessionID) []pulse.Iteration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.iterations[id])
}

// AddTurn puts a completed turn into the tree.
func (s *Store) AddTurn(t pulse.Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addTurn(t)
}

func (s *Store) addTurn(t pulse.Turn) {
	if p, ok := s.turns[t.ParentID]; ok {
		t.Depth = p.Depth + 1
	}
	s.turns[t.ID] = t
	s.order = append(s.order, t.ID)
}

// Task gives a task by its session's current iteration.
func (s *Store) Task(id pulse.SessionID) pulse.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	its := s.iterations[id]
	if len(its) == 0 {
		s.t.Fatalf("session %s has no iteration", id)
	}
	return *s.tasks[its[len(its)-1].TaskID]
}

// Begin lets a daemon claim and start the session's task.
func (s *Store) Begin(id pulse.SessionID) {
	t := s.Task(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moveTask(t.ID, pulse.TaskClaimed)
	s.moveTask(t.ID, pulse.TaskRunning)
	row := s.tasks[t.ID]
	row.StartedAt, row.Attempt, row.LastSign, row.Phase = s.now(), row.Attempt+1, s.now(), pulse.PhaseStarting
	its := s.iterations[id]
	its[len(its)-1].Status = pulse.IterationRunning
	s.touch(id)
}

// Sign notes a sign of life of the session's task, which is in a phase.
func (s *Store) Sign(id pulse.SessionID, phase pulse.Phase) {
	t := s.Task(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks[t.ID].LastSign, s.tasks[t.ID].Phase = s.now(), phase
}

// Alter changes the session's task past everything.
func (s *Store) Alter(id pulse.SessionID, f func(*pulse.Task)) {
	t := s.Task(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.tasks[t.ID])
}

// Finish lets the daemon report a result, as failed if it has an error.
func (s *Store) Finish(id pulse.SessionID, r pulse.TaskResult) {
	t := s.Task(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	to := pulse.TaskComplete
	if r.Error != "" {
		to = pulse.TaskFailed
	}
	s.moveTask(t.ID, to)
	s.tasks[t.ID].Result = &r
	s.touch(id)
}

// Kill marks the session's task as dead, as the reaper does in the end.
func (s *Store) Kill(id pulse.SessionID) {
	t := s.Task(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moveTask(t.ID, pulse.TaskDead)
	s.touch(id)
}

func (s *Store) touch(id pulse.SessionID) {
	row := s.sessions[id]
	row.Version++
	row.DueAt = s.now()
}

func (s *Store) moveTask(id pulse.TaskID, to pulse.TaskStatus) {
	row := s.tasks[id]
	if err := pulse.TaskTransitions.Check(row.Status, to); err != nil {
		s.t.Fatalf("task %s: %v", id, err)
	}
	row.Status = to
}

// Session reads a session.
func (s *Store) Session(_ context.Context, id pulse.SessionID) (pulse.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if row, ok := s.sessions[id]; ok {
		return clone(*row), nil
	}
	return pulse.Session{}, pulse.NotFound("there is no session "+string(id), "")
}

func clone(s pulse.Session) pulse.Session {
	s.Inputs, s.ProgressLog = slices.Clone(s.Inputs), slices.Clone(s.ProgressLog)
	return s
}

// Take gives a hold on the session that is due longest.
func (s *Store) Take(_ context.Context, token string, lease time.Duration) (pulse.Session, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due *pulse.Session
	var next time.Time
	for _, row := range s.sessions {
		if row.DueAt.IsZero() {
			continue
		}
		if row.DueAt.After(s.now()) {
			if next.IsZero() || row.DueAt.Before(next) {
				next = row.DueAt
			}
			continue
		}
		if due == nil || row.DueAt.Before(due.DueAt) || row.DueAt.Equal(due.DueAt) && row.ID < due.ID {
			due = row
		}
	}
	if due == nil {
		return pulse.Session{}, next, pulse.ErrNone
	}
	due.StepToken, due.DueAt = token, s.now().Add(lease)
	due.Version++
	return clone(*due), next, nil
}

// CurrentIteration reads the latest iteration and its task.
func (s *Store) CurrentIteration(_ context.Context, id pulse.SessionID) (pulse.Iteration, pulse.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	its := s.iterations[id]
	if len(its) == 0 {
		return pulse.Iteration{}, pulse.Task{}, pulse.ErrNone
	}
	it := its[len(its)-1]
	return it, *s.tasks[it.TaskID], nil
}

// OpenGate reads the session's open gate.
func (s *Store) OpenGate(_ context.Context, id pulse.SessionID) (pulse.Gate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gates {
		if g.SessionID == id && g.Status == pulse.GateOpen {
			return *g, nil
		}
	}
	return pulse.Gate{}, pulse.ErrNone
}

// Project reads a project by id.
func (s *Store) Project(_ context.Context, id pulse.ProjectID) (pulse.Project, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.projects[id]; ok {
		return p, nil
	}
	return pulse.Project{}, pulse.NotFound("there is no project "+string(id), "")
}

// ProjectByName reads a project by name.
func (s *Store) ProjectByName(_ context.Context, name string) (pulse.Project, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.projects {
		if p.Name == name {
			return p, nil
		}
	}
	return pulse.Project{}, pulse.NotFound("there is no project "+name, "")
}

// Reap does nothing: leases do not end by themselves in memory.
func (s *Store) Reap(context.Context) (requeued, dead int, err error) { return 0, 0, nil }

// Turn reads a turn.
func (s *Store) Turn(_ context.Context, id pulse.TurnID) (pulse.Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.turns[id]; ok {
		return t, nil
	}
	return pulse.Turn{}, pulse.NotFound("there is no turn "+string(id), "")
}

// Ancestors reads the turns above a turn, nearest first.
func (s *Store) Ancestors(_ context.Context, id pulse.TurnID, limit int) ([]pulse.Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []pulse.Turn
	for t, ok := s.turns[s.turns[id].ParentID]; ok && len(out) < limit; t, ok = s.turns[t.ParentID] {
		out = append(out, t)
	}
	return out, nil
}

// LatestTurn reads the turn added last.
func (s *Store) LatestTurn(_ context.Context, p pulse.ProjectID, asking pulse.SessionID) (pulse.Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Backward(s.order) {
		if t := s.turns[id]; t.ProjectID == p && t.Status == pulse.TurnCompleted && (t.SessionID != asking || t.Role != pulse.TurnUser) {
			return t, nil
		}
	}
	return pulse.Turn{}, pulse.ErrNone
}

// SearchTurns counts the words of the query that a turn has.
func (s *Store) SearchTurns(_ context.Context, p pulse.ProjectID, query string, limit int) ([]pulse.TurnHit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	words := strings.Fields(strings.ToLower(query))
	var out []pulse.TurnHit
	for _, id := range s.order {
		t := s.turns[id]
		found := 0
		for _, w := range words {
			if strings.Contains(strings.ToLower(t.Text), w) {
				found++
			}
		}
		if t.ProjectID == p && found > 0 && t.Status == pulse.TurnCompleted {
			out = append(out, pulse.TurnHit{Turn: t, Similarity: float64(found) / float64(len(words))})
		}
	}
	slices.SortStableFunc(out, func(a, b pulse.TurnHit) int {
		return strings.Compare(fmt.Sprintf("%.6f", b.Similarity), fmt.Sprintf("%.6f", a.Similarity))
	})
	return out[:min(limit, len(out))], nil
}
