package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"pulseloop/api/wire"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// operation is what the served description says of one path and method.
type operation struct {
	Security  []map[string][]string `json:"security"`
	Responses map[string]struct {
		Ref     string         `json:"$ref"`
		Content map[string]any `json:"content"`
	} `json:"responses"`
}

// guarded reports whether the operation needs the token even on loopback.
func (o operation) guarded() bool {
	return !slices.ContainsFunc(o.Security, func(s map[string][]string) bool { return len(s) == 0 })
}

// described reads the description that the program serves of itself.
func described(t *testing.T, p *e2etest.Pulse) map[string]operation {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]operation `json:"paths"`
	}
	_, body := rest{t: t, p: p}.call("", "GET", "/openapi.json", "")
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]operation{}
	for path, methods := range doc.Paths {
		for method, o := range methods {
			out[strings.ToUpper(method)+" "+path] = o
		}
	}
	return out
}

// rest calls the API as any program would, without our own client.
type rest struct {
	t *testing.T
	p *e2etest.Pulse
}

func (r rest) call(token, method, path, body string) (*http.Response, []byte) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(e2etest.Context(r.t), method, r.p.URL()+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res, b
}

// object calls with the token, wants the status, and gives the JSON object of the answer.
func (r rest) object(want int, method, path, body string) map[string]any {
	r.t.Helper()
	res, b := r.call(r.p.Token(), method, path, body)
	if res.StatusCode != want {
		r.t.Fatalf("%s %s: status %d, want %d: %s", method, path, res.StatusCode, want, b)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		r.t.Fatalf("%s %s: %v: %s", method, path, err, b)
	}
	return out
}

func (r rest) text(path, kind string) string {
	r.t.Helper()
	res, b := r.call("", "GET", path, "")
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), kind) {
		r.t.Fatalf("GET %s: status %d, type %q: %s", path, res.StatusCode, res.Header.Get("Content-Type"), b)
	}
	return string(b)
}

// in follows keys into nested objects, "a.b".
func in(v any, keys string) any {
	for _, k := range strings.Split(keys, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

func (r rest) expect(got map[string]any, keys string, want any) {
	r.t.Helper()
	if v := in(got, keys); fmt.Sprint(v) != fmt.Sprint(want) {
		r.t.Errorf("%s is %v, want %v, in %v", keys, v, want, got)
	}
}

// asks is an agent that asks once and then is done; a goal with "hold" waits for the test first.
var asks = `
sessions:
  hold:
    repeat_last: true
    iterations:
      - - append: {path: steps.txt, content: "step\n"}
        - run: '` + e2etest.Hold("work") + `'
        - say: "A step is done, another one follows."
        - signal: CONTINUE
iterations:
  - - write: {path: one.txt, content: "1\n"}
    - think: "This could go two ways."
    - say: "Left or right?"
    - signal: BLOCKED
  - - write: {path: two.txt, content: "{{answer}}\n"}
    - say: "Done."
    - signal: COMPLETE
  - - say: "Stuck again: what now?"
    - signal: BLOCKED
  - - say: "Done again."
    - signal: COMPLETE
`

// apiCase calls one operation of the description.
type apiCase struct {
	operation string
	call      func(r rest)
}

// apiWorld is what the cases share. They run in order: each finds what those before it have made.
type apiWorld struct {
	repo, second *e2etest.Repository
	id, held     string // a session that asks; one that waits for the test
}

// setUp tells what is there, and begins a session that asks.
func (w *apiWorld) setUp() []apiCase {
	return []apiCase{
		{"GET /healthz", func(r rest) { r.expect(r.object(200, "GET", "/healthz", ""), "status", "ok") }},
		{"GET /readyz", func(r rest) { r.expect(r.object(200, "GET", "/readyz", ""), "status", "ready") }},
		{"GET /openapi.json", func(r rest) { r.expect(r.object(200, "GET", "/openapi.json", ""), "info.title", "pulse") }},
		{"GET /api/projects", func(r rest) {
			list := r.object(200, "GET", "/api/projects", "")["projects"].([]any)
			if len(list) != 1 || in(list[0], "name") != "my-app" || in(list[0], "path") != w.repo.Path {
				r.t.Errorf("projects: %v", list)
			}
		}},
		{"POST /api/projects", func(r rest) {
			got := r.object(201, "POST", "/api/projects", fmt.Sprintf(`{"name":"my-site","path":%q}`, w.second.Path))
			r.expect(got, "project.name", "my-site")
			r.expect(got, "project.base_branch", "main")
		}},
		{"POST /api/pair", func(r rest) {
			got := r.object(201, "POST", "/api/pair", `{"role":"viewer"}`)
			r.expect(got, "role", "viewer")
			if code, _ := got["code"].(string); len(code) < 10 {
				r.t.Errorf("the code is %q", code)
			}
		}},
		{"POST /api/pulse/start", func(r rest) {
			got := r.object(201, "POST", "/api/pulse/start", `{"projectName":"my-app","goal":"find the way"}`)
			r.expect(got, "session.goal", "find the way")
			w.id = in(got, "session.id").(string)
			r.p.AwaitSession(w.id, pulse.SessionBlocked)
		}},
	}
}

// reads looks at the session in every way.
func (w *apiWorld) reads() []apiCase {
	return []apiCase{
		{"GET /api/pulse", func(r rest) {
			list := r.object(200, "GET", "/api/pulse?status=blocked&project=my-app&limit=5", "")["sessions"].([]any)
			if len(list) != 1 || in(list[0], "id") != w.id {
				r.t.Errorf("sessions: %v", list)
			}
		}},
		{"GET /api/pulse/{id}", func(r rest) {
			got := r.object(200, "GET", "/api/pulse/"+w.id[len(w.id)-8:], "")
			r.expect(got, "session.id", w.id)
			r.expect(got, "session.status", "blocked")
			if q, _ := in(got, "gate.prompt").(string); !strings.Contains(q, "Left or right?") {
				r.t.Errorf("gate: %v", got["gate"])
			}
		}},
		{"GET /api/pulse/{id}/prompt", func(r rest) {
			if text := r.text("/api/pulse/"+w.id+"/prompt?iteration=1", "text/plain"); !strings.Contains(text, "find the way") {
				r.t.Errorf("prompt: %s", text)
			}
		}},
		{"GET /api/pulse/{id}/turns", func(r rest) {
			got := r.object(200, "GET", "/api/pulse/"+w.id+"/turns", "")
			if text := fmt.Sprint(got); !strings.Contains(text, "This could go two ways.") || !strings.Contains(text, "one.txt") {
				r.t.Errorf("turns: %v", got)
			}
		}},
		{"GET /api/pulse/{id}/events", func(r rest) {
			got := r.object(200, "GET", "/api/pulse/"+w.id+"/events?after=1&limit=2", "")
			list := got["events"].([]any)
			if len(list) != 2 || in(list[0], "seq") != 2.0 || got["more"] != true || got["next"] != 3.0 {
				r.t.Errorf("events: %v", got)
			}
		}},
	}
}

// decides takes sessions through what a person decides.
func (w *apiWorld) decides() []apiCase {
	return []apiCase{
		{"POST /api/pulse/{id}/answer", func(r rest) {
			r.expect(r.object(200, "POST", "/api/pulse/"+w.id+"/answer", `{"text":"left"}`), "session.status", "running")
			r.p.AwaitSession(w.id, pulse.SessionComplete)
			if got := w.repo.File(r.p.AwaitSession(w.id, pulse.SessionComplete).Session.BranchName, "two.txt"); got != "left" {
				r.t.Errorf("the agent was told %q", got)
			}
		}},
		{"POST /api/sessions/{id}/message", func(r rest) {
			r.expect(r.object(200, "POST", "/api/sessions/"+w.id+"/message", `{"text":"now go back"}`), "as", "follow_up")
			r.p.AwaitSession(w.id, pulse.SessionBlocked)
		}},
		{"POST /api/pulse/{id}/resume", func(r rest) {
			r.expect(r.object(200, "POST", "/api/pulse/"+w.id+"/resume", `{"answer":"ask the map"}`), "session.status", "running")
			r.p.AwaitSession(w.id, pulse.SessionComplete)
		}},
		{"POST /api/pulse/{id}/pause", func(r rest) {
			w.held = in(r.object(201, "POST", "/api/pulse/start", `{"projectName":"my-app","goal":"hold on"}`), "session.id").(string)
			r.p.AwaitHeld("work")
			r.expect(r.object(200, "POST", "/api/pulse/"+w.held+"/pause", ""), "session.pause_requested", true)
			r.p.Open("work")
			r.p.AwaitSession(w.held, pulse.SessionPaused)
		}},
		{"POST /api/pulse/{id}/abort", func(r rest) {
			r.expect(r.object(200, "POST", "/api/pulse/"+w.held+"/abort", "{}"), "session.status", "aborted")
		}},
	}
}

// watches sees what programs and browsers watch.
func (w *apiWorld) watches() []apiCase {
	return []apiCase{
		{"GET /ws", func(r rest) {
			ctx := e2etest.Context(r.t)
			conn, res, err := websocket.Dial(ctx, r.p.URL()+"/ws", nil)
			if err != nil {
				r.t.Fatal(err)
			}
			defer conn.CloseNow()
			if res.StatusCode != http.StatusSwitchingProtocols {
				r.t.Errorf("status %d", res.StatusCode)
			}
			if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"subscribe","sessions":{"`+w.id+`":0}}`)); err != nil {
				r.t.Fatal(err)
			}
			for _, want := range []string{wire.FrameSubscribed, string(pulse.EventSessionStarted)} {
				var f wire.Frame
				if _, b, err := conn.Read(ctx); err != nil || json.Unmarshal(b, &f) != nil || f.Type != want {
					r.t.Fatalf("frame %s (%v), want %s", b, err, want)
				}
			}
		}},
		{"GET /metrics", func(r rest) {
			if text := r.text("/metrics", "text/plain"); !strings.Contains(text, "# TYPE pulse_") || !strings.Contains(text, `pulse_rows{what="`) {
				r.t.Errorf("metrics: %s", text)
			}
		}},
		{"GET /", func(r rest) {
			if text := r.text("/", "text/html"); !strings.Contains(text, "/assets/app.js") && !strings.Contains(text, "assets/app.js") {
				r.t.Errorf("page: %s", text)
			}
		}},
		{"GET /assets/{name}", func(r rest) {
			r.text("/assets/app.js", "text/javascript")
			r.text("/assets/style.css", "text/css")
		}},
	}
}

func TestEveryPathOfTheAPI(t *testing.T) {
	t.Parallel()
	w := &apiWorld{repo: e2etest.Repo(t), second: e2etest.RepoAt(t, t.TempDir()+"/my-site")}
	p := e2etest.Start(t, e2etest.Options{Projects: one(w.repo), Script: asks, Telegram: telegramtest.Start(t, telegramtest.Options{})})
	paths := described(t, p)
	called := map[string]bool{}
	for _, c := range slices.Concat(w.setUp(), w.reads(), w.decides(), w.watches()) {
		called[c.operation] = true
		if _, ok := paths[c.operation]; !ok {
			t.Errorf("%s is not in the served description", c.operation)
		}
		t.Run(c.operation, func(t *testing.T) { c.call(rest{t: t, p: p}) })
	}
	for _, o := range slices.Sorted(maps.Keys(paths)) {
		if !called[o] {
			t.Errorf("%s is described and no case here calls it", o)
		}
	}
	refusals(rest{t: t, p: p}, paths, w.id)
}

// refusals calls every path without the token, with a wrong one, for a session that is not there, and with the wrong method.
func refusals(r rest, paths map[string]operation, id string) {
	r.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		o := paths[name]
		method, path, _ := strings.Cut(name, " ")
		if method == "GET" && !o.guarded() && !strings.Contains(path, "{id}") {
			continue // called above without a token where it matters
		}
		at := func(id string) string { return strings.ReplaceAll(path, "{id}", id) }
		body := map[bool]string{true: `{"text":"x"}`}[strings.HasSuffix(path, "/answer") || strings.HasSuffix(path, "/message")]
		res, b := r.call(strings.Repeat("0", 64), method, at(id), body)
		r.refused(name+" with a wrong token", res, b, 401, pulse.CodeUnauthorized)
		res, b = r.call("", method, at(id), body)
		if o.guarded() {
			r.refused(name+" without the token", res, b, 401, pulse.CodeUnauthorized)
		} else if res.StatusCode == http.StatusUnauthorized {
			r.t.Errorf("%s wants a token on loopback, the description says that it does not", name)
		}
		if strings.Contains(path, "{id}") {
			res, b = r.call(r.p.Token(), method, at("00000000-0000-7000-8000-000000000000"), body)
			r.refused(name+" of a session that is not there", res, b, 404, pulse.CodeNotFound)
		}
		res, b = r.call(r.p.Token(), "DELETE", at(id), "")
		r.refused("DELETE "+path, res, b, 405, pulse.CodeInvalid)
	}
	res, b := r.call(r.p.Token(), "GET", "/api/nothing", "")
	r.refused("an unknown path", res, b, 404, pulse.CodeNotFound)
}

// refused wants the status, the code, and words that say what is wrong.
func (r rest) refused(what string, res *http.Response, body []byte, status int, code pulse.Code) {
	r.t.Helper()
	var e wire.Error
	if err := json.Unmarshal(body, &e); err != nil || res.StatusCode != status || e.Error.Code != code || e.Error.Message == "" {
		r.t.Errorf("%s: status %d, want %d: %s", what, res.StatusCode, status, body)
	}
}
