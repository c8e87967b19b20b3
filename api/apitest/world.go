// Package apitest holds an in-memory world behind the API: sessions, their
// events and deltas, projects, and the use cases that change them, behaving
// as the real ones do where the API can tell the difference.
//
// It stands in for loop and db in tests of the API and of its clients, and
// can be used by hand. It is safe for use by many goroutines.
package apitest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pulseloop/pulse"
)

// World is the state behind the API.
type World struct {
	Now time.Time // the clock of everything made here; fixed, so that frames can be compared

	mu       sync.Mutex
	sessions []pulse.Session // newest last
	its      map[pulse.SessionID][]pulse.Iteration
	gates    map[pulse.SessionID]pulse.Gate
	turns    map[pulse.SessionID][]pulse.TurnDetail
	events   map[pulse.SessionID][]pulse.Event
	deltas   map[pulse.SessionID][]pulse.StreamDelta
	still    map[pulse.SessionID]bool
	projects []pulse.Project
	roots    []string
	waiters  map[chan struct{}]bool
	reads    int
	broken   error
	hidden   bool
	calls    []string
}

// New makes an empty world in which repositories under /src are allowed.
func New() *World {
	return &World{
		Now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), roots: []string{"/src"},
		its: map[pulse.SessionID][]pulse.Iteration{}, gates: map[pulse.SessionID]pulse.Gate{},
		turns: map[pulse.SessionID][]pulse.TurnDetail{}, events: map[pulse.SessionID][]pulse.Event{},
		deltas: map[pulse.SessionID][]pulse.StreamDelta{}, still: map[pulse.SessionID]bool{}, waiters: map[chan struct{}]bool{},
	}
}

// Clock gives the world's fixed time.
func (w *World) Clock() time.Time { return w.Now }

// Break makes every read fail with err until it is called with nil.
func (w *World) Break(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = err
}

// Calls lists what was asked of the use cases, one line each.
func (w *World) Calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// Reads counts how often the feed was asked.
func (w *World) Reads() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

// Waiters counts who waits for a wake.
func (w *World) Waiters() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters)
}

func (w *World) note(format string, args ...any) {
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

// AddProject puts a project into the world.
func (w *World) AddProject(name, path string) pulse.Project {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := pulse.Project{ID: pulse.ProjectID(pulse.NewUUID(w.Now)), Name: name, Path: path, CreatedAt: w.Now}
	w.projects = append(w.projects, p)
	return p
}

// AddSession puts a session into the world. Missing fields are filled in.
func (w *World) AddSession(s pulse.Session) pulse.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.ID == "" {
		s.ID = pulse.SessionID(pulse.NewUUID(w.Now))
	}
	if s.Status == "" {
		s.Status = pulse.SessionRunning
	}
	if s.CreatedBy == "" {
		s.CreatedBy = pulse.OriginAPI
	}
	if s.Role == "" {
		s.Role = pulse.RolePulsing
	}
	s.Run, s.CreatedAt, s.UpdatedAt = max(s.Run, 1), w.Now, w.Now
	w.sessions = append(w.sessions, s)
	return s
}

// AddIteration puts an iteration into its session.
func (w *World) AddIteration(it pulse.Iteration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.ID == "" {
		it.ID = pulse.IterationID(pulse.NewUUID(w.Now))
	}
	if it.Status == "" {
		it.Status = pulse.IterationRunning
	}
	it.Attempt, it.Run, it.CreatedAt = max(it.Attempt, 1), max(it.Run, 1), w.Now
	w.its[it.SessionID] = append(w.its[it.SessionID], it)
}

// AddTurn puts a turn into its session.
func (w *World) AddTurn(d pulse.TurnDetail) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns[d.Turn.SessionID] = append(w.turns[d.Turn.SessionID], d)
}

// Block opens a gate and blocks the session on it.
func (w *World) Block(id pulse.SessionID, prompt string, options ...pulse.GateOption) pulse.Gate {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.session(id)
	s.Status, s.StatusReason = pulse.SessionBlocked, prompt
	g := pulse.Gate{ID: pulse.GateID(pulse.NewUUID(w.Now)), SessionID: id, Kind: pulse.GateQuestion, Prompt: prompt,
		Options: options, Status: pulse.GateOpen, CreatedAt: w.Now}
	w.gates[id] = g
	return g
}

// Emit appends events to a session, numbered in its sequence, and wakes.
func (w *World) Emit(id pulse.SessionID, events ...pulse.Event) {
	w.mu.Lock()
	w.append(id, events...)
	w.mu.Unlock()
	w.Wake()
}

func (w *World) append(id pulse.SessionID, events ...pulse.Event) {
	s := w.session(id)
	for _, e := range events {
		s.EventSeq++
		e.SessionID, e.Seq, e.Data = id, s.EventSeq, whole(e.Type, e.Data)
		if e.At.IsZero() {
			e.At = w.Now
		}
		w.events[id] = append(w.events[id], e)
	}
	delete(w.still, id)
}

// Stream appends deltas to a session and wakes. Numbers have to ascend.
func (w *World) Stream(id pulse.SessionID, deltas ...pulse.StreamDelta) {
	w.mu.Lock()
	for _, d := range deltas {
		d.SessionID = id
		if d.At.IsZero() {
			d.At = w.Now
		}
		if have := w.deltas[id]; len(have) > 0 && !before(have[len(have)-1], pulse.DeltaPosition{TaskID: d.TaskID, Attempt: d.Attempt, N: d.N}) {
			w.mu.Unlock()
			panic("apitest: deltas of a session have to ascend")
		}
		w.deltas[id] = append(w.deltas[id], d)
	}
	w.mu.Unlock()
	w.Wake()
}

// Rest takes a session out of those that move.
func (w *World) Rest(id pulse.SessionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.still[id] = true
}

// Quietly lets do change the world before anybody is told or can look.
func (w *World) Quietly(do func()) {
	w.mu.Lock()
	w.hidden = true
	w.mu.Unlock()
	do()
	w.mu.Lock()
	w.hidden = false
	w.mu.Unlock()
}

// Wake tells whoever waits that there is something.
func (w *World) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hidden {
		return
	}
	for c := range w.waiters {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// session finds a session of the world; naming another one is a mistake of
// the test.
func (w *World) session(id pulse.SessionID) *pulse.Session {
	for i := range w.sessions {
		if w.sessions[i].ID == id {
			return &w.sessions[i]
		}
	}
	panic("apitest: no session " + string(id))
}

func before(d pulse.StreamDelta, p pulse.DeltaPosition) bool {
	if d.TaskID != p.TaskID {
		return d.TaskID < p.TaskID
	}
	if d.Attempt != p.Attempt {
		return d.Attempt < p.Attempt
	}
	return d.N < p.N
}

// Sessions implements api.Reader.
func (w *World) Sessions(_ context.Context, f pulse.SessionFilter) ([]pulse.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return nil, w.broken
	}
	limit := f.Limit
	if limit == 0 {
		limit = 50
	}
	var out []pulse.Session
	for i := len(w.sessions) - 1; i >= 0 && len(out) < limit; i-- {
		s := w.sessions[i]
		if len(f.Statuses) > 0 && !slices.Contains(f.Statuses, s.Status) || f.ProjectID != "" && s.ProjectID != f.ProjectID {
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

// FindSession implements api.Reader.
func (w *World) FindSession(_ context.Context, suffix string) (pulse.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return pulse.Session{}, w.broken
	}
	var hits []pulse.Session
	for _, s := range w.sessions {
		if suffix != "" && strings.HasSuffix(string(s.ID), suffix) {
			hits = append(hits, s)
		}
	}
	switch len(hits) {
	case 0:
		return pulse.Session{}, pulse.NotFound("there is no session "+suffix, "list them")
	case 1:
		return hits[0], nil
	}
	return pulse.Session{}, pulse.Invalid(fmt.Sprintf("%d sessions end in %s", len(hits), suffix), "write more of the id")
}

// Iterations implements api.Reader.
func (w *World) Iterations(_ context.Context, id pulse.SessionID) ([]pulse.Iteration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.its[id]), w.broken
}

// OpenGate implements api.Reader.
func (w *World) OpenGate(_ context.Context, id pulse.SessionID) (pulse.Gate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g, ok := w.gates[id]; ok {
		return g, w.broken
	}
	return pulse.Gate{}, pulse.ErrNone
}

// Turns implements api.Reader.
func (w *World) Turns(_ context.Context, id pulse.SessionID) ([]pulse.TurnDetail, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.turns[id]), w.broken
}

// Projects implements api.Reader.
func (w *World) Projects(context.Context) ([]pulse.Project, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.projects), w.broken
}
