package proc

import (
	"bytes"
	"maps"
	"os"
	"strconv"
)

// Gauge tells what a child and its family hold, and whether that is more than
// Spec.Walls.Limits allow. It reads three files of /proc a process of the
// family and one of each other, so it may be asked every second. Not for
// concurrent use.
type Gauge struct {
	p    *Process
	last map[ident]holding
	lost uint64 // written by orphans that have ended
}

// Gauge makes a gauge of the child.
func (p *Process) Gauge() *Gauge { return &Gauge{p: p} }

// holding is what one process holds. What it has written takes in what those
// of its children wrote that it waited for.
type holding struct {
	parent  int
	threads int
	memory  uint64
	written uint64
}

// Read looks at the family.
func (g *Gauge) Read() Usage {
	now := map[ident]holding{}
	for _, e := range g.p.kinFast(table()) {
		now[e.ident] = hold(e)
	}
	// What one wrote that has gone was taken over by its parent, if that is one
	// of the family; orphans are waited for by this process.
	for id, h := range g.last {
		if _, lives := now[id]; !lives && h.parent == os.Getpid() {
			g.lost += h.written
		}
	}
	g.last = now
	u := Usage{Written: g.lost}
	for _, h := range now {
		u.Tasks += h.threads
		u.Memory += h.memory
		u.Written += h.written
	}
	return u
}

// kinFast gives the living family without a look at environments: of what
// left both session and ancestry it has what is known from elsewhere.
func (p *Process) kinFast(list []entry) []entry {
	p.family.mu.Lock()
	known := maps.Clone(p.family.known)
	p.family.mu.Unlock()
	self, pids := os.Getpid(), map[int]bool{p.pid: true}
	for _, e := range list {
		if e.session == p.pid || known[e.ident] {
			pids[e.pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, e := range list {
			if pids[e.parent] && !pids[e.pid] && e.pid != self {
				pids[e.pid], grown = true, true
			}
		}
	}
	var kin []entry
	for _, e := range list {
		if pids[e.pid] && !e.zombie {
			kin = append(kin, e)
		}
	}
	return kin
}

// hold reads what one process holds. What may not be read counts as nothing.
func hold(e entry) holding {
	h := holding{parent: e.parent, threads: 1}
	var buf [4096]byte
	dir := "/proc/" + strconv.Itoa(e.pid)
	if b, err := readSome(dir+"/status", buf[:]); err == nil {
		h.threads = max(1, int(field(b, "Threads:")))
		h.memory = (field(b, "RssAnon:") + field(b, "VmSwap:")) << 10
	}
	if b, err := readSome(dir+"/io", buf[:]); err == nil {
		h.written = field(b, "\nwrite_bytes:")
	}
	return h
}

// field gives the number behind a name, 0 if there is none.
func field(text []byte, name string) uint64 {
	_, rest, ok := bytes.Cut(text, []byte(name))
	if !ok {
		return 0
	}
	words := bytes.Fields(rest[:min(len(rest), 64)])
	if len(words) == 0 {
		return 0
	}
	n, _ := strconv.ParseUint(string(words[0]), 10, 64) // what is no number is nothing
	return n
}

// MachineMemory is what this machine, or the container that this process is
// in, has of main memory. 0 is unknown.
func MachineMemory() uint64 {
	var buf [4096]byte
	b, err := readSome("/proc/meminfo", buf[:])
	if err != nil {
		return 0
	}
	all := field(b, "MemTotal:") << 10
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, err := readSome(file, buf[:])
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64); err == nil && n > 0 {
			all = min(all, n)
		}
	}
	return all
}
