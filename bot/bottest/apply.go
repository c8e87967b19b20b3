package bottest

import (
	"context"
	"slices"
	"time"

	"pulseloop/pulse"
)

// Apply writes a change if its guard holds.
func (w *World) Apply(_ context.Context, g pulse.Guard, c pulse.Change) error {
	w.mu.Lock()
	before := w.before
	w.before = nil
	w.mu.Unlock()
	if before != nil {
		before()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failNext) > 0 {
		err := w.failNext[0]
		w.failNext = w.failNext[1:]
		return err
	}
	l, err := w.guard(g, c)
	if err != nil {
		return err
	}
	if err := w.transitions(c); err != nil {
		return err
	}
	if l != nil {
		l.handled = true
	}
	w.applied++
	w.write(c)
	return nil
}

func (w *World) guard(g pulse.Guard, c pulse.Change) (*letter, error) {
	var l *letter
	if g.Inbound != "" {
		i := slices.IndexFunc(w.inbound, func(l *letter) bool { return l.in.ID == g.Inbound })
		if i < 0 {
			w.t.Errorf("a guard names update %s, which was never received", g.Inbound)
			return nil, pulse.ErrDone
		}
		if l = w.inbound[i]; l.handled {
			return nil, pulse.ErrDone
		}
	}
	if g.SessionID != "" && (w.sessions[g.SessionID] == nil || w.sessions[g.SessionID].Version != g.Version) {
		return nil, pulse.ErrStale
	}
	if c.UsedCode != "" {
		k := w.codes[c.UsedCode]
		if k == nil || k.used || !w.clock().Before(k.ExpiresAt) {
			return nil, pulse.ErrStale
		}
		k.used = true
	}
	return l, nil
}

func (w *World) transitions(c pulse.Change) error {
	if c.Session != nil {
		old := w.sessions[c.Session.ID]
		if old == nil {
			w.t.Errorf("update of session %s, which does not exist", c.Session.ID)
			return pulse.ErrStale
		}
		if old.Status != c.Session.Status {
			if err := pulse.SessionTransitions.Check(old.Status, c.Session.Status); err != nil {
				return err
			}
		}
	}
	for _, g := range c.Gates {
		if old, ok := w.gates[g.ID]; ok && old.Status != g.Status {
			if err := pulse.GateTransitions.Check(old.Status, g.Status); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *World) write(c pulse.Change) {
	if c.Project != nil {
		w.projects = append(w.projects, *c.Project)
	}
	for _, s := range []*pulse.Session{c.NewSession, c.Session} {
		if s == nil {
			continue
		}
		n := clone(*s)
		if old := w.sessions[s.ID]; old == nil {
			w.order = append(w.order, s.ID)
		} else {
			n.Version = old.Version
		}
		n.Version++
		w.sessions[s.ID] = &n
	}
	for _, it := range c.Iterations {
		i := slices.IndexFunc(w.its[it.SessionID], func(o pulse.Iteration) bool { return o.ID == it.ID })
		if i < 0 {
			w.its[it.SessionID] = append(w.its[it.SessionID], it)
		} else {
			w.its[it.SessionID][i] = it
		}
	}
	for _, k := range c.Tasks {
		w.tasks[k.ID] = k
	}
	for _, g := range c.Gates {
		w.gates[g.ID] = g
	}
	if c.Channel != nil {
		w.channels[c.Channel.Address] = *c.Channel
	}
	if c.Operator != nil {
		w.operators = append(w.operators, *c.Operator)
	}
	if c.NewCode != nil {
		w.codes[c.NewCode.Hash] = &code{PairingCode: *c.NewCode}
	}
	w.audit = append(w.audit, c.Audit...)
	for _, n := range c.Notices {
		w.notice(n)
	}
}

func (w *World) notice(n pulse.Notice) {
	switch {
	case n.ID == "" || n.Slot == "" || n.Kind == "" || n.Address.Zero():
		w.t.Errorf("notice without id, slot, kind or address: %+v", n)
	case n.Message.Plain() == "":
		w.t.Errorf("notice %s has no text", n.Slot)
	}
	for _, row := range n.Message.Buttons {
		for _, b := range row {
			if b.Label == "" || b.Data == "" || len(b.Data) > 64 {
				w.t.Errorf("notice %s: button %q has %d bytes of data", n.Slot, b.Label, len(b.Data))
			}
		}
	}
	if slices.ContainsFunc(w.notices, func(o pulse.Notice) bool { return o.Slot == n.Slot && o.Address == n.Address }) {
		return
	}
	w.notices = append(w.notices, n)
}

// The methods below, with Apply, are what the use cases of sessions ask of their store.

// Session reads one session.
func (w *World) Session(_ context.Context, id pulse.SessionID) (pulse.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sessions[id]; s != nil {
		return clone(*s), nil
	}
	return pulse.Session{}, pulse.NotFound("there is no session "+string(id), "")
}

// Take never has anything due: nothing runs sessions here.
func (w *World) Take(context.Context, string, time.Duration) (pulse.Session, time.Time, error) {
	return pulse.Session{}, time.Time{}, pulse.ErrNone
}

// CurrentIteration reads the latest iteration of a session.
func (w *World) CurrentIteration(_ context.Context, id pulse.SessionID) (pulse.Iteration, pulse.Task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if its := w.its[id]; len(its) > 0 {
		it := its[len(its)-1]
		return it, w.tasks[it.TaskID], nil
	}
	return pulse.Iteration{}, pulse.Task{}, pulse.ErrNone
}

// OpenGate reads the open gate of a session.
func (w *World) OpenGate(_ context.Context, id pulse.SessionID) (pulse.Gate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.gates {
		if g.SessionID == id && g.Status == pulse.GateOpen {
			return g, nil
		}
	}
	return pulse.Gate{}, pulse.ErrNone
}

// Project reads a project.
func (w *World) Project(_ context.Context, id pulse.ProjectID) (pulse.Project, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.projects {
		if p.ID == id {
			return p, nil
		}
	}
	return pulse.Project{}, pulse.NotFound("there is no such project", "")
}

// ProjectByName reads a project by the name people type.
func (w *World) ProjectByName(_ context.Context, name string) (pulse.Project, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.projects {
		if p.Name == name {
			return p, nil
		}
	}
	return pulse.Project{}, pulse.NotFound("there is no such project", "")
}
