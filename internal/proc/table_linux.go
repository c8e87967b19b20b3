package proc

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
)

// ident names one process for as long as the machine is up; a pid alone is
// given again.
type ident struct {
	pid   int
	start uint64 // clock ticks since boot
}

// entry is what the kernel's table says of one process.
type entry struct {
	ident
	parent  int
	session int
	zombie  bool
}

// table reads the kernel's list of processes. What ends meanwhile is left out.
func table() []entry {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	entries := make([]entry, 0, len(names))
	var buf [1024]byte
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if e, ok := readEntry(pid, buf[:]); ok {
			entries = append(entries, e)
		}
	}
	return entries
}

func readEntry(pid int, buf []byte) (entry, bool) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return entry{}, false
	}
	n, _ := io.ReadFull(f, buf)
	_ = f.Close()
	return parseStat(pid, buf[:n])
}

// parseStat reads the line of proc(5) stat. The name in parentheses may hold
// anything, parentheses and spaces too, so the fields count from its end.
func parseStat(pid int, line []byte) (entry, bool) {
	i := bytes.LastIndexByte(line, ')')
	if i < 0 {
		return entry{}, false
	}
	fields := strings.Fields(string(line[i+1:]))
	const state, parent, session, start = 0, 1, 3, 19
	if len(fields) <= start {
		return entry{}, false
	}
	e := entry{ident: ident{pid: pid}, zombie: fields[state] == "Z" || fields[state] == "X"}
	var err1, err2, err3 error
	e.parent, err1 = strconv.Atoi(fields[parent])
	e.session, err2 = strconv.Atoi(fields[session])
	e.start, err3 = strconv.ParseUint(fields[start], 10, 64)
	return e, err1 == nil && err2 == nil && err3 == nil
}

// carries reports whether the process was started with the variable
// ("NAME=value") in its environment. Environments of other users' processes
// cannot be read and carry nothing.
func carries(pid int, variable string) bool {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	defer f.Close()
	env, err := io.ReadAll(io.LimitReader(f, 4<<20))
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if string(v) == variable {
			return true
		}
	}
	return false
}
