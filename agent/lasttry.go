package agent

import (
	"context"
	"time"

	"pulseloop/pulse"
)

// lastTry reports whether a task is dead if its daemon dies once more.
//
// A task that kills its daemon takes the tasks beside it along, and each loses an attempt with it. So the last attempt of a
// task is made alone: nothing runs beside it, and nothing is claimed until it is over. What was innocent comes through; what
// was not dies by itself.
func lastTry(t pulse.Task) bool { return t.MaxAttempts > 1 && t.Attempt >= t.MaxAttempts }

// oneByOne starts tasks whose last attempt this is, and lets each begin when it is alone and those before it are over. The slot of
// the one that runs is held here.
func (d *Daemon) oneByOne(ctx context.Context, slots chan struct{}, last []pulse.Claim, here *presence, start func(c pulse.Claim, alone, over chan struct{})) {
	type waiting struct{ alone, over chan struct{} }
	var all []waiting
	for _, c := range last { // all at once, for those who wait have their leases renewed
		w := waiting{make(chan struct{}), make(chan struct{})}
		start(c, w.alone, w.over)
		all = append(all, w)
	}
	for _, w := range all {
		if !d.takeSlot(ctx, slots, here) {
			return
		}
		d.seclude(ctx, slots, w.alone, w.over, here)
		<-slots
	}
}

// seclude takes every other slot, so that nothing else runs, lets the task begin, and gives the slots back when it is over. The
// end of ctx ends it at any point.
func (d *Daemon) seclude(ctx context.Context, slots chan struct{}, alone chan<- struct{}, over <-chan struct{}, here *presence) {
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	held := 0
	defer func() {
		for range held {
			<-slots
		}
	}()
	for {
		var free chan<- struct{}
		switch {
		case held < d.cfg.Slots-1:
			free = slots
		case alone != nil:
			close(alone)
			alone = nil
		}
		select {
		case free <- struct{}{}:
			held++
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = here.show(ctx)
		}
	}
}

// signEvery is how often a task that waits to run alone says that it is not forgotten.
const signEvery = 20 * time.Second

// waitAlone waits until nothing else runs here, or ctx ends. The lease is renewed meanwhile.
func (r *run) waitAlone(ctx context.Context) error {
	if r.alone == nil {
		return nil
	}
	tick := time.NewTicker(signEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.alone:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if err := r.d.cfg.Queue.Append(ctx, r.fence, pulse.StreamBatch{Sign: r.d.cfg.Clock().UTC()}); err != nil {
				r.log.Warn("sign of life while waiting to run alone", "err", err)
			}
		}
	}
}
