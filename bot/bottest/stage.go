package bottest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// AddProject makes a project.
func (w *World) AddProject(name string) pulse.Project {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := pulse.Project{ID: pulse.ProjectID(pulse.NewUUID(w.clock())), Name: name, Path: "/src/" + name}
	w.projects = append(w.projects, p)
	return p
}

// AddOperator makes a person known.
func (w *World) AddOperator(p pulse.Platform, userID, name string, role pulse.OperatorRole) pulse.Operator {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := pulse.Operator{ID: pulse.OperatorID(pulse.NewUUID(w.clock())), Platform: p, UserID: userID, Name: name, Role: role}
	w.operators = append(w.operators, o)
	return o
}

// AddCode stores a pairing code.
func (w *World) AddCode(pc pulse.PairingCode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.codes[pc.Hash] = &code{PairingCode: pc}
}

// Operators lists who is known.
func (w *World) Operators() []pulse.Operator {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.operators)
}

// AllSessions lists the sessions, oldest first.
func (w *World) AllSessions() []pulse.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pulse.Session
	for _, id := range w.order {
		out = append(out, clone(*w.sessions[id]))
	}
	return out
}

// Change changes a stored session by hand, as the runner would.
func (w *World) Change(id pulse.SessionID, f func(*pulse.Session)) pulse.Session {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sessions[id]
	if s == nil {
		w.t.Errorf("there is no session %s", id)
		return pulse.Session{}
	}
	f(s)
	s.Version++
	return clone(*s)
}

// AddIteration adds an iteration to a session.
func (w *World) AddIteration(it pulse.Iteration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.its[it.SessionID] = append(w.its[it.SessionID], it)
}

// Block makes a session wait for a decision, and the message that asks for it
// appear in the session's places. It answers the gate and the message's id.
func (w *World) Block(id pulse.SessionID, prompt string, options ...pulse.GateOption) (pulse.Gate, string) {
	w.t.Helper()
	s := w.Change(id, func(s *pulse.Session) { s.Status, s.StatusReason = pulse.SessionBlocked, prompt })
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock()
	g := pulse.Gate{ID: pulse.GateID(pulse.NewUUID(now)), SessionID: id, Kind: pulse.GateQuestion, Prompt: prompt, Options: options,
		Status: pulse.GateOpen, CreatedAt: now}
	if len(options) > 0 {
		g.Kind = pulse.GateLimit
	}
	w.gates[g.ID] = g
	for _, a := range s.Addresses() {
		w.notice(pulse.Notice{ID: pulse.NoticeID(pulse.NewUUID(now)), Address: a, Slot: "gate:" + string(g.ID), Kind: pulse.NoticeGate,
			SessionID: id, GateID: g.ID, ExternalID: "gate-" + string(g.ID), Message: pulse.Text("Blocked: " + prompt)})
	}
	return g, "gate-" + string(g.ID)
}

// Notices lists what was said to an address so far, oldest first.
func (w *World) Notices(a pulse.Address) []pulse.Notice {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pulse.Notice
	for _, n := range w.notices {
		if n.Address == a {
			out = append(out, n)
		}
	}
	return out
}

// Last is the latest message to an address; the zero Notice if there is none.
func (w *World) Last(a pulse.Address) pulse.Notice {
	all := w.Notices(a)
	if len(all) == 0 {
		return pulse.Notice{}
	}
	return all[len(all)-1]
}

// Sent gives every message that has none an id, as a platform does.
func (w *World) Sent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.notices {
		if w.notices[i].ExternalID == "" {
			w.notices[i].ExternalID = fmt.Sprintf("sent-%d", i)
		}
	}
}

// Audit lists the record of who did what.
func (w *World) Audit() []pulse.AuditEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.audit)
}

// Applied is how many changes were written.
func (w *World) Applied() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applied
}

// FailApply makes the next writes fail, each with one of the errors.
func (w *World) FailApply(errs ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failNext = append(w.failNext, errs...)
}

// BeforeApply runs f once, before the next write: what happens in between.
func (w *World) BeforeApply(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = f
}

// Platform is what a platform can do besides carrying messages: it records
// acknowledged presses and opens topics.
type Platform struct {
	mu     sync.Mutex
	acks   []string
	titles []string
	Err    error // of opening a topic
	No     bool  // the place has no topics
	Panic  bool  // of acknowledging
}

var (
	_ bot.Acknowledger = (*Platform)(nil)
	_ bot.TopicMaker   = (*Platform)(nil)
)

// Acknowledge implements bot.Acknowledger.
func (p *Platform) Acknowledge(_ context.Context, e bot.Event, text string) {
	if p.Panic {
		panic("an acknowledger that panics")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acks = append(p.acks, e.CallbackID+": "+text)
}

// Acks lists the acknowledged presses.
func (p *Platform) Acks() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.acks)
}

// OpenTopic implements bot.TopicMaker.
func (p *Platform) OpenTopic(_ context.Context, in pulse.Address, title string) (pulse.Address, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Err != nil || p.No {
		return pulse.Address{}, false, p.Err
	}
	p.titles = append(p.titles, title)
	in.Thread = fmt.Sprint(len(p.titles))
	return in, true, nil
}

// Titles lists the topics that were opened.
func (p *Platform) Titles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.titles)
}
