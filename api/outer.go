package api

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"pulseloop/pulse"
)

const requestIDHeader = "X-Request-Id"

// sentID is what a caller's own request id may look like; anything else
// could forge lines of a log.
var sentID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// outer wraps every handler, the hooks included: an id, headers that keep
// browsers from guessing, a count, and an end to panics.
func (s *Server) outer(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := s.cfg.Clock()
		id := r.Header.Get(requestIDHeader)
		if !sentID.MatchString(id) {
			id = strings.ToLower(rand.Text())
		}
		h := w.Header()
		h.Set(requestIDHeader, id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		rec := &recorder{ResponseWriter: w}
		defer func() {
			if p := recover(); p != nil {
				s.panicked(rec, r, p)
			}
			s.tally.request(name, r.Method, rec.code())
			s.cfg.Log.Debug("request", "request_id", id, "method", r.Method, "route", name, "status", rec.code(), "took", s.cfg.Clock().Sub(begun))
		}()
		ctx := r.Context()
		if r.URL.Path != "/ws" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.cfg.Limits.Write-s.cfg.Limits.Write/10)
			defer cancel()
		}
		next.ServeHTTP(rec, r.WithContext(ctx))
	})
}

// panicked answers a broken handler. ErrAbortHandler is a handler's wish to
// cut the connection, and is passed on.
func (s *Server) panicked(rec *recorder, r *http.Request, p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.cfg.Log.Error("handler panicked", "request_id", rec.Header().Get(requestIDHeader), "path", r.URL.Path,
		"panic", s.cfg.Redact(fmt.Sprint(p)), "stack", s.cfg.Redact(string(debug.Stack())))
	if rec.status == 0 {
		s.refuse(rec, r, &pulse.Error{Code: pulse.CodeInternal, Message: "something went wrong here",
			Hint: "the log has the details under this request's id (X-Request-Id)"})
	}
}

// recorder remembers the status for the count.
type recorder struct {
	http.ResponseWriter
	status int
	taken  net.Conn // the connection, once it was handed over
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

func (r *recorder) code() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// Unwrap lets http.ResponseController reach what lies below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Hijack hands the connection over to the WebSocket.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.status, r.taken = http.StatusSwitchingProtocols, c
		err = c.SetDeadline(time.Time{})
	}
	return c, rw, err
}
