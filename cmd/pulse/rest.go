package main

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"pulseloop/pulse"
)

// What a program costs that waits: how often it looks for work, and what it
// keeps in memory. An installation waits most of its life.

// pace is how often the parts look for work that no wake-up told them of.
// Zero is each part's own, a second, which a server that may lose wake-ups
// needs.
type pace struct {
	waker waker
	poll  time.Duration
	due   time.Duration // of who also looks for ended leases
}

type waker interface {
	Wakes(pulse.Topic) (<-chan struct{}, func())
}

// Every commit to a database file is made by the process that reads it, so
// that no wake-up is lost, and five parts that look every second cost more
// than all else at rest. What comes due by the clock alone does so soon after
// something happened (a change that is held back, an update that is put off):
// so long they look every second.
const (
	restPoll  = 5 * time.Second
	restReap  = 2 * time.Second
	afterglow = 10 * time.Second
)

func (a *app) pace() pace {
	if a.cfg.DatabaseURL != "" {
		return pace{waker: a.store}
	}
	return pace{waker: glowing{a.store}, poll: restPoll, due: restReap}
}

// glowing passes wake-ups on, and for a while after one gives another every
// second. The first comes at once: what an earlier process left is due.
type glowing struct{ from waker }

func (g glowing) Wakes(topic pulse.Topic) (<-chan struct{}, func()) {
	in, unsubscribe := g.from.Wakes(topic)
	out, end := make(chan struct{}, 1), make(chan struct{})
	out <- struct{}{}
	var done sync.WaitGroup
	done.Go(func() { glow(in, out, end) })
	return out, sync.OnceFunc(func() {
		unsubscribe()
		close(end)
		done.Wait()
	})
}

func glow(in <-chan struct{}, out chan<- struct{}, end <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	tick.Stop()
	defer tick.Stop()
	var until time.Time
	for {
		select {
		case <-end:
			return
		case <-in:
			if until.IsZero() {
				tick.Reset(time.Second)
			}
			until = time.Now().Add(afterglow)
		case now := <-tick.C:
			if now.After(until) {
				tick.Stop()
				until = time.Time{}
				continue
			}
		}
		select {
		case out <- struct{}{}:
		default:
		}
	}
}

// settleAfter is when a start is over.
const settleAfter = 3 * time.Second

// settle gives back, once, what only the start needed: the free part of the
// heap, and the pages of the program's own file, most of which a start
// touches (a kernel that maps large pieces maps nearly all of it) and a third
// of which is used again. They stay in the kernel's cache, from where what
// is used again comes without reading.
func (a *app) settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(settleAfter):
	}
	debug.FreeOSMemory()
	if err := unmapOwnFile(); err != nil {
		a.log.Debug("give back the pages of the program's file", "err", err)
	}
	return nil
}
