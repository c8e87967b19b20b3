package pulse

import "time"

// Phase says what an agent's run is doing, as far as its daemon can tell. How
// long it may stay without a sign of life depends on it.
type Phase string

const (
	PhasePreparing Phase = ""         // the worktree is made ready, or nothing is known yet
	PhaseStarting  Phase = "starting" // the agent runs and has printed nothing
	PhaseThinking  Phase = "thinking" // between two things that the agent says
	PhaseTool      Phase = "tool"     // one of its tools runs
	PhaseEnding    Phase = "ending"   // it has given its result; the work is being saved
)

// Phases lists every phase in the order of a run.
func Phases() []Phase {
	return []Phase{PhasePreparing, PhaseStarting, PhaseThinking, PhaseTool, PhaseEnding}
}

// Limits bound an iteration. A sign of life is output of the agent, or CPU
// time or I/O of any of its processes.
type Limits struct {
	Silence time.Duration // without a sign while the agent itself has the word
	Tool    time.Duration // without a sign while a tool runs; never less than Silence
	Total   time.Duration // from begin to end, however lively; 0: no bound
}

// minDaemon is what a daemon may always have for its own work around a run:
// it bounds that itself, and the end of a lease what it does not.
const minDaemon = 2 * time.Minute

// In is how long a run may be without a sign of life in a phase.
func (l Limits) In(p Phase) time.Duration {
	switch p {
	case PhaseStarting, PhaseThinking:
		return l.Silence
	case PhaseTool:
		return max(l.Silence, l.Tool)
	}
	return max(l.Silence, l.Tool, minDaemon)
}
