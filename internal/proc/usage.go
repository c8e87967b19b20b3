package proc

import "fmt"

// Usage is what a child and its family hold at a moment, and what they have
// written to disks.
type Usage struct {
	Tasks   int
	Memory  uint64
	Written uint64
}

// Beyond says which limit is exceeded and by what, "" if none is.
func (u Usage) Beyond(l Limits) string {
	switch {
	case l.Memory > 0 && u.Memory > l.Memory:
		return fmt.Sprintf("its processes hold %s of memory, of %s that they may", size(u.Memory), size(l.Memory))
	case l.Tasks > 0 && u.Tasks > l.Tasks:
		return fmt.Sprintf("it runs %d processes and threads, of %d that it may", u.Tasks, l.Tasks)
	case l.Written > 0 && u.Written > l.Written:
		return fmt.Sprintf("it has written %s to disk, of %s that it may", size(u.Written), size(l.Written))
	}
	return ""
}

// Near reports whether a quarter of a limit is reached.
func (u Usage) Near(l Limits) bool {
	return u.Beyond(Limits{Memory: l.Memory / 4, Tasks: l.Tasks / 4, Written: l.Written / 4}) != ""
}

func size(n uint64) string {
	const kib = 1 << 10
	switch {
	case n >= kib*kib*kib:
		return fmt.Sprintf("%.1f GiB", float64(n)/(kib*kib*kib))
	case n >= kib*kib:
		return fmt.Sprintf("%.0f MiB", float64(n)/(kib*kib))
	}
	return fmt.Sprintf("%d KiB", n/kib)
}
