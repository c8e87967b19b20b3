package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

// How often it is looked at what the processes of a run take: seldom while
// that is little, often when it is not.
const (
	gaugeEvery = time.Second
	gaugeOften = 100 * time.Millisecond
)

// lowDisk is what is kept free where the trees are: less, and the database
// cannot be written. A run that has written as much itself has to make room.
const lowDisk = 256 << 20

// keepWithin ends a run whose processes together take more than they may; what
// each may by itself, the kernel keeps. It watches child until that has ended
// or the function it gives is called, which answers why the child was ended,
// "" if it was not.
func (r *run) keepWithin(ctx context.Context, child *proc.Process, walls proc.Walls, tree string) (over func() string) {
	limits := walls.Limits
	var reason string // written before ended is closed
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		gauge := child.Gauge()
		timer := time.NewTimer(gaugeOften)
		defer timer.Stop()
		for {
			select {
			case <-quit:
				return
			case <-child.Gone():
				return
			case <-timer.C:
			}
			used := gauge.Read()
			if why := beyond(used, limits, tree); why != "" {
				reason = why
				r.log.Warn("the agent is ended", "why", why)
				end(ctx, child)
				return
			}
			timer.Reset(pace(used, limits))
		}
	}()
	return sync.OnceValue(func() string {
		close(quit)
		<-ended
		if reason == "" && walls.Group != nil && walls.Group.OutOfMemory() {
			reason = fmt.Sprintf("its processes needed more than the %d MiB of memory that they may", limits.Memory>>20)
		}
		return reason
	})
}

func pace(used proc.Usage, limits proc.Limits) time.Duration {
	if used.Near(limits) {
		return gaugeOften
	}
	return gaugeEvery
}

func beyond(used proc.Usage, limits proc.Limits, tree string) string {
	if why := used.Beyond(limits); why != "" {
		return why
	}
	if used.Written < lowDisk {
		return ""
	}
	if free, err := proc.FreeDisk(tree); err == nil && free < lowDisk {
		return fmt.Sprintf("the disk is full but for %d MiB, and it has written %d MiB", free>>20, used.Written>>20)
	}
	return ""
}

// end kills at once: what takes too much is given no time to take more.
func end(ctx context.Context, child *proc.Process) {
	now, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	child.Stop(now)
}

// overCap is the result of a run that was ended for what it took.
func overCap(res pulse.TaskResult, name, why string) pulse.TaskResult {
	res.Error = fmt.Sprintf("%s was ended: %s", name, why)
	res.Hint = "the settings below `limits` say what a run may take"
	return res
}
