package loop

import (
	"fmt"
	"time"

	"pulseloop/pulse"
)

// timeOut ends an iteration that gave no sign of life. The first time it is
// sent out once more; the second time a person is asked.
func (r *Runner) timeOut(s pulse.Session, it pulse.Iteration, task pulse.Task, now time.Time) (pulse.Change, error) {
	c := pulse.Change{Session: &s, Cancel: []pulse.TaskID{task.ID}}
	reason := fmt.Sprintf("no sign of life from the agent for %s", r.cfg.SilenceLimit)
	it.Status, it.Error, it.EndedAt = pulse.IterationTimeout, reason, now
	c.Iterations = []pulse.Iteration{it}
	c.Events = append(c.Events, event(s.ID, pulse.EventIterationEnded, now, map[string]any{
		"iteration": it.Number, "iterationId": string(it.ID), "status": string(it.Status), "error": reason}))
	s.ProgressLog = append(s.ProgressLog, pulse.ProgressEntry{Iteration: it.Number, Summary: reason, At: now})
	if it.Attempt < maxDispatches {
		s.DueAt = now
		return c, nil
	}
	return c, r.openGate(&s, &it, &c, pulse.Gate{Kind: pulse.GateTimeout,
		Prompt: fmt.Sprintf("Iteration %d gave no sign of life for %s, twice.", it.Number, r.cfg.SilenceLimit),
		Options: []pulse.GateOption{
			{Key: ChoiceRetry, Label: "Try again"}, {Key: ChoiceStop, Label: "Stop"}},
	}, now)
}
