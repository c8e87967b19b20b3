package proc

import "os"

// Walls is what a child is put behind before its first instruction. The zero
// value is none. All but Wrapper need CanConfine.
type Walls struct {
	Ruleset      *os.File // of Landlock; kept open by the caller until the child has started
	Covers       []string // paths over which nothing is mounted, for the child alone: an empty folder, or an empty file
	Unprivileged bool     // the child gives up what root may do beyond other users
	Limits       Limits
	Group        *Group // that the child begins in; closed by the caller after its end

	// Wrapper says that the program only starts another one, in the same group,
	// and waits for it. It hears none of the signals that ask for an end, and
	// does not hold the other's input and output: its own are /dev/null, those
	// of the other its files 3 and 4.
	Wrapper bool
}

// direct reports whether they can only be had by a start of our own making.
func (w Walls) direct() bool {
	return w.Ruleset != nil || w.Unprivileged || w.Limits.kept() || w.Group != nil || len(w.Covers) > 0
}

// Limits are what a child may take. 0 is as much as this process may. Those of
// one process are kept by the kernel, and inherited by what it starts; for
// those of the family there is Gauge.
type Limits struct {
	FileSize  uint64 // bytes of one file; more is an error, and SIGXFSZ
	OpenFiles uint64 // of one process
	NoCore    bool   // no file with the memory of a program that crashed

	Memory  uint64 // bytes of private memory of the family
	Tasks   int    // its processes, each thread counted
	Written uint64 // bytes it has written to disks
}

// kept are those that the kernel keeps.
func (l Limits) kept() bool { return l.FileSize != 0 || l.OpenFiles != 0 || l.NoCore }

type limit struct {
	name     string
	resource int
	value    uint64
}
