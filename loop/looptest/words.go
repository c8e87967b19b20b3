package looptest

import (
	"fmt"
	"time"

	"pulseloop/pulse"
)

// Words is a plain wording: the kind of message, then what it is about.
type Words struct{}

// IterationDone is "continue N/M: summary".
func (Words) IterationDone(s pulse.Session, it pulse.Iteration) pulse.Message {
	return pulse.Text(fmt.Sprintf("continue %d/%d: %s", it.Number, s.MaxIterations, it.OutputSummary))
}

// Completed is "complete (iterations, commits)".
func (Words) Completed(s pulse.Session, _ pulse.Iteration) pulse.Message {
	return pulse.Text(fmt.Sprintf("complete (%d, %d)", s.CurrentIteration, s.TotalCommits))
}

// Blocked is "blocked: prompt".
func (Words) Blocked(_ pulse.Session, g pulse.Gate) pulse.Message {
	return pulse.Text("blocked: " + g.Prompt)
}

// Failed is "failed: reason | hint".
func (Words) Failed(_ pulse.Session, reason, hint string) pulse.Message {
	return pulse.Text("failed: " + reason + " | " + hint)
}

// Paused is "paused".
func (Words) Paused(pulse.Session) pulse.Message { return pulse.Text("paused") }

// Aborted is "aborted by name".
func (Words) Aborted(_ pulse.Session, by string) pulse.Message { return pulse.Text("aborted by " + by) }

// Unclaimed is "unclaimed for duration".
func (Words) Unclaimed(_ pulse.Session, waiting time.Duration) pulse.Message {
	return pulse.Text("unclaimed for " + waiting.String())
}
