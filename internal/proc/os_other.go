//go:build unix && !linux

package proc

import "syscall"

// family has no members outside the group here: there is no /proc to find
// them in.
type family struct{ waitErr error }

func (*Process) learnFamily() {}

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// awaitEnd has to reap at once: waiting without reaping is not to be had.
func (p *Process) awaitEnd() {
	p.family.waitErr = p.cmd.Wait()
	p.idMu.Lock()
	p.reaped = true
	p.idMu.Unlock()
}

func (p *Process) reap() error { return p.family.waitErr }

func forkAndRegister(p *Process) error {
	if err := p.start(); err != nil {
		return err
	}
	p.pid = p.cmd.Process.Pid
	return nil
}

// endFamily ends what is left of the group. A group keeps its id from being
// given to another process as long as it has a member.
func (p *Process) endFamily() { _ = syscall.Kill(-p.pid, sigKill) }

// KillMarked finds nothing where environments cannot be read.
func KillMarked(string) int { return 0 }

// signalBehind reaches the wrapper too: there is none on these systems.
func (p *Process) signalBehind(sig syscall.Signal) { p.signal(sig) }

func (l Limits) kernel() []limit { return nil }
