package notify

import (
	"time"

	"pulseloop/pulse"
)

// Unclaimed tells that a session's work waits and nobody takes it: said once,
// because silence looks like work.
func (Words) Unclaimed(s pulse.Session, waiting time.Duration) pulse.Message {
	var m message
	m.line("⏳ [%s] Waiting: no agent daemon has taken iteration %d/%d for %d minutes.", project(s), s.CurrentIteration, s.MaxIterations, int(waiting.Minutes()))
	m.line("It starts by itself as soon as one is there and free (`pulse up`, or `pulse daemon` beside the code).")
	m.span("To stop waiting: ", pulse.StylePlain)
	m.span("/abort "+pulse.Short(s.ID), pulse.StyleCode)
	return m.done()
}
