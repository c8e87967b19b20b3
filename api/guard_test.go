package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pulseloop/api"
	"pulseloop/api/apitest"
	"pulseloop/api/wire"
	"pulseloop/pulse"
)

// who may call a route.
type who int

const (
	everybody who = iota // health
	loopback             // whoever is on the machine
	holder               // whoever has the token
)

// matrix is written out here a second time, so that a slip in the table of
// routes is a failure and not a new rule.
var matrix = map[string]who{
	"POST /api/pulse/start": loopback, "GET /api/pulse": loopback, "GET /api/pulse/{id}": loopback,
	"POST /api/pulse/{id}/pause": loopback, "POST /api/pulse/{id}/abort": loopback,
	"POST /api/pulse/{id}/resume": holder, "POST /api/pulse/{id}/answer": holder, "POST /api/sessions/{id}/message": holder,
	"GET /api/pulse/{id}/events": loopback, "GET /api/pulse/{id}/turns": loopback, "GET /api/pulse/{id}/prompt": loopback,
	"GET /api/projects": loopback, "POST /api/projects": holder, "POST /api/pair": holder,
	"GET /ws": loopback, "GET /healthz": everybody, "GET /readyz": loopback, "GET /metrics": loopback, "GET /openapi.json": loopback,
	"GET /": loopback, "GET /assets/{name}": loopback,
}

var bodies = map[string]string{
	"POST /api/pulse/start": `{"projectName":"my-app","goal":"go"}`, "POST /api/pulse/{id}/answer": `{"text":"yes"}`,
	"POST /api/sessions/{id}/message": `{"text":"hello"}`, "POST /api/projects": `{"path":"/src/x"}`,
}

// ask sends one request to a fresh world and gives its status and body.
func ask(t *testing.T, listen, route string, header map[string]string) (int, string, []string) {
	t.Helper()
	w := apitest.New()
	now := w.Now
	s, err := api.New(api.Config{Doer: w, Reader: w, Feed: w, Registrar: w, Pairer: w, Token: token, TokenFile: "/var/lib/pulse/token", Listen: listen,
		Clock: func() time.Time { now = now.Add(time.Second); return now }})
	if err != nil {
		t.Fatal(err)
	}
	w.AddProject("my-app", "/src/my-app")
	ses := w.AddSession(pulse.Session{})
	w.AddIteration(pulse.Iteration{SessionID: ses.ID, Number: 1})
	method, path, _ := strings.Cut(route, " ")
	path = strings.NewReplacer("{id}", string(ses.ID), "{name}", "app.js").Replace(path)
	if strings.HasSuffix(path, "resume") || strings.HasSuffix(path, "answer") {
		w.Block(ses.ID, "well?")
	}
	req := httptest.NewRequest(method, path, strings.NewReader(bodies[route]))
	req.Host = "127.0.0.1:3002"
	if bodies[route] != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		if k == "Host" {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, req)
	return rec.Code, rec.Body.String(), w.Calls()
}

func TestWhoMayDoWhat(t *testing.T) {
	routes := api.RouteNames()
	if len(routes) != len(matrix) {
		t.Fatalf("%d routes, %d in the matrix", len(routes), len(matrix))
	}
	credentials := map[string]map[string]string{
		"none": {}, "right": {"Authorization": "Bearer " + token}, "lower case scheme": {"Authorization": "bearer " + token},
		"wrong": {"Authorization": "Bearer nope"}, "empty": {"Authorization": "Bearer "}, "no scheme": {"Authorization": token}, "basic": {"Authorization": "Basic " + token},
		"cookie": {"Cookie": "token=" + token},
	}
	for _, route := range routes {
		rule, ok := matrix[route]
		if !ok {
			t.Errorf("%s is not in the matrix", route)
		}
		for _, listen := range []string{"127.0.0.1:3002", "0.0.0.0:3002"} {
			for name, header := range credentials {
				absent := name == "none" || name == "cookie"
				allowed := name == "right" || name == "lower case scheme" || (absent && (rule == everybody || rule == loopback && strings.HasPrefix(listen, "127.")))
				status, body, calls := ask(t, listen, route, header)
				if allowed == (status == 401) || (allowed && status >= 400 && status != 426) {
					t.Errorf("%s on %s with token %s: status %d, allowed %v: %s", route, listen, name, status, allowed, body)
				}
				if !allowed && len(calls) != 0 {
					t.Errorf("%s on %s with token %s did %q", route, listen, name, calls)
				}
				if !allowed && !strings.Contains(body, "/var/lib/pulse/token") {
					t.Errorf("%s: no hint to the token in %s", route, body)
				}
			}
		}
	}
}

func TestHostAndOrigin(t *testing.T) {
	for _, c := range []struct {
		header  map[string]string
		allowed bool
	}{
		{map[string]string{"Host": "localhost:3002"}, true},
		{map[string]string{"Host": "LOCALHOST"}, true},
		{map[string]string{"Host": "[::1]:3002"}, true},
		{map[string]string{"Host": "127.0.0.9"}, true},
		{map[string]string{"Host": "evil.example:3002"}, false},
		{map[string]string{"Host": "localhost.evil.example"}, false},
		{map[string]string{"Host": "127.0.0.1.nip.io:3002"}, false},
		{map[string]string{"Host": "192.168.1.5:3002"}, false},
		{map[string]string{"Host": "evil.example", "X-Forwarded-Host": "localhost"}, false},
		{map[string]string{"Host": ""}, false},
		{map[string]string{"Host": "pulse.example.com"}, true}, // configured
		{map[string]string{"Host": "sub.pulse.example.com"}, false},
		{map[string]string{"Origin": "http://127.0.0.1:3002"}, true},
		{map[string]string{"Origin": "http://localhost:3002"}, false}, // another origin than the host asked
		{map[string]string{"Origin": "http://127.0.0.1:8080"}, false},
		{map[string]string{"Origin": "http://127.0.0.1"}, false},
		{map[string]string{"Origin": "http://evil.example"}, false},
		{map[string]string{"Origin": "null"}, false},
		{map[string]string{"Origin": "file://"}, false},
		{map[string]string{"Origin": ""}, false},
		{map[string]string{"Origin": "https://pulse.example.com"}, true},
		{map[string]string{"Origin": "https://pulse.example.com:8443"}, false},
	} {
		for _, route := range api.RouteNames() {
			header := map[string]string{"Authorization": "Bearer " + token}
			for k, v := range c.header {
				header[k] = v
			}
			status, calls := hostAsk(t, route, header)
			if c.allowed == (status == 403) {
				t.Errorf("%s with %v: status %d", route, c.header, status)
			}
			if !c.allowed && len(calls) != 0 {
				t.Errorf("%s with %v did %q", route, c.header, calls)
			}
		}
	}
}

func hostAsk(t *testing.T, route string, header map[string]string) (int, []string) {
	t.Helper()
	w := apitest.New()
	s, err := api.New(api.Config{Doer: w, Reader: w, Feed: w, Registrar: w, Pairer: w, Token: token, AllowedHosts: []string{"pulse.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	w.AddProject("my-app", "/src/my-app")
	ses := w.AddSession(pulse.Session{})
	method, path, _ := strings.Cut(route, " ")
	req := httptest.NewRequest(method, strings.NewReplacer("{id}", string(ses.ID), "{name}", "app.js").Replace(path), strings.NewReader(bodies[route]))
	req.Host = "127.0.0.1:3002"
	req.Header.Set("Content-Type", "application/json")
	for k, v := range header {
		if k == "Host" {
			req.Host = v
			continue
		}
		req.Header[k] = []string{v}
	}
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, req)
	return rec.Code, w.Calls()
}

func TestListening(t *testing.T) {
	w := apitest.New()
	for listen, ok := range map[string]bool{
		"": true, "127.0.0.1:0": true, "localhost:3002": true, "[::1]:3002": true, "127.1.2.3:80": true,
		"0.0.0.0:3002": false, ":3002": false, "192.168.1.5:3002": false, "[::]:3002": false, "example.com:80": false, "3002": false, "localhost": false,
	} {
		_, err := api.New(api.Config{Doer: w, Reader: w, Feed: w, Listen: listen})
		if (err == nil) != ok {
			t.Errorf("%q without a token: %v", listen, err)
		}
		if err != nil && pulse.CodeOf(err) != pulse.CodeInvalid {
			t.Errorf("%q: no clear error: %v", listen, err)
		}
	}
	if _, err := api.New(api.Config{Doer: w, Reader: w, Feed: w, Listen: "0.0.0.0:3002", Token: "x"}); err != nil {
		t.Errorf("with a token: %v", err)
	}
	if _, err := api.New(api.Config{}); err == nil {
		t.Error("a server of nothing")
	}
}

// Without any token configured nobody can decide anything, whatever is sent.
func TestNoTokenConfigured(t *testing.T) {
	r := serve(t, func(c *api.Config) { c.Token = "" })
	for _, header := range []string{"Authorization: Bearer ", "Authorization: Bearer", "Authorization: Bearer " + token, "X-None: 1"} {
		if a := r.call("POST", "/api/pair", "", header); a.status != 401 {
			t.Errorf("%s: status %d", header, a.status)
		}
	}
	if a := r.call("GET", "/api/pulse", ""); a.status != 200 {
		t.Errorf("reading: %d", a.status)
	}
}

func TestWrongTokensAreSlowedDown(t *testing.T) {
	r := serve(t, nil) // its clock stands still
	slowed := false
	for range 60 {
		a := r.call("GET", "/api/pulse", "", "Authorization: Bearer guess")
		slowed = slowed || a.status == 429 && a.header.Get("Retry-After") != ""
	}
	if !slowed {
		t.Error("sixty guesses at once")
	}
	r.want(200, "GET", "/api/pulse", "", nil) // the holder is not locked out
}

func TestMethodsAndPaths(t *testing.T) {
	r := serve(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"DELETE", "/api/pulse/x", 405, "GET"}, {"GET", "/api/pulse/start", 405, "POST"}, {"PUT", "/api/projects", 405, "GET, POST"},
		{"OPTIONS", "/api/pulse", 405, "GET"}, {"TRACE", "/", 405, "GET"}, {"POST", "/ws", 405, "GET"}, {"GET", "/ws", 426, ""},
		{"GET", "/nothing", 404, ""}, {"GET", "/api/pulse/", 404, ""}, {"GET", "/assets/x.js", 404, ""}, {"GET", "/assets/..%2findex.html", 404, ""}, {"POST", "/nothing", 404, ""},
	} {
		a := r.call(c.method, c.path, "")
		if a.status != c.status || a.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: status %d, Allow %q", c.method, c.path, a.status, a.header.Get("Allow"))
		}
		a.fault(t)
	}
	if a := r.call("HEAD", "/healthz", ""); a.status != 200 || len(a.body) != 0 {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
}

func TestPage(t *testing.T) {
	r := serve(t, nil)
	a := r.want(200, "GET", "/", "", nil)
	csp := a.header.Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "ws://"+r.addr) {
		t.Errorf("policy %q", csp)
	}
	page := string(a.body)
	if strings.Contains(page, "<style") || strings.Contains(page, "style=") || strings.Contains(page, "onclick") || strings.Count(page, "<script") != strings.Count(page, "<script src=") {
		t.Error("the page has what its policy forbids")
	}
	for _, asset := range []string{"/assets/app.js", "/assets/style.css"} {
		if !strings.Contains(page, asset) {
			t.Errorf("the page does not use %s", asset)
		}
		if b := r.want(200, "GET", asset, "", nil); len(b.body) == 0 || b.header.Get("X-Content-Type-Options") != "nosniff" || strings.Contains(string(b.body), "innerHTML") {
			t.Errorf("asset %s: %v", asset, b.header)
		}
	}
}

func TestHooksGuardThemselves(t *testing.T) {
	r := serve(t, func(c *api.Config) {
		c.Hooks = map[string]http.Handler{
			"/telegram/webhook": http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				b, _ := io.ReadAll(req.Body)
				w.Header().Set("X-Saw", req.Method+" "+req.Host+" "+string(b))
			}),
			"/panics": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("the password is hunter2") }),
		}
	})
	a := r.call("POST", "/telegram/webhook", "update", "Host: bot.example.com", "Authorization: Bearer theirs")
	if got := a.header.Get("X-Saw"); a.status != 200 || got != "POST bot.example.com update" {
		t.Errorf("%d %q", a.status, got)
	}
	a = r.call("POST", "/panics", "")
	if f := a.fault(t); a.status != 500 || strings.Contains(string(a.body), "hunter2") || f.Code != pulse.CodeInternal {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestRequestIDs(t *testing.T) {
	r := serve(t, nil)
	if got := r.call("GET", "/healthz", "", "X-Request-Id: abc-1.2_3").header.Get("X-Request-Id"); got != "abc-1.2_3" {
		t.Errorf("own id became %q", got)
	}
	forged := "x level=ERROR msg=fire"
	a, b := r.call("GET", "/healthz", "", "X-Request-Id: "+forged).header.Get("X-Request-Id"), r.call("GET", "/healthz", "").header.Get("X-Request-Id")
	if a == forged || len(a) < 16 || a == b {
		t.Errorf("ids %q %q", a, b)
	}
}

func TestAnswersAreRedacted(t *testing.T) {
	r := serve(t, func(c *api.Config) {
		c.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }
	})
	s := r.session(pulse.Session{Goal: "log in with hunter2"})
	r.AddIteration(pulse.Iteration{SessionID: s.ID, Number: 1, TaskContent: "use hunter2"})
	var d wire.SessionDetail
	a := r.want(200, "GET", "/api/pulse/"+string(s.ID), "", &d)
	p := r.want(200, "GET", "/api/pulse/"+string(s.ID)+"/prompt", "", nil)
	if strings.Contains(string(a.body)+string(p.body), "hunter2") || d.Session.Goal != "log in with [redacted]" || string(p.body) != "use [redacted]" {
		t.Errorf("%s %s", a.body, p.body)
	}
}
