package agent

import (
	"context"
	"time"

	"pulseloop/internal/proc"
)

// How much an agent's processes must do to count as busy, of the time since
// they were looked at last. It is more than what a runtime with timers, or a
// loop that waits by sleeping, does while nothing goes on.
const (
	busyShare = 50       // one part in so many of one processor
	busyBytes = 16 << 10 // read and written, a second
)

// Bounds of how often the processes of a silent agent are looked at.
const (
	mostOften  = 100 * time.Millisecond
	leastOften = 10 * time.Second
)

// lookEvery is often enough for a limit: a run that becomes busy again late
// has many chances of being seen.
func lookEvery(limit time.Duration) time.Duration {
	if limit <= 0 {
		return leastOften
	}
	return min(max(limit/20, mostOften), leastOften)
}

// watch looks at what the agent's processes do while it prints nothing, and
// notes work as a sign of life. It decides nothing: how long a run may be
// without a sign is loop's matter. The function that it gives ends it.
func (r *run) watch(ctx context.Context, child *proc.Process) (stop func()) {
	every := lookEvery(r.task.Spec.SilenceLimit)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		meter, last, heard := child.Meter(), time.Now(), int64(-1)
		for {
			select {
			case <-quit:
				return
			case <-ctx.Done():
				return
			case <-child.Done():
				return
			case <-tick.C:
			}
			if n := r.rec.heard(); n != heard { // output is sign enough, and cheaper
				heard = n
				meter.Forget()
				continue
			}
			now := time.Now()
			work, ok := meter.Work()
			if ok && busy(work, now.Sub(last)) {
				r.rec.busy()
			}
			last = now
		}
	}()
	return func() { close(quit); <-ended }
}

// busy reports whether that is more than idling. What the agent was kept from
// running is taken off: on a machine where many want a processor, one that
// works gets little of it, and is no less alive. One that was kept from it
// all the time wants to work.
func busy(w proc.Work, in time.Duration) bool {
	could := max(0, in-w.Starved)
	return w.CPU+w.Starved > 0 && w.CPU >= could/busyShare || w.Bytes >= int64(busyBytes*could.Seconds())
}
