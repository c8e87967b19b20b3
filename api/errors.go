package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

// statuses is the one place where a code becomes an HTTP status.
var statuses = map[pulse.Code]int{
	pulse.CodeInvalid:      http.StatusBadRequest,
	pulse.CodeNotFound:     http.StatusNotFound,
	pulse.CodeConflict:     http.StatusConflict,
	pulse.CodeUnauthorized: http.StatusUnauthorized,
	pulse.CodeForbidden:    http.StatusForbidden,
	pulse.CodeUnprocessed:  http.StatusUnprocessableEntity,
	pulse.CodeTooLarge:     http.StatusRequestEntityTooLarge,
	pulse.CodeRateLimited:  http.StatusTooManyRequests,
	pulse.CodeUnavailable:  http.StatusServiceUnavailable,
	pulse.CodeInternal:     http.StatusInternalServerError,
}

// statusOf gives the HTTP status of a code; an unknown one is our fault.
func statusOf(c pulse.Code) int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// httpError is a refusal that HTTP has a status of its own for, finer than
// the code: 405 and 415.
type httpError struct {
	status int
	header http.Header
	said   *pulse.Error
}

func (e *httpError) Error() string { return e.said.Error() }
func (e *httpError) Unwrap() error { return e.said }

// told turns any error into what the caller may be told.
func told(err error) (status int, d wire.ErrorDetail, header http.Header) {
	var h *httpError
	if errors.As(err, &h) {
		return h.status, wire.ErrorDetail{Code: h.said.Code, Message: h.said.Message, Hint: h.said.Hint}, h.header
	}
	var e *pulse.Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &e):
	case errors.As(err, &tooLarge):
		e = &pulse.Error{Code: pulse.CodeTooLarge, Message: "the body is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes",
			Hint: "send less at once"}
	case errors.Is(err, pulse.ErrNone):
		e = pulse.NotFound("there is no such thing at present", "")
	case errors.Is(err, pulse.ErrStale):
		e = pulse.Conflict("it changed meanwhile", "read it again and repeat the request")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e = &pulse.Error{Code: pulse.CodeUnavailable, Message: "the request took too long", Hint: "try again"}
	default:
		e = &pulse.Error{Code: pulse.CodeInternal, Message: "something went wrong here", Hint: "the log has the details under this request's id (X-Request-Id)"}
	}
	return statusOf(e.Code), wire.ErrorDetail{Code: e.Code, Message: e.Message, Hint: e.Hint}, nil
}

// refuse writes an error; what the caller may not see goes to the log.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, d, header := told(err)
	for k, v := range header {
		w.Header()[k] = v
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="pulse"`)
	}
	if status == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "1")
	}
	if status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.cfg.Log.Error("answer request", "request_id", w.Header().Get(requestIDHeader), "method", r.Method, "path", r.URL.Path,
			"status", status, "err", s.cfg.Redact(err.Error()))
	}
	s.reply(w, status, wire.Error{Error: d})
}

// reply writes v as JSON.
func (s *Server) reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.cfg.Log.Error("encode answer", "err", err)
		status, b = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer could not be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	// A failed write means that the caller is gone: nobody to tell.
	_, _ = w.Write(append(redactJSON(b, s.cfg.Redact), '\n'))
}

// quote shows what somebody sent, cut to a length that fits a message.
func quote(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}
