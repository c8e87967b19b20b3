package proc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// kernel gives what the kernel is told. What this process may not have
// itself it cannot give, and does not try to.
func (l Limits) kernel() []limit {
	var all []limit
	for _, one := range []limit{
		{"the size of files", unix.RLIMIT_FSIZE, l.FileSize}, {"open files", unix.RLIMIT_NOFILE, l.OpenFiles},
	} {
		var have unix.Rlimit
		if one.value == 0 || unix.Getrlimit(one.resource, &have) != nil {
			continue
		}
		one.value = min(one.value, have.Max)
		all = append(all, one)
	}
	if l.NoCore {
		all = append(all, limit{"memory dumps", unix.RLIMIT_CORE, 0})
	}
	return all
}

// signalBehind reaches the child's group without the child. One that joins
// meanwhile is missed, and met by the next step of the escalation.
func (p *Process) signalBehind(sig syscall.Signal) {
	p.idMu.RLock()
	defer p.idMu.RUnlock()
	if p.reaped {
		return
	}
	for _, e := range table() {
		if e.session != p.pid || e.pid == p.pid || e.zombie {
			continue
		}
		if group, err := unix.Getpgid(e.pid); err == nil && group == p.pid {
			send(e.ident, sig)
		}
	}
}
