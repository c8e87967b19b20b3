package api

import (
	"net/http"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

// healthz says that the process answers, and nothing else: it is the one
// path that strangers may read.
func (s *Server) healthz(http.ResponseWriter, *http.Request) (int, any, error) {
	return http.StatusOK, wire.Status{Status: "ok"}, nil
}

// readyz says whether work can be done: the database answers, and so on.
func (s *Server) readyz(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if s.cfg.Ready != nil {
		if err := s.cfg.Ready(r.Context()); err != nil {
			return 0, nil, &pulse.Error{Code: pulse.CodeUnavailable, Message: "not ready", Hint: "`pulse doctor` says what is missing", Err: err}
		}
	}
	return http.StatusOK, wire.Status{Status: "ready"}, nil
}
