//go:build unix && !linux

package proc

// Meter tells nothing where there is no /proc.
type Meter struct{}

// Meter makes a meter of the child.
func (*Process) Meter() *Meter { return &Meter{} }

// Forget lets the next Work begin anew.
func (*Meter) Forget() {}

// Work answers that there is nothing to compare with.
func (*Meter) Work() (Work, bool) { return Work{}, false }

func (*Process) offerFirst() {}
