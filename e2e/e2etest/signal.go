package e2etest

import (
	"os"
	"syscall"
	"time"
)

// Signal sends the running program a signal.
func (p *Pulse) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(p.run.pid, s); err != nil {
		p.t.Fatalf("signal the program: %v", err)
	}
}

// Running reports whether the program was started and neither Stop nor Kill ended it.
func (p *Pulse) Running() bool { return p.run != nil }

// Ended is closed when the running program has ended by itself.
func (p *Pulse) Ended() <-chan struct{} { return p.run.done }

// Gone waits until the program has ended by itself, after a signal say, and gives how. It is nil when it did not end in time.
func (p *Pulse) Gone(limit time.Duration) *os.ProcessState {
	p.t.Helper()
	r := p.run
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.done:
		p.run = nil
		return r.exit
	case <-timer.C:
		return nil
	}
}

// Forget drops what all but the last few starts have printed, for tests that start the program very often.
func (p *Pulse) Forget(keep int) {
	if n := len(p.runs) - keep; n > 0 {
		p.runs = append([]*run(nil), p.runs[n:]...)
	}
}

// Pid is the running program's.
func (p *Pulse) Pid() int { return p.run.pid }
