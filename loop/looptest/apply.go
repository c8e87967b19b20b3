package looptest

import (
	"context"
	"strings"

	"pulseloop/pulse"
)

// Apply writes a change as the database does, or nothing.
func (s *Store) Apply(_ context.Context, g pulse.Guard, c pulse.Change) error {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.holds(g, c); err != nil {
		return err
	}
	if g.Inbound != "" {
		s.handled[g.Inbound] = true
	}
	if c.Project != nil {
		s.projects[c.Project.ID] = *c.Project
	}
	if c.NewSession != nil {
		row := clone(*c.NewSession)
		row.Version = 1
		s.sessions[row.ID] = &row
	}
	if c.Session != nil {
		s.writeSession(*c.Session)
	}
	s.writeWork(c)
	s.writeWords(c)
	return nil
}

func (s *Store) holds(g pulse.Guard, c pulse.Change) error {
	if g.Inbound != "" && s.handled[g.Inbound] {
		return pulse.ErrDone
	}
	if c.Session != nil && g.SessionID != c.Session.ID {
		s.t.Fatalf("session %s is written without a guard", c.Session.ID)
	}
	if g.SessionID == "" {
		return nil
	}
	row, ok := s.sessions[g.SessionID]
	if !ok {
		return pulse.NotFound("there is no session "+string(g.SessionID), "")
	}
	if row.Version != g.Version || g.StepToken != "" && row.StepToken != g.StepToken {
		return pulse.ErrStale
	}
	return nil
}

func (s *Store) writeSession(n pulse.Session) {
	row := s.sessions[n.ID]
	if row.Status != n.Status && !pulse.SessionTransitions.Allows(row.Status, n.Status) {
		s.t.Fatalf("session goes from %s to %s", row.Status, n.Status)
	}
	version, seq := row.Version+1, row.EventSeq
	*row = clone(n)
	row.Version, row.EventSeq = version, seq
}

func (s *Store) writeWork(c pulse.Change) {
	for _, it := range c.Iterations {
		s.writeIteration(it)
	}
	for _, t := range c.Tasks {
		if _, ok := s.tasks[t.ID]; ok {
			s.t.Fatalf("task %s is queued twice", t.ID)
		}
		for _, other := range s.tasks {
			if other.SessionID == t.SessionID && !other.Status.Over() {
				s.t.Fatalf("session %s has two open tasks", t.SessionID)
			}
		}
		s.tasks[t.ID] = &t
	}
	for _, id := range c.Cancel {
		if !s.tasks[id].Status.Over() {
			s.moveTask(id, pulse.TaskCancelled)
		}
	}
	for _, g := range c.Gates {
		if old, ok := s.gates[g.ID]; ok {
			if err := pulse.GateTransitions.Check(old.Status, g.Status); err != nil {
				s.t.Fatalf("gate: %v", err)
			}
		}
		s.gates[g.ID] = &g
	}
}

func (s *Store) writeIteration(it pulse.Iteration) {
	list := s.iterations[it.SessionID]
	for i, old := range list {
		if old.ID != it.ID {
			continue
		}
		if err := pulse.IterationTransitions.Check(old.Status, it.Status); err != nil {
			s.t.Fatalf("iteration: %v", err)
		}
		list[i] = it
		return
	}
	s.iterations[it.SessionID] = append(list, it)
}

func (s *Store) writeWords(c pulse.Change) {
	for _, t := range c.Turns {
		var texts []string
		for _, m := range t.Messages {
			texts = append(texts, m.Text)
		}
		t.Turn.Text = strings.Join(texts, "\n")
		s.addTurn(t.Turn)
	}
	for _, e := range c.Events {
		row := s.sessions[e.SessionID]
		row.EventSeq++
		e.Seq = row.EventSeq
		s.events = append(s.events, e)
	}
	for _, n := range c.Notices {
		known := false
		for _, old := range s.notices {
			known = known || old.Address == n.Address && old.Slot == n.Slot
		}
		if !known {
			s.notices = append(s.notices, n)
		}
	}
	if c.Slice != nil {
		s.slices = append(s.slices, *c.Slice)
	}
}
