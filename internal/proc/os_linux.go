package proc

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes: a session of its own rather than only a group, because a child
// of a background group that touches the terminal would be stopped, and
// because the session id outlives the job control of a shell in between.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd waits for the child's end and leaves it to be reaped.
func (p *Process) awaitEnd() {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (p *Process) reap() error {
	p.idMu.Lock()
	defer p.idMu.Unlock()
	err := p.cmd.Wait()
	p.reaped = true
	household.remove(p)
	return err
}

func forkAndRegister(p *Process) error { return household.add(p) }
