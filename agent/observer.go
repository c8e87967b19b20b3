package agent

import (
	"log/slog"
	"reflect"
	"time"
)

// Bead is the piece of work that an observer is told of: an issue of the
// beads tracker, or, for a plain goal, the iteration with its goal.
type Bead struct {
	ID    string
	Title string
}

// Outcome is how work on a bead ended.
type Outcome string

const (
	OutcomeSuccess  Outcome = "success"
	OutcomeFailure  Outcome = "failure"
	OutcomeQuestion Outcome = "question"
	OutcomeTimeout  Outcome = "timeout"
)

// BeadResult is the end of work on one bead.
type BeadResult struct {
	Bead     Bead
	Outcome  Outcome
	Duration time.Duration
	ChatID   string // the agent CLI's own id of the conversation
	ExitCode int
	Error    string
}

// CoreResult sums up a whole run of the loop.
type CoreResult struct {
	Succeeded int
	Failed    int
	Questions int
	TimedOut  int
	Duration  time.Duration
}

// ToolEvent is the start or the end of a tool call of the agent. Common
// attributes are file_path, command and query.
type ToolEvent struct {
	ID         string
	Name       string
	Started    bool // true at the start, false at the end
	Timestamp  time.Time
	Attributes map[string]string
}

// ProgressObserver is told what an agent does, as it does it. The methods are
// called in order, one at a time, by what runs the work, so a slow observer
// slows the work down. What it is told holds no secrets.
type ProgressObserver interface {
	OnLoopStart(rootBead string)
	OnBeadStart(bead Bead)
	OnBeadComplete(result BeadResult)
	OnLoopEnd(result *CoreResult)
	OnToolStart(event ToolEvent)
	OnToolEnd(event ToolEvent)
}

// NoopObserver does nothing. Embed it to implement only some of the methods.
type NoopObserver struct{}

var _ ProgressObserver = NoopObserver{}

func (NoopObserver) OnLoopStart(string)        {}
func (NoopObserver) OnBeadStart(Bead)          {}
func (NoopObserver) OnBeadComplete(BeadResult) {}
func (NoopObserver) OnLoopEnd(*CoreResult)     {}
func (NoopObserver) OnToolStart(ToolEvent)     {}
func (NoopObserver) OnToolEnd(ToolEvent)       {}

// MultiObserver passes every call on to several observers. One that panics
// is logged and does not keep the others from being told.
type MultiObserver struct {
	observers []ProgressObserver
	log       *slog.Logger
}

// NewMultiObserver returns an observer of those that are not nil. A nil
// pointer in the interface counts as nil too: it is what a constructor that
// had nothing to construct gives.
func NewMultiObserver(observers ...ProgressObserver) *MultiObserver {
	m := &MultiObserver{log: slog.Default()}
	for _, o := range observers {
		if o == nil {
			continue
		}
		if v := reflect.ValueOf(o); v.Kind() == reflect.Pointer && v.IsNil() {
			continue
		}
		m.observers = append(m.observers, o)
	}
	return m
}

func (m *MultiObserver) each(call func(ProgressObserver)) {
	for _, o := range m.observers {
		m.guarded(o, call)
	}
}

func (m *MultiObserver) guarded(o ProgressObserver, call func(ProgressObserver)) {
	defer func() {
		if p := recover(); p != nil {
			m.log.Error("observer panicked", "panic", p)
		}
	}()
	call(o)
}

func (m *MultiObserver) OnLoopStart(root string) {
	m.each(func(o ProgressObserver) { o.OnLoopStart(root) })
}
func (m *MultiObserver) OnBeadStart(b Bead) { m.each(func(o ProgressObserver) { o.OnBeadStart(b) }) }
func (m *MultiObserver) OnBeadComplete(r BeadResult) {
	m.each(func(o ProgressObserver) { o.OnBeadComplete(r) })
}
func (m *MultiObserver) OnLoopEnd(r *CoreResult) {
	m.each(func(o ProgressObserver) { o.OnLoopEnd(r) })
}
func (m *MultiObserver) OnToolStart(e ToolEvent) {
	m.each(func(o ProgressObserver) { o.OnToolStart(e) })
}
func (m *MultiObserver) OnToolEnd(e ToolEvent) { m.each(func(o ProgressObserver) { o.OnToolEnd(e) }) }
