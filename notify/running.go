package notify

import (
	"fmt"
	"strings"
	"time"

	"pulseloop/pulse"
)

// shownTools is how many of the latest steps a live message lists.
const shownTools = 4

// running is what a live message says of the current iteration.
type running struct {
	seen      int64 // last event folded in
	iteration string
	number    int
	started   time.Time
	last      time.Time // of the latest event
	tools     int
	failed    int
	recent    []step
	note      string // the agent's program tries again, is limited: until its next step
	changes   int    // grows with every event that changes the message
	shown     string // the iteration a message was written for
	wrote     time.Time
}

type step struct {
	call, text string
	status     pulse.ToolStatus
}

// fold takes an event in. When it ends the iteration, the state as it was at
// the end is answered, once; r then describes no iteration.
func (r *running) fold(e pulse.Event) *running {
	r.seen = e.Seq
	switch e.Type {
	case pulse.EventIterationStarted:
		ended := r.end(e.At)
		number := number(e.Data, "iterationNumber", "iteration", "number", "iteration_number")
		id := text(e.Data, "iterationId", "iteration_id", "id")
		if id == "" {
			id = fmt.Sprintf("%s/%d/%d", e.SessionID, number, e.Seq)
		}
		*r = running{seen: e.Seq, iteration: id, number: number, started: e.At, last: e.At,
			changes: r.changes + 1, shown: r.shown, wrote: r.wrote}
		return ended
	case pulse.EventToolStarted, pulse.EventToolCompleted:
		if r.iteration != "" {
			r.last, r.note = e.At, ""
			r.tool(e)
		}
	case pulse.EventTurnNote:
		if note := oneLine(text(e.Data, "text"), 160); r.iteration != "" && note != "" && note != r.note {
			r.last, r.note = e.At, note
			r.changes++
		}
	case pulse.EventIterationEnded, pulse.EventSessionCompleted, pulse.EventSessionError:
		return r.end(e.At)
	case pulse.EventSessionChanged:
		if status := text(e.Data, "status"); status != "" && status != string(pulse.SessionRunning) {
			return r.end(e.At)
		}
	}
	return nil
}

func (r *running) end(at time.Time) *running {
	if r.iteration == "" {
		return nil
	}
	ended := *r
	ended.last = at
	*r = running{seen: r.seen, changes: r.changes + 1, shown: r.shown, wrote: r.wrote}
	return &ended
}

func (r *running) tool(e pulse.Event) {
	name := text(e.Data, "name", "tool", "toolName")
	label := text(e.Data, "summary")
	switch {
	case label == "":
		label = name
	case name != "" && !strings.HasPrefix(strings.ToLower(label), strings.ToLower(name)):
		label = name + " " + label
	}
	st := step{call: text(e.Data, "callId", "call_id", "toolCallId", "id"), text: oneLine(label, 80), status: pulse.ToolRunning}
	if e.Type == pulse.EventToolCompleted {
		st.status = pulse.ToolCompleted
		if text(e.Data, "status") == string(pulse.ToolFailed) {
			st.status = pulse.ToolFailed
			r.failed++
		}
	} else {
		r.tools++
	}
	r.changes++
	for i := range r.recent {
		if old := &r.recent[i]; old.call != "" && old.call == st.call {
			old.status = st.status
			if st.text != "" && old.text == "" {
				old.text = st.text
			}
			return
		}
	}
	if st.status != pulse.ToolRunning {
		return // the end of a step that scrolled away
	}
	r.recent = append(r.recent[max(0, len(r.recent)-shownTools+1):len(r.recent):len(r.recent)], st)
}

// form is the live message while the agent works.
func (r *running) form(s pulse.Session, now time.Time) pulse.Message {
	var m message
	head := fmt.Sprintf("⚙️ [%s] Iteration %s · %s", project(s), r.place(s), elapsed(max(0, now.Sub(r.started))))
	if r.tools > 0 {
		head += " · " + count(int64(r.tools), "step")
	}
	m.line("%s", head)
	if len(r.recent) == 0 {
		m.line("the agent is at work")
	}
	for _, st := range r.recent {
		m.line("%s %s", mark(st.status), st.text)
	}
	if r.note != "" {
		m.line("… %s", r.note)
	}
	return m.done()
}

// closedForm is what stays of the live message when the iteration is over.
// The outcome itself is a message of its own.
func (r *running) closedForm(s pulse.Session) pulse.Message {
	var m message
	head := fmt.Sprintf("%s [%s] Iteration %s ended after %s", closedMark, project(s), r.place(s), elapsed(max(0, r.last.Sub(r.started))))
	if r.tools > 0 {
		head += " · " + count(int64(r.tools), "step")
	}
	if r.failed > 0 {
		head += fmt.Sprintf(" (%d failed)", r.failed)
	}
	m.line("%s", head)
	return m.done()
}

func (r *running) place(s pulse.Session) string {
	n := r.number
	if n == 0 {
		n = s.CurrentIteration
	}
	return fmt.Sprintf("%d/%d", n, s.MaxIterations)
}

func mark(s pulse.ToolStatus) string {
	switch s {
	case pulse.ToolCompleted:
		return "✓"
	case pulse.ToolFailed:
		return "✗"
	}
	return "▸"
}

// text and number read the first of the names that is there: events of
// several writers say the same thing, and JSON makes every number a float.
func text(data map[string]any, names ...string) string {
	for _, n := range names {
		switch v := data[n].(type) {
		case string:
			if v != "" {
				return v
			}
		case fmt.Stringer:
			return v.String()
		}
	}
	return ""
}

func number(data map[string]any, names ...string) int {
	for _, n := range names {
		switch v := data[n].(type) {
		case int:
			return v
		case int64:
			return int(v)
		case float64:
			return int(v)
		}
	}
	return 0
}

// closedMark opens the closed form of a live message, and nothing else.
const closedMark = "▪️"

// Closed reports whether a live message has reached its last form: a screen
// that shows it in place can take it away.
func Closed(n pulse.Notice) bool {
	return n.Kind == pulse.NoticeProgress && strings.HasPrefix(n.Message.Plain(), closedMark)
}
