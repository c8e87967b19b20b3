package loop

import (
	"fmt"
	"time"

	"pulseloop/pulse"
)

func (c Config) limits() pulse.Limits {
	return pulse.Limits{Silence: c.SilenceLimit, Tool: c.ToolSilenceLimit, Total: c.IterationLimit}
}

// overtime is why a run has to end.
type overtime struct {
	reason string
	repeat bool // to send it out once more may help
}

// expiry is when a run will be over time, and why, if nothing more is heard
// of it; zero for a task that nobody runs. It counts on the clock that the
// signs were stored by: hosts' clocks need not agree.
func (r *Runner) expiry(t pulse.Task, now time.Time) (time.Time, overtime) {
	// A claim whose lease has ended is the reaper's; one that has not begun is
	// kept from going stale by its lease alone.
	if t.Status != pulse.TaskRunning || !t.LeaseUntil.IsZero() && !t.LeaseUntil.After(now) {
		return time.Time{}, overtime{}
	}
	began, last := t.StartedAt, t.LastSign
	if began.IsZero() {
		began = t.CreatedAt
	}
	if last.Before(began) {
		last = began
	}
	limits := r.cfg.limits()
	at, why := last.Add(limits.In(t.Phase)), overtime{reason: silence(t.Phase, limits.In(t.Phase)), repeat: true}
	if end := began.Add(limits.Total); limits.Total > 0 && end.Before(at) {
		return end, overtime{reason: fmt.Sprintf("the agent has worked for %s, which is the limit of an iteration", limits.Total)}
	}
	return at, why
}

func silence(p pulse.Phase, limit time.Duration) string {
	s := fmt.Sprintf("no sign of life from the agent for %s", limit)
	switch p {
	case pulse.PhaseStarting:
		return s + ": it has printed nothing since its start"
	case pulse.PhaseTool:
		return s + " while it ran a tool"
	}
	return s
}

// over reports whether the task's run is over time.
func (r *Runner) over(t pulse.Task, now time.Time) (overtime, bool) {
	now = onTheClockOf(t, now)
	at, why := r.expiry(t, now)
	return why, !at.IsZero() && !now.Before(at)
}

// nextLook is when to look at the session again: when its run will be over
// time, but not later than the shortest limit allows, because what the agent
// does, and with it the limit, changes without the session being told.
func (r *Runner) nextLook(t pulse.Task, now time.Time) time.Time {
	now = onTheClockOf(t, now)
	look := now.Add(r.cfg.SilenceLimit)
	if at, _ := r.expiry(t, now); !at.IsZero() && at.Before(look) {
		return at
	}
	return look
}

func onTheClockOf(t pulse.Task, now time.Time) time.Time {
	if t.ReadAt.IsZero() {
		return now
	}
	return t.ReadAt
}

// timeOut ends an iteration that is over time. After the first silence it is
// sent out once more; else a person is asked.
func (r *Runner) timeOut(s pulse.Session, it pulse.Iteration, task pulse.Task, why overtime, now time.Time) (pulse.Change, error) {
	c := pulse.Change{Session: &s, Cancel: []pulse.TaskID{task.ID}}
	it.Status, it.Error, it.EndedAt = pulse.IterationTimeout, why.reason, now
	c.Iterations = []pulse.Iteration{it}
	c.Events = append(c.Events, event(s.ID, pulse.EventIterationEnded, now, map[string]any{
		"iteration": it.Number, "iterationId": string(it.ID), "status": string(it.Status), "error": why.reason}))
	s.ProgressLog = append(s.ProgressLog, pulse.ProgressEntry{Iteration: it.Number, Summary: why.reason, At: now})
	r.log(s).Warn("iteration over time", "iteration", it.Number, "attempt", it.Attempt, "task", string(task.ID), "phase", string(task.Phase), "reason", why.reason)
	if why.repeat && it.Attempt < maxDispatches {
		s.DueAt = now
		return c, nil
	}
	prompt := fmt.Sprintf("Iteration %d: %s", it.Number, why.reason)
	if why.repeat {
		prompt += ", for the second time"
	}
	return c, r.openGate(&s, &it, &c, pulse.Gate{Kind: pulse.GateTimeout, Prompt: prompt + ".",
		Options: []pulse.GateOption{
			{Key: ChoiceRetry, Label: "Try again"}, {Key: ChoiceStop, Label: "Stop"}},
	}, now)
}
