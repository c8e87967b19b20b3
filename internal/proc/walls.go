package proc

import "os"

// Walls is what a child is put behind before its first instruction. The zero
// value is none. All but Wrapper need CanConfine.
type Walls struct {
	Ruleset      *os.File // of Landlock; kept open by the caller until the child has started
	Unprivileged bool     // the child gives up what root may do beyond other users
	Limits       Limits

	// Wrapper says that the program only starts another one, in the same group,
	// and waits for it. It hears none of the signals that ask for an end, and
	// does not hold the other's input and output: its own are /dev/null, those
	// of the other its files 3 and 4.
	Wrapper bool
}

// direct reports whether they can only be had by a start of our own making.
func (w Walls) direct() bool {
	return w.Ruleset != nil || w.Unprivileged || w.Limits != Limits{}
}

// Limits are what one process may take; what it starts inherits them. 0 is as
// much as this process may.
type Limits struct {
	FileSize  uint64 // bytes of one file; more is an error, and SIGXFSZ
	OpenFiles uint64
	Data      uint64 // bytes of private memory that can be written; more is an error
	NoCore    bool   // no file with the memory of a program that crashed
}

type limit struct {
	name     string
	resource int
	value    uint64
}
