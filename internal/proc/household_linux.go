package proc

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// houseRound is how often strays are looked for while marked children live.
	houseRound = 2 * time.Second
	// strangerAge is how long a zombie of unknown descent is left to whoever
	// may be about to wait for it.
	strangerAge = 30 * time.Second
)

// household is this process's children and the orphans it has adopted as
// their subreaper. One a process, because that is what the kernel keeps.
var household = house{children: map[int]*Process{}, strangers: map[ident]time.Time{}}

type house struct {
	subreaper sync.Once

	// births is held shared while forking and exclusively while reaping
	// orphans: between fork and registration a child looks like an orphan.
	births sync.RWMutex

	mu       sync.Mutex
	children map[int]*Process
	marked   int
	leave    chan struct{} // closed when the last marked child has gone
	guard    *guard        // there while marked children are

	roundMu   sync.Mutex
	strangers map[ident]time.Time // zombies of unknown descent, since when
}

// add forks p's child and takes it in.
func (h *house) add(p *Process) error {
	h.subreaper.Do(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
	h.births.RLock()
	defer h.births.RUnlock()
	if err := p.start(); err != nil {
		return err
	}
	p.pid = p.cmd.Process.Pid
	h.mu.Lock()
	defer h.mu.Unlock()
	h.children[p.pid] = p
	if p.spec.Marker != "" {
		if h.marked++; h.marked == 1 {
			h.leave, h.guard = make(chan struct{}), startGuard()
			go h.keep(h.leave)
		}
		h.guard.tell("+", p)
	}
	return nil
}

// remove forgets p, whose child has just been reaped.
func (h *house) remove(p *Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.children, p.pid)
	if p.spec.Marker == "" {
		return
	}
	h.guard.tell("-", p)
	if h.marked--; h.marked == 0 {
		close(h.leave)
		h.guard.leave()
		h.guard = nil
	}
}

// keep notes who descends from whom, and reaps orphans, until leave closes.
// Without it a stray that drops its environment and its session would be
// forgotten, and those that end by themselves would stay as zombies.
func (h *house) keep(leave <-chan struct{}) {
	tick := time.NewTicker(houseRound)
	defer tick.Stop()
	for {
		select {
		case <-leave:
			return
		case now := <-tick.C:
			h.round(now)
		}
	}
}

func (h *house) round(now time.Time) {
	h.roundMu.Lock()
	defer h.roundMu.Unlock()
	list := table()
	kin := map[ident]bool{}
	for _, p := range h.markedChildren() {
		p.members(list)
		for _, id := range p.acquainted() {
			kin[id] = true
		}
	}
	self := os.Getpid()
	session, _ := unix.Getsid(0)
	strangers := map[ident]time.Time{}
	for _, e := range list {
		// Every child here starts a session, so a zombie in our own session is
		// somebody else's direct child.
		if e.parent != self || !e.zombie || e.session == session {
			continue
		}
		if kin[e.ident] {
			h.reapOrphan(e.ident)
			continue
		}
		since, seen := h.strangers[e.ident]
		switch {
		case !seen:
			strangers[e.ident] = now
		case now.Sub(since) >= strangerAge:
			h.reapOrphan(e.ident)
		default:
			strangers[e.ident] = since
		}
	}
	h.strangers = strangers
}

func (h *house) markedChildren() []*Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ps []*Process
	for _, p := range h.children {
		if p.spec.Marker != "" {
			ps = append(ps, p)
		}
	}
	return ps
}

// others gives the ids of the children that are not p's.
func (h *house) others(p *Process) map[int]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	pids := map[int]bool{}
	for pid, q := range h.children {
		if q != p {
			pids[pid] = true
		}
	}
	return pids
}

// reapAdopted reaps those of ids that are dead and ours by adoption.
func (h *house) reapAdopted(ids ...ident) {
	for _, id := range ids {
		h.reapOrphan(id)
	}
}

// reapOrphan reaps one dead process that this process has adopted. A child of
// its own is left to the Process that waits for it.
func (h *house) reapOrphan(id ident) {
	h.births.Lock()
	defer h.births.Unlock()
	h.mu.Lock()
	_, own := h.children[id.pid]
	h.mu.Unlock()
	if own {
		return
	}
	var buf [1024]byte
	if e, ok := readEntry(id.pid, buf[:]); ok && e.ident == id && e.zombie && e.parent == os.Getpid() {
		_, _ = syscall.Wait4(id.pid, nil, syscall.WNOHANG, nil)
	}
}
