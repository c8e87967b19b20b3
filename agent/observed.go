package agent

import (
	"cmp"
	"errors"
	"time"

	"pulseloop/pulse"
	"pulseloop/pulse/extract"
)

// observe makes the observer of this run. What observers do wrong is theirs.
func (r *run) observe() *MultiObserver {
	var o ProgressObserver
	if r.d.cfg.Observers != nil {
		func() {
			defer func() {
				if p := recover(); p != nil {
					r.log.Error("making an observer panicked", "panic", p)
				}
			}()
			o = r.d.cfg.Observers(r.task)
		}()
	}
	m := NewMultiObserver(o)
	m.log = r.log
	return m
}

// bead gives the bead of a plain goal's task.
func (r *run) bead() Bead {
	return Bead{ID: string(r.task.IterationID), Title: r.d.cfg.Redactor.String(cmp.Or(r.task.Spec.Goal, r.task.Spec.Subject))}
}

// observeEnd tells how the run ended. cause is why it was ended from outside,
// nil if it was not.
func (r *run) observeEnd(b Bead, res pulse.TaskResult, cause error, took time.Duration) {
	end := BeadResult{Bead: b, Duration: took, ChatID: res.Conversation, ExitCode: res.ExitCode, Error: res.Error}
	sum := CoreResult{Duration: took}
	switch {
	case errors.Is(cause, errCancelled) && r.rec.timedOut():
		end.Outcome, end.Error, sum.TimedOut = OutcomeTimeout, cause.Error(), 1
	case cause != nil:
		end.Outcome, end.Error, sum.Failed = OutcomeFailure, cause.Error(), 1
	case res.Error != "":
		end.Outcome, sum.Failed = OutcomeFailure, 1
	case extract.Signal(res.FinalText).Signal == pulse.SignalBlocked:
		end.Outcome, sum.Questions = OutcomeQuestion, 1
	default:
		end.Outcome, sum.Succeeded = OutcomeSuccess, 1
	}
	r.observer.OnBeadComplete(end)
	r.observer.OnLoopEnd(&sum)
}
