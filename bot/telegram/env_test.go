package telegram_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"pulseloop/bot/telegram"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/pulse"
)

// intake keeps updates as the database does: by source and id, together with the offset.
type intake struct {
	mu      sync.Mutex
	changed chan struct{}
	seen    map[string]int // how often an id was stored anew: never more than once
	order   []pulse.Inbound
	offset  string
	// before and after run around the commit; an error of after is a commit whose answer was lost.
	before, after func() error
}

func newIntake() *intake { return &intake{changed: make(chan struct{}), seen: map[string]int{}} }

func (i *intake) Receive(ctx context.Context, source string, updates []pulse.Inbound, offset string) (int, error) {
	i.mu.Lock()
	before, after := i.before, i.after
	i.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return 0, err
		}
	}
	i.mu.Lock()
	fresh := 0
	for _, u := range updates {
		key := source + " " + u.UpdateID
		if i.seen[key] == 0 {
			i.seen[key]++
			i.order = append(i.order, u)
			fresh++
		}
	}
	if offset != "" {
		i.offset = offset
	}
	close(i.changed)
	i.changed = make(chan struct{})
	i.mu.Unlock()
	if after != nil {
		if err := after(); err != nil {
			return 0, err
		}
	}
	return fresh, ctx.Err()
}

func (i *intake) Offset(context.Context, string) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.offset, nil
}

func (i *intake) len() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.order)
}

func (i *intake) fail(before, after func() error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.before, i.after = before, after
}

func (i *intake) await(ctx context.Context, n int) error {
	for {
		i.mu.Lock()
		have, changed := len(i.order), i.changed
		i.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("not all updates arrived")
		}
	}
}

// logBuffer collects what was logged; the token must never be in it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type env struct {
	srv    *telegramtest.Server
	client *telegram.Client
	log    *logBuffer
	slog   *slog.Logger
	ctx    context.Context
}

func setup(t *testing.T, opt telegramtest.Options) *env {
	t.Helper()
	e := &env{srv: telegramtest.Start(t, opt), log: &logBuffer{}}
	e.slog = slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := telegram.New(telegram.Config{Token: e.srv.Token(), APIURL: e.srv.URL(), Log: e.slog, CallTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	e.client = c
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	e.ctx = ctx
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if strings.Contains(e.log.String(), secretPart(e.srv.Token())) {
			t.Errorf("the token is in the log:\n%s", e.log.String())
		}
	})
	return e
}

func secretPart(token string) string { _, s, _ := strings.Cut(token, ":"); return s }

// patient reads the time forward by itself: limits never make a test wait.
type patient struct {
	mu  sync.Mutex
	now time.Time
}

func newPatient() *patient { return &patient{now: time.Unix(1_800_000_000, 0)} }

func (p *patient) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *patient) add(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}
