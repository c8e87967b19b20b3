//go:build unix

package proc

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sigInterrupt = syscall.SIGINT
	sigTerminate = syscall.SIGTERM
	sigContinue  = syscall.SIGCONT
	sigKill      = syscall.SIGKILL
)

const (
	killPoll  = 20 * time.Millisecond
	killBound = 3 * time.Second
)

// signal reaches the child's group.
func (p *Process) signal(sig syscall.Signal) {
	p.idMu.RLock()
	defer p.idMu.RUnlock()
	if !p.reaped {
		_ = syscall.Kill(-p.pid, sig)
	}
}

func exitOf(state *os.ProcessState, waitErr error, stderr string) Exit {
	e := Exit{Code: -1, Stderr: stderr}
	var status *exec.ExitError
	if waitErr != nil && !errors.As(waitErr, &status) {
		e.Err = waitErr
		return e
	}
	e.Code = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = unix.SignalName(ws.Signal())
	}
	return e
}

// FreeDisk is how many bytes may still be written where dir lies.
func FreeDisk(dir string) (uint64, error) {
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	return fs.Bavail * uint64(fs.Bsize), err
}
