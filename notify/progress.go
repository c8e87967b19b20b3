package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pulseloop/pulse"
)

// Waker tells that something may have changed. A receive is a hint: the
// receiver looks, and polls besides.
type Waker interface {
	Wakes(topic pulse.Topic) (wakes <-chan struct{}, stop func())
}

// ProgressConfig is what the progress writer depends on. Zero fields take
// defaults.
type ProgressConfig struct {
	Waker    Waker // nil: polling alone
	Clock    func() time.Time
	Log      *slog.Logger
	Interval time.Duration // least time between two states of one live message: 1.5 s
	Poll     time.Duration // 1 s
	Keep     int           // sessions whose state is kept in memory: 1000
}

// Progress turns the event log into one live message an iteration. It is a
// durable consumer: the watermark moves in the transaction that writes the
// message, so that a crash neither loses nor doubles a state. Its memory is
// only a cache of what the log says.
type Progress struct {
	news News
	cfg  ProgressConfig
	live map[pulse.SessionID]*running
}

// NewProgress returns the writer of live messages over an event log.
func NewProgress(news News, cfg ProgressConfig) *Progress {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Interval = cmp.Or(cfg.Interval, 1500*time.Millisecond)
	cfg.Poll = cmp.Or(cfg.Poll, time.Second)
	cfg.Keep = cmp.Or(cfg.Keep, 1000)
	return &Progress{news: news, cfg: cfg, live: map[pulse.SessionID]*running{}}
}

// Run keeps the live messages up to date until ctx ends.
func (p *Progress) Run(ctx context.Context) error {
	wakes, stop := wakesOf(p.cfg.Waker, pulse.TopicEvents)
	defer stop()
	tick := time.NewTicker(p.cfg.Poll)
	defer tick.Stop()
	for {
		if _, err := p.RunOnce(ctx); err != nil && ctx.Err() == nil {
			p.cfg.Log.Error("write progress", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wakes:
		case <-tick.C:
		}
	}
}

// How many sessions, and how many events of one read, a pass takes at once.
// Where sessions that were written a moment ago fill the list, it grows, so
// that the ones behind them are reached.
const (
	sessionBatch = 100
	sessionLimit = 12_800
	eventBatch   = 500
)

// RunOnce handles the news there is and answers for how many sessions it
// wrote something. A session that fails does not keep the others waiting.
func (p *Progress) RunOnce(ctx context.Context) (int, error) {
	defer p.forget()
	var done int
	var errs []error
	looked := map[pulse.SessionID]bool{}
	for limit := sessionBatch; ; limit *= 2 {
		unread, err := p.news.SessionsWithNews(ctx, limit)
		if err != nil {
			return done, errors.Join(append(errs, fmt.Errorf("list sessions with news: %w", err))...)
		}
		for _, u := range unread {
			if looked[u.Session.ID] {
				continue
			}
			looked[u.Session.ID] = true
			wrote, err := p.session(ctx, u)
			if wrote {
				done++
			}
			if err != nil {
				delete(p.live, u.Session.ID)
				if !errors.Is(err, pulse.ErrStale) {
					errs = append(errs, fmt.Errorf("write progress of session %s: %w", u.Session.ID, err))
				}
			}
		}
		if len(unread) < limit || limit >= sessionLimit || ctx.Err() != nil {
			return done, errors.Join(errs...)
		}
	}
}

// session handles one session's news. The watermark and the notices move
// together; a live message is not touched more often than Interval.
func (p *Progress) session(ctx context.Context, u Unread) (bool, error) {
	now := p.cfg.Clock().UTC()
	s := u.Session
	r := p.live[s.ID]
	if r != nil && r.seen == u.Seen && now.Sub(r.wrote) < p.cfg.Interval && r.iteration != "" && s.Status == pulse.SessionRunning {
		return false, nil
	}
	if r == nil || r.seen != u.Seen {
		r = &running{}
		if err := p.replay(ctx, s.ID, 0, u.Seen, func(e pulse.Event) { r.fold(e) }); err != nil {
			return false, err
		}
		r.shown = r.iteration // a message of it may be out already: a revision replaces it
	}
	before := *r
	var closed []running
	err := p.replay(ctx, s.ID, u.Seen, s.EventSeq, func(e pulse.Event) {
		if ended := r.fold(e); ended != nil {
			closed = append(closed, *ended)
		}
	})
	if err != nil {
		return false, err
	}
	var notices []pulse.Notice
	for _, c := range closed {
		if c.shown == c.iteration { // an iteration that was over before it was shown needs no message
			notices = append(notices, p.notices(s, c, c.closedForm(s), now)...)
		}
	}
	if r.iteration != "" && (r.changes != before.changes || r.shown != r.iteration) {
		notices = append(notices, p.notices(s, *r, r.form(s, now), now)...)
		r.shown = r.iteration
	}
	if err := p.news.Advance(ctx, s.ID, u.Seen, s.EventSeq, notices); err != nil {
		return false, err
	}
	r.seen, r.wrote = s.EventSeq, now
	p.live[s.ID] = r
	return len(notices) > 0, nil
}

// replay gives the events after one position up to another to f, in order.
func (p *Progress) replay(ctx context.Context, id pulse.SessionID, after, upTo int64, f func(pulse.Event)) error {
	for after < upTo {
		events, err := p.news.Events(ctx, id, after, eventBatch)
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if len(events) == 0 {
			return nil
		}
		for _, e := range events {
			if e.Seq > upTo {
				return nil
			}
			f(e)
			after = e.Seq
		}
	}
	return nil
}

// notices is the live message for each place where the session is followed.
// A text message cannot be edited, and costs money: none goes there.
func (p *Progress) notices(s pulse.Session, r running, m pulse.Message, now time.Time) []pulse.Notice {
	var out []pulse.Notice
	for _, to := range s.Addresses() {
		if to.Platform == pulse.PlatformSMS {
			continue
		}
		out = append(out, pulse.Notice{
			ID: pulse.NoticeID(pulse.NewUUID(now)), Address: to, Slot: "progress:" + r.iteration,
			Editable: true, Kind: pulse.NoticeProgress, SessionID: s.ID, Silent: true, Message: m,
			Status: pulse.NoticeQueued, NextAt: now, CreatedAt: now,
		})
	}
	return out
}

// forget bounds the cache. Which ones go does not matter: the log has them.
func (p *Progress) forget() {
	for id, r := range p.live {
		if r.iteration == "" || len(p.live) > p.cfg.Keep {
			delete(p.live, id)
		}
	}
}

func wakesOf(w Waker, t pulse.Topic) (<-chan struct{}, func()) {
	if w == nil {
		return nil, func() {}
	}
	return w.Wakes(t)
}
