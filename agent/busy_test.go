package agent

import (
	"testing"
	"time"

	"pulseloop/internal/proc"
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
