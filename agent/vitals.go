package agent

import (
	"time"

	"pulseloop/agent/cli"
	"pulseloop/pulse"
)

// vitals is what is known of a run's life: what it does, and when it last
// gave a sign. The recorder's lock guards it.
type vitals struct {
	phase   pulse.Phase
	last    time.Time // last sign of life
	unsaved time.Time // a sign that is not stored yet
	outputs int64     // how often something was printed
}

func (v *vitals) sign(now time.Time) { v.last, v.unsaved = now, now }

// said notes what the agent does by what it said last. A result may be
// followed by more: then it was not the end.
func (v *vitals) said(kind cli.EventKind, openTools int) {
	before := v.phase
	// The sign that the same output was may have been stored just before. The
	// phase has to be stored too: whether a silence is too long hangs on it.
	defer func() {
		if v.phase != before && v.unsaved.IsZero() {
			v.unsaved = v.last
		}
	}()
	switch {
	case kind == cli.EventResult:
		v.phase = pulse.PhaseEnding
	case kind == cli.EventStarted || kind == cli.EventUsage || kind == cli.EventNote: // these say nothing of what it does
	case openTools > 0:
		v.phase = pulse.PhaseTool
	default:
		v.phase = pulse.PhaseThinking
	}
}

// sign notes that the agent printed something.
func (r *recorder) sign() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut { // the last cry of one that is being ended is none
		return
	}
	r.vital.sign(r.r.d.cfg.Clock().UTC())
	r.vital.outputs++
	if r.vital.phase == pulse.PhaseStarting {
		r.vital.phase = pulse.PhaseThinking
	}
}

// busy notes that the agent's processes work, though nothing is printed.
func (r *recorder) busy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.shut {
		r.vital.sign(r.r.d.cfg.Clock().UTC())
	}
}

// heard counts outputs.
func (r *recorder) heard() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.vital.outputs
}

// timedOut reports whether the run has been without a sign of life for as
// long as it may.
func (r *recorder) timedOut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	spec := r.r.task.Spec
	limit := pulse.Limits{Silence: spec.SilenceLimit, Tool: spec.ToolSilenceLimit}.In(r.vital.phase)
	return spec.SilenceLimit > 0 && r.r.d.cfg.Clock().Sub(r.vital.last) >= limit
}
