package agent

import (
	"testing"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

func TestBusy(t *testing.T) {
	const in = 10 * time.Second
	for _, c := range []struct {
		name string
		work proc.Work
		want bool
	}{
		{"nothing", proc.Work{}, false},
		{"timers of a runtime", proc.Work{CPU: 80 * time.Millisecond, Bytes: 1000}, false},
		{"the same among many", proc.Work{CPU: 80 * time.Millisecond, Bytes: 1000, Starved: 3 * time.Second}, false},
		{"work", proc.Work{CPU: 200 * time.Millisecond}, true},
		{"copying", proc.Work{Bytes: 200_000}, true},
		{"work that gets a tenth of a processor", proc.Work{CPU: 60 * time.Millisecond, Starved: 8 * time.Second}, true},
		{"copying that gets a tenth of a processor", proc.Work{Bytes: 20_000, Starved: 9 * time.Second}, true},
		{"work that gets nothing", proc.Work{Starved: in}, true},
		{"a clock that lags behind", proc.Work{CPU: 10 * time.Millisecond, Starved: 11 * time.Second}, true},
	} {
		if got := busy(c.work, in); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Output is a sign first and understood a moment later. When the sign was
// stored in between, the phase still has to be: an agent whose tool has just
// begun would be judged as one that thinks.
func TestPhaseIsStoredThoughItsSignWas(t *testing.T) {
	var v vitals
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v.phase = pulse.PhaseThinking
	v.sign(at)
	v.unsaved = time.Time{} // stored
	v.said(cli.EventToolStart, 1)
	if v.phase != pulse.PhaseTool || !v.unsaved.Equal(at) {
		t.Errorf("phase %q, to be stored with the sign of %v", v.phase, v.unsaved)
	}
	v.unsaved = time.Time{}
	if v.said(cli.EventToolStart, 2); !v.unsaved.IsZero() {
		t.Error("nothing new is stored again")
	}
}
