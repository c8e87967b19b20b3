package proc

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// Meter tells what a child and its family have been doing. It reads a few
// files of /proc a process and nothing else, so it may be asked every few
// seconds. Not for concurrent use.
type Meter struct {
	p    *Process
	seen map[ident]counters // nil: nothing to compare with yet
}

// Meter makes a meter of the child.
func (p *Process) Meter() *Meter { return &Meter{p: p} }

// counters only grow, and take in those of children that were waited for.
type counters struct {
	ticks int64
	bytes int64
	waits map[int]time.Duration // by thread, what it waited for a processor
}

// maxThreads is how many threads of a process are asked what they wait for.
const maxThreads = 64

// tick is the unit of CPU times in /proc: USER_HZ, 100 on every architecture
// that Go knows.
const tick = 10 * time.Millisecond

// Forget lets the next Work begin anew.
func (m *Meter) Forget() { m.seen = nil }

// Work answers what was done since the last call. ok is false when there is
// nothing to compare with: at the first call and after Forget.
func (m *Meter) Work() (w Work, ok bool) {
	now := map[ident]counters{}
	for _, id := range m.p.relatives() {
		if c, alive := count(id); alive {
			now[id] = c
		}
	}
	before := m.seen
	m.seen = now
	if before == nil {
		return Work{}, false
	}
	var ticks int64
	for id, c := range now {
		// One that is new counts whole: most of its life lies since the last call.
		old := before[id]
		ticks += max(0, c.ticks-old.ticks)
		w.Bytes += max(0, c.bytes-old.bytes)
		for thread, waited := range c.waits {
			w.Starved = max(w.Starved, waited-old.waits[thread])
		}
	}
	w.CPU = time.Duration(ticks) * tick
	return w, true
}

// relatives are the child and its living family.
func (p *Process) relatives() []ident {
	list := table()
	ids := p.members(list)
	for _, e := range list {
		if e.pid == p.pid && !e.zombie {
			ids = append(ids, e.ident)
		}
	}
	return ids
}

// count reads the counters of one process. What may not be read counts as
// nothing.
func count(id ident) (counters, bool) {
	var buf [1024]byte
	dir := "/proc/" + strconv.Itoa(id.pid)
	stat, err := readSome(dir+"/stat", buf[:])
	if err != nil {
		return counters{}, false
	}
	e, ok := parseStat(id.pid, stat)
	if !ok || e.ident != id {
		return counters{}, false
	}
	c := counters{ticks: parseTicks(stat), waits: waits(dir + "/task")}
	if b, err := readSome(dir+"/io", buf[:]); err == nil {
		c.bytes = parseIO(b)
	}
	return c, true
}

// waits reads what the threads of a process have waited for a processor. A
// kernel that does not count it has none.
func waits(dir string) map[int]time.Duration {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxThreads)
	out := make(map[int]time.Duration, len(names))
	var buf [128]byte
	for _, name := range names {
		thread, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if b, err := readSome(dir+"/"+name+"/schedstat", buf[:]); err == nil {
			out[thread] = parseWait(b)
		}
	}
	return out
}

// parseWait is the second of the three numbers of a schedstat: the
// nanoseconds that the thread was ready to run and did not.
func parseWait(line []byte) time.Duration {
	fields := strings.Fields(string(line))
	if len(fields) != 3 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[1], 10, 64)
	return time.Duration(max(0, n))
}

func readSome(path string, buf []byte) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := io.ReadFull(f, buf)
	if n > 0 {
		err = nil
	}
	return buf[:n], err
}

// parseTicks sums the CPU times of the line of proc(5) stat: the process's
// own, and those of its children that it waited for.
func parseTicks(line []byte) (sum int64) {
	fields := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
	const userTime, childSystemTime = 11, 14
	for i := userTime; i <= childSystemTime && i < len(fields); i++ {
		n, _ := strconv.ParseInt(fields[i], 10, 64) // what is no number is no time
		sum += max(0, n)
	}
	return sum
}

// parseIO sums what passed through read and write calls.
func parseIO(text []byte) (sum int64) {
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "rchar" || name == "wchar" {
			n, _ := strconv.ParseInt(value, 10, 64)
			sum += max(0, n)
		}
	}
	return sum
}

// offerFirst makes the child the first to go when the machine runs out of
// memory: an agent that is killed is a failed attempt, a daemon that is
// killed takes all of them along. What the child starts inherits it.
func (p *Process) offerFirst() {
	_ = os.WriteFile("/proc/"+strconv.Itoa(p.pid)+"/oom_score_adj", []byte("500"), 0)
}
