package apitest

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"pulseloop/loop"
	"pulseloop/pulse"
)

// Start implements loop.Doer.
func (w *World) Start(_ context.Context, r loop.StartRequest) (pulse.Session, error) {
	if r.Goal == "" || r.Project.ID == "" || r.Origin == "" {
		panic("apitest: Start without goal, project or origin")
	}
	if r.MaxIterations == 0 {
		r.MaxIterations = 10
	}
	s := w.AddSession(pulse.Session{
		ProjectID: r.Project.ID, ProjectName: r.Project.Name, Goal: r.Goal, Status: pulse.SessionPending, MaxIterations: r.MaxIterations,
		BranchName: r.BranchName, AnchorTurnID: r.AnchorTurnID, ContextStrategy: r.ContextStrategy, Agent: r.Agent, CreatedBy: r.Origin,
		ChatID: r.ChatID, PhoneNumber: r.PhoneNumber, DiscordThreadID: r.DiscordThreadID,
	})
	w.Emit(s.ID, pulse.Event{Type: pulse.EventSessionStarted, Data: map[string]any{"goal": s.Goal}})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("start %s by %s", r.Goal, r.Origin)
	return *w.session(s.ID), nil
}

// to changes a session's status as the table of states allows.
func (w *World) to(a loop.Actor, id pulse.SessionID, to pulse.SessionStatus, verb string) (pulse.Session, error) {
	if a.Origin == "" || a.Name == "" {
		panic("apitest: " + verb + " by nobody")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.session(id)
	if err := pulse.SessionTransitions.Check(s.Status, to); err != nil {
		return *s, err
	}
	s.Status, s.StatusReason = to, ""
	w.note("%s %s by %s", verb, pulse.Short(id), a.Name)
	w.append(id, pulse.Event{Type: pulse.EventSessionChanged, Data: map[string]any{"status": string(to)}})
	return *s, nil
}

// Pause implements loop.Doer.
func (w *World) Pause(_ context.Context, a loop.Actor, id pulse.SessionID) (pulse.Session, error) {
	defer w.Wake()
	return w.to(a, id, pulse.SessionPaused, "pause")
}

// Resume implements loop.Doer.
func (w *World) Resume(_ context.Context, a loop.Actor, id pulse.SessionID, text string) (pulse.Session, error) {
	defer w.Wake()
	return w.to(a, id, pulse.SessionRunning, strings.TrimSpace("resume "+text))
}

// Abort implements loop.Doer.
func (w *World) Abort(_ context.Context, a loop.Actor, id pulse.SessionID) (pulse.Session, error) {
	defer w.Wake()
	return w.to(a, id, pulse.SessionAborted, "abort")
}

// Answer implements loop.Doer.
func (w *World) Answer(_ context.Context, a loop.Actor, id pulse.SessionID, gate pulse.GateID, choice, text string) (pulse.Session, error) {
	defer w.Wake()
	w.mu.Lock()
	g, open := w.gates[id]
	if open && (gate == "" || gate == g.ID) {
		delete(w.gates, id)
	}
	w.mu.Unlock()
	if !open {
		return pulse.Session{}, pulse.Conflict("no question is open", "see its status")
	}
	if gate != "" && gate != g.ID {
		return pulse.Session{}, pulse.Conflict("that question is closed", "another one is open")
	}
	return w.to(a, id, pulse.SessionRunning, strings.TrimSpace("answer "+choice+" "+text))
}

// Say implements loop.Doer.
func (w *World) Say(ctx context.Context, a loop.Actor, id pulse.SessionID, text string) (loop.Said, error) {
	w.mu.Lock()
	_, open := w.gates[id]
	status := w.session(id).Status
	w.mu.Unlock()
	as := pulse.InputGuidance
	if open {
		as = pulse.InputAnswer
	} else if status == pulse.SessionComplete {
		as = pulse.InputFollowUp
	}
	w.mu.Lock()
	delete(w.gates, id)
	w.mu.Unlock()
	s, err := w.to(a, id, pulse.SessionRunning, "say "+text)
	return loop.Said{Session: s, As: as}, err
}

// Register implements api.Registrar: paths under the allowed roots only.
func (w *World) Register(_ context.Context, name, path string) (pulse.Project, error) {
	path = filepath.Clean(path)
	w.mu.Lock()
	for _, p := range w.projects {
		if p.Path == path {
			defer w.mu.Unlock()
			return p, nil
		}
	}
	allowed := false
	for _, root := range w.roots {
		allowed = allowed || strings.HasPrefix(path, root+"/")
	}
	w.mu.Unlock()
	if !allowed {
		return pulse.Project{}, &pulse.Error{Code: pulse.CodeUnprocessed, Message: path + " is not under an allowed root", Hint: "set PULSE_ALLOWED_ROOTS"}
	}
	return w.AddProject(name, path), nil
}

// NewCode implements api.Pairer.
func (w *World) NewCode(_ context.Context, role pulse.OperatorRole) (string, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("pair %s", role)
	return "ABCD-EFGH-JKLM", w.Now.Add(10 * time.Minute), nil
}
