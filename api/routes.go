package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"pulseloop/pulse"
)

// answer is how a JSON route answers: a status and a body, or an error.
type answer func(w http.ResponseWriter, r *http.Request) (status int, body any, err error)

// route is one line of the API. Exactly one of json and raw is set.
type route struct {
	method  string
	pattern string // as net/http has it; also the name in metrics and in the OpenAPI document
	entry   entry
	query   []string // the parameters it knows
	json    answer
	raw     http.HandlerFunc
}

// routes is the whole API in one table: what is not here does not exist.
func (s *Server) routes() []route {
	return []route{
		{method: "POST", pattern: "/api/pulse/start", entry: openLoopback, json: s.start},
		{method: "GET", pattern: "/api/pulse", entry: openLoopback, query: []string{"status", "project", "limit"}, json: s.list},
		{method: "GET", pattern: "/api/pulse/{id}", entry: openLoopback, json: s.show},
		{method: "POST", pattern: "/api/pulse/{id}/pause", entry: openLoopback, json: s.pause},
		{method: "POST", pattern: "/api/pulse/{id}/abort", entry: openLoopback, json: s.abort},
		{method: "POST", pattern: "/api/pulse/{id}/resume", entry: tokenAlways, json: s.resume},
		{method: "POST", pattern: "/api/pulse/{id}/answer", entry: tokenAlways, json: s.answer},
		{method: "GET", pattern: "/api/pulse/{id}/events", entry: openLoopback, query: []string{"after", "limit"}, json: s.events},
		{method: "GET", pattern: "/api/pulse/{id}/turns", entry: openLoopback, json: s.turns},
		{method: "GET", pattern: "/api/pulse/{id}/prompt", entry: openLoopback, query: []string{"iteration"}, raw: s.prompt},
		{method: "POST", pattern: "/api/sessions/{id}/message", entry: tokenAlways, json: s.say},
		{method: "GET", pattern: "/api/projects", entry: openLoopback, json: s.projects},
		{method: "POST", pattern: "/api/projects", entry: tokenAlways, json: s.addProject},
		{method: "POST", pattern: "/api/pair", entry: tokenAlways, json: s.pair},
		{method: "GET", pattern: "/ws", entry: openLoopback, raw: s.socket},
		{method: "GET", pattern: "/healthz", entry: openAlways, json: s.healthz},
		{method: "GET", pattern: "/readyz", entry: openLoopback, json: s.readyz},
		{method: "GET", pattern: "/metrics", entry: openLoopback, raw: s.metrics},
		{method: "GET", pattern: "/openapi.json", entry: openLoopback, raw: s.openAPI},
		{method: "GET", pattern: "/{$}", entry: openLoopback, raw: s.page},
		{method: "GET", pattern: "/assets/{name}", entry: openLoopback, raw: s.asset},
	}
}

// mount puts the table behind one handler per path, so that a wrong method
// is told which ones there are.
func (s *Server) mount() http.Handler {
	byPattern := map[string][]route{}
	for _, rt := range s.routes() {
		byPattern[rt.pattern] = append(byPattern[rt.pattern], rt)
	}
	mux := http.NewServeMux()
	for pattern, rts := range byPattern {
		mux.Handle(pattern, s.ours(pattern, rts))
	}
	mux.Handle("/", s.ours("other", nil))
	for path, h := range s.cfg.Hooks {
		// A hook is called by a platform from outside, under a public name and
		// without our token: it checks the platform's own secret.
		mux.Handle(path, s.outer(path, h))
	}
	return mux
}

// ours is the way every route of the table takes: name, origin, method,
// token, query, and then the route itself.
func (s *Server) ours(pattern string, rts []route) http.Handler {
	return s.outer(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.guard.host(r); err != nil {
			s.refuse(w, r, err)
			return
		}
		if err := s.guard.origin(r); err != nil {
			s.refuse(w, r, err)
			return
		}
		rt, err := pick(rts, r)
		if authErr := s.guard.check(r, rt.entry); authErr != nil {
			s.refuse(w, r, authErr)
			return
		}
		if err == nil {
			err = rt.knows(r.URL)
		}
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		s.serve(rt, w, r)
	}))
}

func (s *Server) serve(rt route, w http.ResponseWriter, r *http.Request) {
	if rt.raw != nil {
		rt.raw(w, r)
		return
	}
	status, body, err := rt.json(w, r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	s.reply(w, status, body)
}

// pick finds the route for the method. Without one the answer still needs
// the entry of the strictest, so that a stranger learns nothing.
func pick(rts []route, r *http.Request) (route, error) {
	if len(rts) == 0 {
		return route{entry: openLoopback}, pulse.NotFound("there is nothing at "+quote(r.URL.Path), "GET /openapi.json lists every path")
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	allow := make([]string, 0, len(rts))
	for _, rt := range rts {
		if rt.method == method {
			return rt, nil
		}
		allow = append(allow, rt.method)
	}
	slices.Sort(allow)
	list := strings.Join(allow, ", ")
	return route{entry: openLoopback}, &httpError{status: http.StatusMethodNotAllowed, header: http.Header{"Allow": {list}},
		said: pulse.Invalid("the method "+quote(r.Method)+" is not allowed here", "use "+list)}
}

// knows refuses query parameters the route does not have: a misspelt filter
// would otherwise answer with everything, and a token in an address ends up
// in logs.
func (rt route) knows(u *url.URL) error {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return &pulse.Error{Code: pulse.CodeInvalid, Message: "the query of the address cannot be read", Hint: "encode it", Err: err}
	}
	for name, values := range q {
		if !slices.Contains(rt.query, name) {
			hint := "this path takes no parameters"
			if len(rt.query) > 0 {
				hint = "known are " + strings.Join(rt.query, ", ")
			}
			if strings.Contains(strings.ToLower(name), "token") {
				hint = "the token goes into the header Authorization: Bearer TOKEN"
			}
			return pulse.Invalid("unknown parameter "+quote(name), hint)
		}
		if len(values) > 1 && name != "status" {
			return pulse.Invalid("the parameter "+name+" is there twice", "send it once")
		}
	}
	return nil
}
