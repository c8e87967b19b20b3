package proc

import (
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// family is what is known to descend from a child. Ancestry is visible only
// while the processes between are alive, so it is noted whenever looked at.
type family struct {
	mu    sync.Mutex
	known map[ident]bool
}

// members gives the living processes of p's family without p itself, and
// notes them.
func (p *Process) members(list []entry) []ident {
	p.family.mu.Lock()
	defer p.family.mu.Unlock()
	kin := p.kin(list)
	var living []ident
	for _, e := range list {
		if kin[e.ident] && !e.zombie && e.pid != p.pid {
			living = append(living, e.ident)
		}
	}
	p.family.known = kin
	return living
}

// kin is the transitive closure: of p's session, marked, known before, or a
// child of one of those.
func (p *Process) kin(list []entry) map[ident]bool {
	self, others := os.Getpid(), household.others(p)
	var born uint64
	for _, e := range list {
		if e.pid == p.pid {
			born = e.start
		}
	}
	kin, pids := map[ident]bool{}, map[int]bool{p.pid: true}
	add := func(e entry) { kin[e.ident] = true; pids[e.pid] = true }
	for _, e := range list {
		switch {
		case e.pid == self || e.start < born || others[e.session]:
			// Nothing older than the child descends from it, and a sibling that
			// runs for the same task ends by itself.
		case p.family.known[e.ident], e.session == p.pid:
			add(e)
		case p.spec.Marker != "" && !e.zombie && carries(e.pid, runName+"="+p.token):
			add(e)
		}
	}
	for grown := true; grown; {
		grown = false
		for _, e := range list {
			if pids[e.parent] && !pids[e.pid] && e.pid != self {
				add(e)
				grown = true
			}
		}
	}
	return kin
}

func (p *Process) learnFamily() { p.members(table()) }

// endFamily ends what the dead child left behind: SIGTERM, and SIGKILL after
// a grace. A child without a marker is a tool that was run for its output;
// what it detached on purpose is left alone, its group is not.
func (p *Process) endFamily() {
	if p.spec.Marker == "" {
		p.signal(sigKill)
		return
	}
	if len(p.members(table())) > 0 {
		end(p.spec.grace(), p.hurry, func() []ident { return p.members(table()) })
	}
	household.reapAdopted(p.acquainted()...)
}

// acquainted gives everything known to descend from the child, dead or alive.
func (p *Process) acquainted() []ident {
	p.family.mu.Lock()
	defer p.family.mu.Unlock()
	return slices.Collect(maps.Keys(p.family.known))
}

// end brings every process that find gives to its end, as far as the kernel
// lets it in bounded time, and returns how many there were. hurry skips the
// polite part.
func end(grace time.Duration, hurry <-chan struct{}, find func() []ident) int {
	seen := map[ident]bool{}
	round := func(sig syscall.Signal) bool {
		found := find()
		for _, id := range found {
			if !seen[id] || sig == sigKill {
				send(id, sig)
				send(id, sigContinue)
			}
			seen[id] = true
		}
		household.reapAdopted(slices.Collect(maps.Keys(seen))...)
		return len(found) == 0
	}
	repeat := func(sig syscall.Signal, d time.Duration) bool {
		for deadline := time.Now().Add(d); time.Now().Before(deadline); {
			if round(sig) {
				return true
			}
			select {
			case <-hurry:
				if sig != sigKill {
					return false
				}
			default:
			}
			time.Sleep(killPoll)
		}
		return false
	}
	if !repeat(sigTerminate, grace) {
		repeat(sigKill, killBound)
	}
	household.reapAdopted(slices.Collect(maps.Keys(seen))...)
	return len(seen)
}

// send signals exactly the process that was seen: a pid that was given again
// meanwhile is left alone.
func send(id ident, sig syscall.Signal) {
	var buf [1024]byte
	if e, ok := readEntry(id.pid, buf[:]); ok && e.ident == id {
		_ = syscall.Kill(id.pid, sig)
	}
}

// KillMarked ends every process that carries the marker, such as those an
// earlier life of the daemon left behind, and returns how many there were.
// It takes a few seconds at most.
func KillMarked(marker string) int {
	if marker == "" {
		return 0
	}
	self := os.Getpid()
	return end(defaultGrace, nil, func() []ident {
		var found []ident
		for _, e := range table() {
			if e.pid != self && !e.zombie && carries(e.pid, MarkerName+"="+marker) {
				found = append(found, e.ident)
			}
		}
		return found
	})
}
