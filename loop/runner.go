package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pulseloop/pulse"
)

// Runner takes sessions that are due and does one step for each: dispatch
// the next iteration, record a finished one, or time one out. It keeps no
// memory of a session between steps.
type Runner struct {
	store    Store
	reaper   Reaper
	prompts  Prompter
	words    Words
	cfg      Config
	wakes    <-chan struct{}
	poll     time.Duration
	steppers int
}

// RunnerConfig is what a Runner is made of. Zero fields take defaults.
type RunnerConfig struct {
	Config
	Store    Store
	Reaper   Reaper
	Prompts  Prompter
	Words    Words
	Wakes    <-chan struct{} // hints that a session came due
	Poll     time.Duration   // fallback: 1 s
	Steppers int             // steps at once: 2
}

// NewRunner returns a Runner; Run starts it.
func NewRunner(c RunnerConfig) *Runner {
	return &Runner{store: c.Store, reaper: c.Reaper, prompts: c.Prompts, words: c.Words, cfg: c.Config.withDefaults(),
		wakes: c.Wakes, poll: cmp.Or(c.Poll, time.Second), steppers: cmp.Or(c.Steppers, 2)}
}

// Run steps sessions until ctx ends; it returns nil then.
func (r *Runner) Run(ctx context.Context) error {
	again := make(chan struct{}, 1)
	done := make(chan struct{})
	for range r.steppers {
		go func() {
			r.stepping(ctx, again)
			done <- struct{}{}
		}()
	}
	r.ticking(ctx, again)
	for range r.steppers {
		<-done
	}
	return nil
}

// ticking passes wake-ups on to the steppers, polls as the fallback, and
// reaps ended leases.
func (r *Runner) ticking(ctx context.Context, again chan<- struct{}) {
	tick := time.NewTicker(r.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wakes:
		case <-tick.C:
			if _, _, err := r.reaper.Reap(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn("reap ended leases", "err", err)
			}
		}
		select {
		case again <- struct{}{}:
		default:
		}
	}
}

// stepping does steps until none is due, then waits for the next hint.
func (r *Runner) stepping(ctx context.Context, again chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
		was, gone := false, false // is the database away, and was it before: that is told once
		for ctx.Err() == nil {
			did, err := r.RunOnce(ctx)
			was, gone = gone, away(err)
			if err != nil && ctx.Err() == nil {
				if !away(err) || !was {
					r.cfg.Log.Error("step a session", "err", err)
				}
			}
			if !did && away(err) && pause(ctx) {
				continue // what came due meanwhile is not to wait for the next tick as well
			}
			if !did {
				break
			}
			// Another session may be due as well: let an idle stepper look.
			select {
			case again <- struct{}{}:
			default:
			}
		}
	}
}

// stepGrace is what a step under way gets when the Runner is ended.
const stepGrace = 5 * time.Second

// finishing is a context for a step: cut off between taking a session and
// writing it, the step would keep the session from everybody until its hold
// ends.
func finishing(ctx context.Context) (context.Context, func()) {
	step, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(stepGrace, cancel) })
	return step, func() { stop(); cancel() }
}

// RunOnce takes one due session and does one step. did is false if none was
// due. A step that was begun is finished, also when ctx ends.
func (r *Runner) RunOnce(ctx context.Context) (did bool, err error) {
	ctx, done := finishing(ctx)
	defer done()
	token := pulse.NewUUID(r.cfg.Clock())
	s, _, err := r.store.Take(ctx, token, r.cfg.Lease)
	if errors.Is(err, pulse.ErrNone) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("take a due session: %w", err)
	}
	id, until := s.ID, r.cfg.Clock().Add(r.cfg.Lease)
	for stale := 0; stale < maxRetries; stale++ {
		err = r.step(ctx, s)
		for ours := true; away(err) && r.cfg.Clock().Before(until) && pause(ctx); {
			// The database went away, perhaps with the answer. Letting go now
			// would leave the session to the end of the hold.
			if s, ours, err = r.held(ctx, id, token); err == nil && ours {
				err = r.step(ctx, s)
			}
		}
		if !errors.Is(err, pulse.ErrStale) {
			break
		}
		// Somebody wrote the session meanwhile. While the hold is still
		// ours the step is due as before, only its facts have changed.
		var ours bool
		if s, ours, err = r.held(ctx, id, token); err != nil || !ours {
			break
		}
	}
	if err != nil && !errors.Is(err, pulse.ErrStale) {
		return true, fmt.Errorf("step session %s: %w", id, err)
	}
	return true, nil
}

// held reads the session and tells whether the hold is still ours.
func (r *Runner) held(ctx context.Context, id pulse.SessionID, token string) (pulse.Session, bool, error) {
	s, err := r.store.Session(ctx, id)
	return s, err == nil && s.StepToken == token, err
}

// away reports whether the database could not be reached.
func away(err error) bool { return pulse.CodeOf(err) == pulse.CodeUnavailable }

// lookEvery is how often a database that is away is looked for.
const lookEvery = 100 * time.Millisecond

// pause lets a moment pass, and answers false when ctx ended.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(lookEvery):
		return true
	}
}

// step does the one thing that the session needs now.
func (r *Runner) step(ctx context.Context, s pulse.Session) error {
	now := r.cfg.Clock().UTC()
	switch s.Status {
	case pulse.SessionPending:
		return r.dispatch(ctx, s, nil, now)
	case pulse.SessionRunning:
	default:
		return r.wait(ctx, s, time.Time{})
	}
	it, task, err := r.store.CurrentIteration(ctx, s.ID)
	why, over := r.over(task, now)
	switch {
	case errors.Is(err, pulse.ErrNone):
		return r.dispatch(ctx, s, nil, now)
	case err != nil:
		return fmt.Errorf("read the current iteration: %w", err)
	case !openIteration(it):
		return r.dispatch(ctx, s, &it, now)
	case task.Status.Over():
		c, err := r.record(s, it, task, now)
		if err != nil {
			return err
		}
		return r.apply(ctx, s, c)
	case over:
		c, err := r.timeOut(s, it, task, why, now)
		if err != nil {
			return err
		}
		return r.apply(ctx, s, c)
	case r.unclaimed(task, now):
		c := pulse.Change{Session: &s}
		s.DueAt = r.nextLook(task, now)
		tell(s, &c, pulse.NoticeFinal, "unclaimed:"+string(task.ID), r.words.Unclaimed(s, r.cfg.QueueLimit), now)
		return r.apply(ctx, s, c)
	}
	return r.wait(ctx, s, r.nextLook(task, now))
}

// unclaimed reports whether nobody has taken the task for too long. It goes
// on waiting, but a person is told: once, as the message's slot is the task's.
func (r *Runner) unclaimed(t pulse.Task, now time.Time) bool {
	return t.Status == pulse.TaskQueued && now.Sub(t.CreatedAt) >= r.cfg.QueueLimit
}

// wait lets go of the session until a time (zero: until somebody says something).
func (r *Runner) wait(ctx context.Context, s pulse.Session, until time.Time) error {
	s.DueAt = until
	return r.apply(ctx, s, pulse.Change{Session: &s})
}

// apply writes a step: the hold is given up with it.
func (r *Runner) apply(ctx context.Context, before pulse.Session, c pulse.Change) error {
	c.Session.StepToken = ""
	c.Session.UpdatedAt = r.cfg.Clock().UTC()
	return r.store.Apply(ctx, pulse.Guard{SessionID: before.ID, Version: before.Version, StepToken: before.StepToken}, c)
}

func (r *Runner) log(s pulse.Session) *slog.Logger {
	return r.cfg.Log.With("session", string(s.ID), "project", s.ProjectName)
}
