package telegram

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"
)

const (
	maxResponse = 32 << 20
	maxReplay   = 1 << 20
)

// transport is the HTTP client under every call. It bounds answers, follows no redirect (the token is in the path), and notes
// on the way what is needed to say later whether a failed call can have been carried out.
type transport struct{ client *http.Client }

func newTransport(rt http.RoundTripper) *transport {
	if rt == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		// Shorter than any proxy in front of the API keeps them: a request written to a connection that is just being
		// closed looks as if it might have been delivered.
		t.IdleConnTimeout = 20 * time.Second
		rt = t
	}
	return &transport{client: &http.Client{Transport: rt,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Do implements the client seam of go-telegram/bot.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	if err := replayable(req); err != nil {
		return nil, err
	}
	at, _ := req.Context().Value(attemptKey{}).(*attempt)
	if at != nil {
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			WroteRequest: func(i httptrace.WroteRequestInfo) {
				if i.Err == nil {
					at.note(func() { at.wrote = true })
				}
			}}))
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	if at != nil {
		at.note(func() {
			at.code = resp.StatusCode
			if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
				at.after = time.Duration(s) * time.Second
			}
		})
	}
	resp.Body = &bounded{Reader: io.LimitReader(resp.Body, maxResponse), Closer: resp.Body}
	return resp, nil
}

// replayable gives small bodies a length and a way to be read again: without them Go's transport cannot repeat a request of which
// it has written nothing, and a connection that went stale would fail the call.
func replayable(req *http.Request) error {
	if req.Body == nil || req.GetBody != nil {
		return nil
	}
	head, err := io.ReadAll(io.LimitReader(req.Body, maxReplay+1))
	if err != nil {
		return errors.Join(err, req.Body.Close())
	}
	if len(head) > maxReplay {
		req.Body = &bounded{Reader: io.MultiReader(bytes.NewReader(head), req.Body), Closer: req.Body}
		return nil
	}
	if err := req.Body.Close(); err != nil {
		return err
	}
	req.ContentLength = int64(len(head))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(head)), nil }
	req.Body, err = req.GetBody()
	return err
}

type bounded struct {
	io.Reader
	io.Closer
}

type attemptKey struct{}

// attempt is how far one call came.
type attempt struct {
	mu    sync.Mutex
	wrote bool // the whole request left this machine
	code  int  // HTTP status, 0 without an answer
	after time.Duration
}

func withAttempt(ctx context.Context) (context.Context, *attempt) {
	at := &attempt{}
	return context.WithValue(ctx, attemptKey{}, at), at
}

func (a *attempt) note(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *attempt) status() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.code
}

// uncertain says whether the call may have been carried out although no proper answer came.
func (a *attempt) uncertain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wrote && (a.code == 0 || a.code == http.StatusBadGateway || a.code == http.StatusGatewayTimeout || a.code < 300)
}

func (a *attempt) retryAfter() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.after
}
