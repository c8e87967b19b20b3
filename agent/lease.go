package agent

import (
	"context"
	"errors"
	"time"

	"pulseloop/pulse"
)

// Causes for which a running task is given up without a result.
var (
	errCancelled = errors.New("the task was cancelled")
	errLost      = errors.New("the claim was lost")
)

// gone reports whether the run must not write any more.
func gone(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, errCancelled) || errors.Is(cause, errLost)
}

// minRenewal keeps a flood of wake-ups from becoming a flood of heartbeats.
const minRenewal = 250 * time.Millisecond

// hold renews the lease of a claim made at since until ctx ends. When the task
// is cancelled, the claim is lost, or the lease can no longer be renewed in
// time, it ends the run with the cause.
//
// In parts of a lease: a renewal is tried at 4/12, then every 1/12, each for
// at most 3/12; the run is given up at 8/12, at the latest at 9/12 when a last
// try was under way; its agent is dead 2/12 later (see patience). So it has
// ended before anybody else may claim the task.
//
// A value on refused says that a write under the claim was refused: then it
// asks why, and ends the run in any case.
//
// When settling is closed the result is being stored. Then nobody can cancel
// any more, and hints are left alone: the one that the result itself gives
// would have the claim renewed that ended with it.
func (d *Daemon) hold(ctx context.Context, f pulse.Fence, since time.Time, refused, settling <-chan struct{}, end context.CancelCauseFunc) {
	wakes, unsubscribe := d.cfg.Waker.Wakes(pulse.TopicTasks)
	defer unsubscribe()
	part := d.cfg.Lease / 12
	renewed, tried := since, since
	next := time.NewTimer(4*part - d.cfg.Clock().Sub(renewed))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-refused:
			err := d.renew(ctx, f, part)
			if !errors.Is(err, errCancelled) {
				err = errLost
			}
			end(err)
			return
		case <-settling:
			wakes, settling = nil, nil
			next.Reset(4*part - d.cfg.Clock().Sub(renewed))
			continue
		case <-next.C:
		case <-wakes:
			if d.cfg.Clock().Sub(tried) < minRenewal {
				next.Reset(minRenewal) // the hint may be about this task: look a little later
				continue
			}
		}
		tried = d.cfg.Clock()
		left := 8*part - tried.Sub(renewed)
		err := d.renew(ctx, f, min(max(left, part), 3*part))
		left = 8*part - d.cfg.Clock().Sub(renewed)
		switch {
		case err == nil:
			renewed = tried
			next.Reset(4 * part)
		case errors.Is(err, errCancelled), errors.Is(err, errLost):
			end(err)
			return
		case ctx.Err() != nil:
			return
		case left <= 0:
			d.cfg.Log.Warn("lease could not be renewed in time", "task", string(f.TaskID), "err", err)
			end(errLost)
			return
		default:
			next.Reset(min(part, left))
		}
	}
}

// renew sends one heartbeat.
func (d *Daemon) renew(ctx context.Context, f pulse.Fence, atMost time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	cancelled, err := d.cfg.Queue.Heartbeat(ctx, f, d.cfg.Lease)
	switch {
	case errors.Is(err, pulse.ErrFenced):
		return errLost
	case err != nil:
		return err
	case cancelled:
		return errCancelled
	}
	return nil
}

// patience is how long an agent may take to end when it is told to.
func (d *Daemon) patience(ctx context.Context) time.Duration {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLost):
		return d.cfg.Lease / 6
	case errors.Is(cause, errShutdown):
		return lastMoment
	}
	return 10 * time.Second // more than proc's own steps take
}
