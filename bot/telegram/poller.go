package telegram

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	tg "github.com/go-telegram/bot"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// PollerConfig tunes a Poller; zero values are sensible.
type PollerConfig struct {
	// Wait is how long one request waits for updates; default 50 s, the platform's maximum.
	Wait time.Duration
	// MinBackoff and MaxBackoff bound the pause after a failure; default 0.5 s and 15 s. After 15 s at most a standby asks
	// whether it may take over.
	MinBackoff, MaxBackoff time.Duration
	Now                    func() time.Time
	Log                    *slog.Logger
}

// States of a Poller.
const (
	StateStarting     = "starting"
	StatePolling      = "polling"
	StateRetrying     = "retrying"     // the platform or the database is away
	StateStandby      = "standby"      // another process polls with this token
	StateUnauthorized = "unauthorized" // the token is refused
)

// Status is what a Poller is doing, for doctor and readiness.
type Status struct {
	State string
	Since time.Time
	Err   string
}

// Poller fetches updates, commits each batch together with the offset behind it, and only then asks for what follows: the offset
// in a request is what confirms, so a crash at any point loses nothing.
type Poller struct {
	c      *Client
	intake bot.Intake
	cfg    PollerConfig
	log    *slog.Logger

	loaded  bool
	offset  int64
	heardAt time.Time // when the last update came

	mu     sync.Mutex
	status Status
}

// NewPoller makes a Poller; Run starts it.
func NewPoller(c *Client, intake bot.Intake, cfg PollerConfig) *Poller {
	if cfg.Wait <= 0 || cfg.Wait > 50*time.Second {
		cfg.Wait = 50 * time.Second
	}
	if cfg.MinBackoff <= 0 {
		cfg.MinBackoff = 500 * time.Millisecond
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = 15 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = c.log
	}
	return &Poller{c: c, intake: intake, cfg: cfg, log: cfg.Log, status: Status{State: StateStarting, Since: cfg.Now()}}
}

// Status may be called from any goroutine.
func (p *Poller) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Run polls until ctx ends. It never gives up: a platform that is away and a token that was revoked are states, not ends.
func (p *Poller) Run(ctx context.Context) error {
	failures := 0
	ready := false
	for ctx.Err() == nil {
		var err error
		if !ready {
			err = p.prepare(ctx)
			ready = err == nil
		} else {
			_, err = p.RunOnce(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			failures = 0
			p.enter(StatePolling, nil)
			continue
		}
		failures++
		if webhookActive(err) {
			ready = false
		}
		pause(ctx, p.afterFailure(err, failures))
	}
	return nil
}

// prepare learns who we are and removes a webhook, which would make every poll a 409. Pending updates stay.
func (p *Poller) prepare(ctx context.Context) error {
	if p.c.Username() == "" {
		if _, err := p.c.Check(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.c.timeout)
	defer cancel()
	ctx, at := withAttempt(ctx)
	if _, err := p.c.api.DeleteWebhook(ctx, &tg.DeleteWebhookParams{}); err != nil {
		return p.c.explain("remove the bot's webhook", err, at)
	}
	return nil
}

// RunOnce makes one long poll and commits what it brings; it answers how many updates were new.
func (p *Poller) RunOnce(ctx context.Context) (int, error) {
	if err := p.load(ctx); err != nil {
		return 0, err
	}
	raw, err := p.c.getUpdates(ctx, p.from(), p.cfg.Wait)
	if err != nil {
		return 0, fmt.Errorf("fetch updates: %w", err)
	}
	if len(raw) == 0 {
		return 0, nil
	}
	now := p.cfg.Now()
	next := int64(0)
	batch := make([]pulse.Inbound, 0, len(raw))
	for _, r := range raw {
		in, id, err := p.c.inbound(r, now)
		if err != nil {
			p.log.Error("an update without a usable id was skipped", "error", err)
			continue
		}
		next = max(next, id+1)
		batch = append(batch, in)
	}
	if len(batch) == 0 {
		return 0, fmt.Errorf("read updates: %w", errBadAnswer)
	}
	fresh, err := p.intake.Receive(ctx, p.c.Source(), batch, formatOffset(next, now))
	if err != nil {
		return 0, fmt.Errorf("commit updates: %w", err)
	}
	p.offset, p.heardAt = next, now
	return fresh, nil
}

func (p *Poller) load(ctx context.Context) error {
	if p.loaded {
		return nil
	}
	text, err := p.intake.Offset(ctx, p.c.Source())
	if err != nil {
		return fmt.Errorf("read offset: %w", err)
	}
	p.offset, p.heardAt = parseOffset(text, p.cfg.Now())
	p.loaded = true
	return nil
}

// quietLimit is how long an offset is trusted. After a week without updates the platform starts counting anew at a random number;
// an offset above it would confirm, unseen, everything that comes. Asked without one it gives what is unconfirmed, and what
// was committed before is known by its id.
const quietLimit = 5 * 24 * time.Hour

func (p *Poller) from() int64 {
	if p.cfg.Now().Sub(p.heardAt) > quietLimit {
		return 0
	}
	return p.offset
}

// The stored offset is "<next update id>@<unix seconds of the last update>".
func formatOffset(next int64, at time.Time) string {
	return strconv.FormatInt(next, 10) + "@" + strconv.FormatInt(at.Unix(), 10)
}

func parseOffset(text string, now time.Time) (int64, time.Time) {
	head, tail, found := strings.Cut(text, "@")
	next, err := strconv.ParseInt(head, 10, 64)
	if err != nil || next < 0 {
		return 0, now
	}
	if !found {
		return next, now
	}
	sec, err := strconv.ParseInt(tail, 10, 64)
	if err != nil {
		return next, now
	}
	return next, time.Unix(sec, 0)
}

// afterFailure notes the state and says how long to wait: what the platform asks for, else longer each time, with jitter so that
// two processes do not knock each other out in step.
func (p *Poller) afterFailure(err error, failures int) time.Duration {
	wait := p.cfg.MinBackoff << min(failures-1, 16)
	if wait <= 0 || wait > p.cfg.MaxBackoff {
		wait = p.cfg.MaxBackoff
	}
	wait = wait/2 + rand.N(wait/2+1)
	state := StateRetrying
	var refused *apiError
	switch {
	case errors.As(err, &refused) && refused.Code == http.StatusConflict && !webhookActive(err):
		state = StateStandby
		wait = p.cfg.MaxBackoff/2 + rand.N(p.cfg.MaxBackoff/2+1)
	case errors.As(err, &refused) && refused.RetryAfter > 0:
		wait = refused.RetryAfter
	case errors.As(err, &refused) && (refused.Code == http.StatusUnauthorized || refused.Code == http.StatusNotFound),
		pulse.CodeOf(err) == pulse.CodeUnauthorized:
		state = StateUnauthorized
		wait = p.cfg.MaxBackoff
	}
	p.enter(state, err)
	return wait
}

var stateLines = map[string]string{
	StateRetrying: "Telegram updates cannot be fetched or stored; trying again",
	StateStandby: "another process fetches this bot's updates; standing by (only one may: stop the other, " +
		"or give each its own bot)",
	StateUnauthorized: "Telegram refuses the bot token; set a valid one (telegram.token or PULSE_TELEGRAM_TOKEN) and restart",
}

// enter logs changes of state, not every attempt: an outage of an hour is two lines.
func (p *Poller) enter(state string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.status.State
	text := ""
	if err != nil {
		text = err.Error()
	}
	if before == state {
		p.status.Err = text
		return
	}
	p.status = Status{State: state, Since: p.cfg.Now(), Err: text}
	if line := stateLines[state]; line != "" {
		p.log.Warn(line, "error", text)
	} else {
		p.log.Info("fetching Telegram updates", "before", before)
	}
}

func webhookActive(err error) bool {
	var refused *apiError
	return errors.As(err, &refused) && refused.Code == http.StatusConflict && strings.Contains(refused.Description, "webhook")
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
