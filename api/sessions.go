package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"pulseloop/api/wire"
	"pulseloop/loop"
	"pulseloop/pulse"
)

const (
	defaultList = 50
	mostList    = 500
	mostEvents  = 1000
	leastID     = 8 // characters of a session's id, as pulse.Short shows them
)

// find reads the session that the path names, by its id or the end of it. An
// end of a few characters would name some session by accident.
func (s *Server) find(r *http.Request) (pulse.Session, error) {
	id := strings.ToLower(r.PathValue("id"))
	if len(id) < leastID {
		return pulse.Session{}, pulse.Invalid(quote(id)+" is too short for a session's id",
			"give the whole id or at least its last "+strconv.Itoa(leastID)+" characters; GET /api/pulse lists the sessions")
	}
	if len(id) > 36 || strings.Trim(id, "0123456789abcdef-") != "" {
		return pulse.Session{}, pulse.NotFound("there is no session "+quote(id), "GET /api/pulse lists them")
	}
	found, err := s.cfg.Reader.FindSession(r.Context(), id)
	if errors.Is(err, pulse.ErrNone) {
		return found, pulse.NotFound("there is no session "+quote(id), "GET /api/pulse lists them")
	}
	return found, err
}

// actor says on whose behalf a request acts. The client header only tells
// our own surfaces apart; it grants nothing.
func actor(r *http.Request) (loop.Actor, error) {
	origin, err := originOf(pulse.Origin(r.Header.Get("Pulse-Client")), "the header Pulse-Client")
	return loop.Actor{Name: clientNames[origin], Origin: origin}, err
}

var clientNames = map[pulse.Origin]string{pulse.OriginAPI: "API", pulse.OriginCLI: "CLI", pulse.OriginMCP: "MCP"}

func originOf(o pulse.Origin, name string) (pulse.Origin, error) {
	if o == "" {
		return pulse.OriginAPI, nil
	}
	if clientNames[o] == "" {
		return "", pulse.Invalid(name+" cannot be "+quote(string(o)), "use api, cli or mcp")
	}
	return o, nil
}

func (s *Server) list(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	q := r.URL.Query()
	statuses, err := statusFilter(q["status"])
	if err != nil {
		return 0, nil, err
	}
	limit, err := number(q, "limit", defaultList, 1, mostList)
	if err != nil {
		return 0, nil, err
	}
	f := pulse.SessionFilter{Statuses: statuses, Limit: int(limit)}
	if name := q.Get("project"); name != "" {
		p, err := s.project(r.Context(), name)
		if err != nil {
			return 0, nil, err
		}
		f.ProjectID = p.ID
	}
	found, err := s.cfg.Reader.Sessions(r.Context(), f)
	return http.StatusOK, wire.SessionList{Sessions: wire.FromSessions(found)}, err
}

// statusFilter reads ?status=a,b&status=c.
func statusFilter(values []string) ([]pulse.SessionStatus, error) {
	var out []pulse.SessionStatus
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			st := pulse.SessionStatus(name)
			if _, ok := pulse.SessionTransitions[st]; !ok {
				known := make([]string, 0, len(pulse.SessionStatuses()))
				for _, k := range pulse.SessionStatuses() {
					known = append(known, string(k))
				}
				return nil, pulse.Invalid("unknown status "+quote(name), "use "+strings.Join(known, ", "))
			}
			out = append(out, st)
		}
	}
	return out, nil
}

// number reads a whole number within bounds.
func number(q url.Values, name string, fallback, low, high int64) (int64, error) {
	if !q.Has(name) {
		return fallback, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < low || n > high {
		return 0, pulse.Invalid(name+" cannot be "+quote(q.Get(name)),
			"use a whole number from "+strconv.FormatInt(low, 10)+" to "+strconv.FormatInt(high, 10))
	}
	return n, nil
}

func (s *Server) show(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	found, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	its, err := s.cfg.Reader.Iterations(r.Context(), found.ID)
	if err != nil {
		return 0, nil, err
	}
	d := wire.SessionDetail{Session: wire.FromSession(found), Iterations: wire.FromIterations(its)}
	switch g, err := s.cfg.Reader.OpenGate(r.Context(), found.ID); {
	case err == nil:
		d.Gate = wire.FromGate(g)
	case !errors.Is(err, pulse.ErrNone) && pulse.CodeOf(err) != pulse.CodeNotFound:
		return 0, nil, err
	}
	return http.StatusOK, d, nil
}

// change is the way of every route that changes a session and answers with
// it.
func (s *Server) change(r *http.Request, do func(ctx context.Context, a loop.Actor, id pulse.SessionID) (pulse.Session, error)) (int, any, error) {
	a, err := actor(r)
	if err != nil {
		return 0, nil, err
	}
	found, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	after, err := do(r.Context(), a, found.ID)
	return http.StatusOK, wire.SessionReply{Session: wire.FromSession(after)}, err
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := s.optional(w, r, &struct{}{}); err != nil {
		return 0, nil, err
	}
	return s.change(r, s.cfg.Doer.Pause)
}

func (s *Server) abort(w http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := s.optional(w, r, &struct{}{}); err != nil {
		return 0, nil, err
	}
	return s.change(r, s.cfg.Doer.Abort)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req wire.Resume
	if err := s.optional(w, r, &req); err != nil {
		return 0, nil, err
	}
	if err := textLength("answer", req.Answer); err != nil {
		return 0, nil, err
	}
	return s.change(r, func(ctx context.Context, a loop.Actor, id pulse.SessionID) (pulse.Session, error) {
		return s.cfg.Doer.Resume(ctx, a, id, strings.TrimSpace(req.Answer))
	})
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req wire.Answer
	if err := s.body(w, r, &req); err != nil {
		return 0, nil, err
	}
	req.Text, req.Choice = strings.TrimSpace(req.Text), strings.TrimSpace(req.Choice)
	if req.Text == "" && req.Choice == "" {
		return 0, nil, pulse.Invalid("there is no answer", "send choice, text or both")
	}
	if err := errors.Join(textLength("answer", req.Text), textLength("choice", req.Choice)); err != nil {
		return 0, nil, err
	}
	if req.GateID != "" && !pulse.ValidUUID(string(req.GateID)) {
		return 0, nil, pulse.Invalid("gateId cannot be "+quote(string(req.GateID)), "GET /api/pulse/{id} shows the open gate; without gateId that one is meant")
	}
	return s.change(r, func(ctx context.Context, a loop.Actor, id pulse.SessionID) (pulse.Session, error) {
		return s.cfg.Doer.Answer(ctx, a, id, req.GateID, req.Choice, req.Text)
	})
}

func (s *Server) say(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req wire.Message
	if err := s.body(w, r, &req); err != nil {
		return 0, nil, err
	}
	text := strings.TrimSpace(req.Text)
	if text == "" {
		return 0, nil, pulse.Invalid("text is missing", "send what you want to say as text")
	}
	if err := textLength("message", text); err != nil {
		return 0, nil, err
	}
	a, err := actor(r)
	if err != nil {
		return 0, nil, err
	}
	found, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	said, err := s.cfg.Doer.Say(r.Context(), a, found.ID, text)
	return http.StatusOK, wire.MessageReply{Session: wire.FromSession(said.Session), As: said.As}, err
}

func (s *Server) events(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	q := r.URL.Query()
	after, err := number(q, "after", 0, 0, 1<<53)
	if err != nil {
		return 0, nil, err
	}
	limit, err := number(q, "limit", mostEvents, 1, mostEvents)
	if err != nil {
		return 0, nil, err
	}
	found, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	// One more than asked for tells whether there is more.
	got, err := s.cfg.Feed.Events(r.Context(), found.ID, after, int(limit)+1)
	if err != nil {
		return 0, nil, err
	}
	out := wire.EventList{Next: after, More: len(got) > int(limit)}
	if out.More {
		got = got[:limit]
	}
	if len(got) > 0 {
		out.Next = got[len(got)-1].Seq
	}
	out.Events = wire.FromEvents(got)
	return http.StatusOK, out, nil
}

func (s *Server) turns(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	found, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	got, err := s.cfg.Reader.Turns(r.Context(), found.ID)
	return http.StatusOK, wire.TurnList{Turns: wire.FromTurns(got)}, err
}

// prompt answers with the exact text an iteration was given.
func (s *Server) prompt(w http.ResponseWriter, r *http.Request) {
	text, err := s.promptText(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	// A failed write means that the caller is gone: nobody to tell.
	_, _ = w.Write([]byte(s.cfg.Redact(text)))
}

func (s *Server) promptText(r *http.Request) (string, error) {
	wanted, err := number(r.URL.Query(), "iteration", 0, 1, 1_000_000)
	if err != nil {
		return "", err
	}
	found, err := s.find(r)
	if err != nil {
		return "", err
	}
	its, err := s.cfg.Reader.Iterations(r.Context(), found.ID)
	if err != nil {
		return "", err
	}
	var hit *pulse.Iteration
	for i, it := range its {
		if wanted != 0 && int64(it.Number) != wanted {
			continue
		}
		if hit == nil || it.Number > hit.Number || (it.Number == hit.Number && it.Attempt >= hit.Attempt) {
			hit = &its[i]
		}
	}
	if hit == nil {
		return "", pulse.NotFound("there is no such iteration", "this session has had "+strconv.Itoa(found.CurrentIteration))
	}
	return hit.TaskContent, nil
}
