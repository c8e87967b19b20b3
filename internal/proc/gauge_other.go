//go:build unix && !linux

package proc

// Gauge tells what a child holds. There is no /proc here to tell it.
type Gauge struct{}

// Gauge makes a gauge of the child.
func (*Process) Gauge() *Gauge { return &Gauge{} }

// Read knows nothing.
func (*Gauge) Read() Usage { return Usage{} }

// MachineMemory is unknown.
func MachineMemory() uint64 { return 0 }
