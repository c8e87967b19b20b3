package loop

import (
	"errors"
	"fmt"
	"time"

	"pulseloop/pulse"
	"pulseloop/pulse/extract"
)

// record turns a finished task into the iteration's outcome and decides how
// the session goes on.
func (r *Runner) record(s pulse.Session, it pulse.Iteration, task pulse.Task, now time.Time) (pulse.Change, error) {
	c := pulse.Change{Session: &s}
	res := task.Result
	if res == nil {
		res = &pulse.TaskResult{Error: lostReason(task), Hint: "resume the session to try again; `pulse logs` shows what the agent did"}
	}
	takeFacts(&s, &it, *res, now)
	failed := task.Status != pulse.TaskComplete || res.Error != ""
	if failed {
		it.Status, it.Error = pulse.IterationFailed, res.Error
	} else {
		r.readOutcome(&it)
	}
	c.Iterations = []pulse.Iteration{it}
	c.Events = append(c.Events, event(s.ID, pulse.EventIterationEnded, now, map[string]any{
		"iteration": it.Number, "iterationId": string(it.ID), "status": string(it.Status), "signal": string(it.Signal),
		"commit": it.CommitHash, "summary": it.OutputSummary, "error": it.Error}))
	if failed {
		s.ProgressLog = append(s.ProgressLog, pulse.ProgressEntry{Iteration: it.Number, Summary: "failed: " + res.Error,
			Commit: it.CommitHash, Commits: it.Commits, Sandbox: res.Sandbox, At: now})
		return c, r.fail(&s, &it, &c, res.Error, res.Hint, now)
	}
	s.ProgressLog = append(s.ProgressLog, pulse.ProgressEntry{Iteration: it.Number, Signal: it.Signal, Summary: it.OutputSummary,
		Commit: it.CommitHash, Commits: it.Commits, Note: it.SignalReason, Sandbox: res.Sandbox, At: now})
	err := r.branch(&s, &it, &c, now)
	r.log(s).Info("iteration recorded", "iteration", it.Number, "signal", string(it.Signal), "session_status", string(s.Status))
	return c, err
}

// lostReason says why a task ended without a result.
func lostReason(t pulse.Task) string {
	switch t.Status {
	case pulse.TaskDead:
		return fmt.Sprintf("the agent's daemon was lost %d times while it worked on this", t.Attempt)
	case pulse.TaskCancelled:
		return "the work was cancelled"
	default:
		return "the work ended without a result"
	}
}

// takeFacts copies what the daemon reported, and adds it to the totals.
func takeFacts(s *pulse.Session, it *pulse.Iteration, res pulse.TaskResult, now time.Time) {
	it.OutputFull, it.CommitHash, it.Commits, it.FilesChanged = res.FinalText, "", res.Commits, res.FilesChanged
	if res.Commits > 0 {
		it.CommitHash = res.Commit
	}
	it.Usage, it.TurnID, it.EndedAt = res.Usage, res.TurnID, now
	s.TotalCommits += int64(res.Commits)
	s.TotalTokens += res.Usage.Total()
	s.TotalCostMicros += res.Usage.CostMicros
	if res.Commit != "" {
		s.HeadCommit = res.Commit
	}
	if res.Daemon != "" {
		s.Daemon = res.Daemon
	}
	if res.TurnID != "" {
		s.LastTurnID = res.TurnID
	}
}

// readOutcome extracts signal, hint and summary from the final text.
func (r *Runner) readOutcome(it *pulse.Iteration) {
	v := extract.Signal(it.OutputFull)
	it.Status = pulse.IterationComplete
	it.Signal, it.SignalClaimed, it.SignalReason, it.SignalInferred = v.Signal, v.Claimed, v.Reason, v.Inferred
	it.OutputSummary = extract.Summary(it.OutputFull)
	if h, ok := extract.Hint(it.OutputFull); ok {
		it.AnchorHintNext, it.AnchorHintWhy = h.TurnID, h.Reason
	}
}

// branch decides by the signal how the session goes on.
func (r *Runner) branch(s *pulse.Session, it *pulse.Iteration, c *pulse.Change, now time.Time) error {
	s.LastSignal = it.Signal
	switch {
	case it.Signal == pulse.SignalBlocked:
		return r.openGate(s, it, c, pulse.Gate{Kind: pulse.GateQuestion, Prompt: it.SignalReason}, now)
	case it.Signal == pulse.SignalComplete && len(s.Inputs) == 0:
		if err := enter(s, c, pulse.SessionComplete, "", now); err != nil {
			return err
		}
		c.Events = append(c.Events, event(s.ID, pulse.EventSessionCompleted, now, map[string]any{
			"iterations": s.CurrentIteration, "commits": s.TotalCommits, "branch": s.BranchName}))
		tell(*s, c, pulse.NoticeFinal, "final:"+string(it.ID), r.words.Completed(*s, *it), now)
		return nil
	}
	// CONTINUE, or COMPLETE while a person has said something that no
	// prompt has carried yet: their words must not be lost.
	r.tellStep(*s, it, c, now)
	switch {
	case s.PauseRequested:
		if err := enter(s, c, pulse.SessionPaused, "paused after iteration "+fmt.Sprint(it.Number), now); err != nil {
			return err
		}
		tell(*s, c, pulse.NoticeFinal, "paused:"+string(it.ID), r.words.Paused(*s), now)
		return nil
	case s.CurrentIteration >= s.MaxIterations:
		return r.openLimit(s, c, it, now)
	}
	return enter(s, c, pulse.SessionRunning, "", now)
}

// tellStep tells that an iteration ended, a moment before whatever follows
// from it: messages go out in the order of their times.
func (r *Runner) tellStep(s pulse.Session, it *pulse.Iteration, c *pulse.Change, now time.Time) {
	switch {
	case s.PauseRequested:
		s.Status = pulse.SessionPaused
	case s.CurrentIteration >= s.MaxIterations:
		s.Status = pulse.SessionBlocked
	}
	tell(s, c, pulse.NoticeInfo, "iteration:"+string(it.ID), r.words.IterationDone(s, *it), now.Add(-time.Microsecond))
}

// openLimit asks whether the session may have more iterations.
func (r *Runner) openLimit(s *pulse.Session, c *pulse.Change, it *pulse.Iteration, now time.Time) error {
	return r.openGate(s, it, c, pulse.Gate{Kind: pulse.GateLimit,
		Prompt: fmt.Sprintf("All %d iterations are used and the goal is not reached yet.", s.MaxIterations),
		Options: []pulse.GateOption{
			{Key: ChoiceMore, Label: fmt.Sprintf("%d more", r.cfg.MaxIterations)}, {Key: ChoiceStop, Label: "Stop"}},
	}, now)
}

// openGate blocks the session until a person decides.
func (r *Runner) openGate(s *pulse.Session, it *pulse.Iteration, c *pulse.Change, g pulse.Gate, now time.Time) error {
	if err := enter(s, c, pulse.SessionBlocked, g.Prompt, now); err != nil {
		return err
	}
	g.ID, g.SessionID, g.Status, g.CreatedAt = pulse.GateID(pulse.NewUUID(now)), s.ID, pulse.GateOpen, now
	if it != nil {
		g.IterationID = it.ID
	}
	c.Gates = append(c.Gates, g)
	c.Events = append(c.Events, event(s.ID, pulse.EventGateOpened, now, map[string]any{
		"gateId": string(g.ID), "kind": string(g.Kind), "prompt": g.Prompt}))
	n := len(c.Notices)
	tell(*s, c, pulse.NoticeGate, "gate:"+string(g.ID), r.words.Blocked(*s, g), now)
	for i := n; i < len(c.Notices); i++ {
		c.Notices[i].GateID = g.ID
	}
	return nil
}

// fail ends the run with an error that a person is told.
func (r *Runner) fail(s *pulse.Session, it *pulse.Iteration, c *pulse.Change, reason, hint string, now time.Time) error {
	if reason == "" {
		return errors.New("fail a session: no reason given")
	}
	if err := enter(s, c, pulse.SessionFailed, reason, now); err != nil {
		return err
	}
	c.Events = append(c.Events, event(s.ID, pulse.EventSessionError, now, map[string]any{
		"error": reason, "hint": hint, "iteration": it.Number}))
	tell(*s, c, pulse.NoticeFinal, "failed:"+string(it.ID), r.words.Failed(*s, reason, hint), now)
	return nil
}
