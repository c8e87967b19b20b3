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

// minRenewal keeps a flood of wake-ups from becoming a flood of heartbeats.
const minRenewal = 250 * time.Millisecond

// hold renews the claim's lease until ctx ends. When the task is cancelled,
// the claim is lost, or the lease can no longer be renewed in time, it ends
// the run with the cause: always before somebody else may claim the task.
func (d *Daemon) hold(ctx context.Context, f pulse.Fence, end context.CancelCauseFunc) {
	wakes, unsubscribe := d.cfg.Waker.Wakes(pulse.TopicTasks)
	defer unsubscribe()
	every := time.NewTicker(d.cfg.Lease / 3)
	defer every.Stop()
	renewed := d.cfg.Clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-wakes:
			if d.cfg.Clock().Sub(renewed) < minRenewal {
				// Look a little later: the hint may be about this task.
				every.Reset(minRenewal)
				continue
			}
		}
		every.Reset(d.cfg.Lease / 3)
		began := d.cfg.Clock()
		err := d.renew(ctx, f)
		switch {
		case err == nil:
			renewed = began
		case errors.Is(err, errCancelled), errors.Is(err, errLost):
			end(err)
			return
		case ctx.Err() != nil:
			return
		case d.cfg.Clock().Sub(renewed) >= d.cfg.Lease*2/3:
			d.cfg.Log.Warn("lease could not be renewed in time", "task", string(f.TaskID), "err", err)
			end(errLost)
			return
		default:
			every.Reset(d.cfg.Lease / 12)
		}
	}
}

// renew sends one heartbeat; it may take a quarter of the lease.
func (d *Daemon) renew(ctx context.Context, f pulse.Fence) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Lease/4)
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
