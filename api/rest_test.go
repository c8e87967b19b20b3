package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pulseloop/api"
	"pulseloop/api/wire"
	"pulseloop/loop"
	"pulseloop/pulse"
)

// The document's curl example, to the letter of its body, without a token.
func TestStartAsInTheDocument(t *testing.T) {
	r := serve(t, nil)
	r.AddProject("my-app", "/path")
	a := r.call("POST", "/api/pulse/start", `{"projectName":"my-app","projectPath":"/path","goal":"Implement auth","maxIterations":10}`)
	if a.status != http.StatusCreated {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	var got wire.SessionReply
	if err := json.Unmarshal(a.body, &got); err != nil {
		t.Fatal(err)
	}
	s := got.Session
	if s.ProjectName != "my-app" || s.Goal != "Implement auth" || s.MaxIterations != 10 || s.Status != "pending" || s.CreatedBy != "api" || !pulse.ValidUUID(string(s.ID)) {
		t.Errorf("session %+v", s)
	}
}

func TestStartTakesEverything(t *testing.T) {
	r := serve(t, nil)
	turn := pulse.NewUUID(r.Now)
	body := fmt.Sprintf(`{"projectName":"web","projectPath":"/src/web","goal":"  Tidy up 🎉\n","maxIterations":1000,"chatId":-1001234567890123,
		"phoneNumber":"+4930123456","discordThreadId":"112233445566778899","branchName":"tidy/up","anchorTurnId":%q,"contextStrategy":"hybrid","agent":"codex","createdBy":"mcp"}`, turn)
	var got wire.SessionReply
	r.want(201, "POST", "/api/pulse/start", body, &got)
	s := got.Session
	if s.Goal != "Tidy up 🎉" || s.ChatID != "-1001234567890123" || s.PhoneNumber != "+4930123456" || s.DiscordThreadID != "112233445566778899" ||
		s.BranchName != "tidy/up" || string(s.AnchorTurnID) != turn || s.ContextStrategy != "hybrid" || s.Agent != "codex" || s.CreatedBy != "mcp" || s.MaxIterations != 1000 {
		t.Errorf("session %+v", s)
	}
	// The path is registered by now, so that its name is enough.
	r.want(201, "POST", "/api/pulse/start", `{"projectName":"web","goal":"more","chatId":"42"}`, &got, "Pulse-Client: cli")
	if got.Session.CreatedBy != "cli" || got.Session.ChatID != "42" || got.Session.MaxIterations != 10 {
		t.Errorf("session %+v", got.Session)
	}
	var list wire.ProjectList
	r.want(200, "GET", "/api/projects", "", &list)
	if len(list.Projects) != 1 || list.Projects[0].Path != "/src/web" {
		t.Errorf("projects %+v", list)
	}
	// Without a name, the directory's.
	r.want(201, "POST", "/api/pulse/start", `{"projectPath":"/src/other/","goal":"go"}`, &got)
	if got.Session.ProjectName != "other" {
		t.Errorf("project %q", got.Session.ProjectName)
	}
}

func TestStartRefusals(t *testing.T) {
	r := serve(t, nil)
	r.AddProject("my-app", "/src/my-app")
	with := func(field string) string { return `{"projectName":"my-app","goal":"go",` + field + `}` }
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for _, c := range []struct {
		name, body string
		status     int
		names      string // what the message has to name
	}{
		{"empty", "", 400, "empty"},
		{"blank", " \n", 400, "empty"},
		{"no JSON", "goal=go", 400, "JSON"},
		{"cut off", `{"goal":"go"`, 400, "JSON"},
		{"array", `["goal"]`, 400, "object"},
		{"null", `null`, 400, "object"},
		{"two objects", `{"goal":"a","projectName":"my-app"}{}`, 400, "after"},
		{"unknown field", with(`"gaol":"x"`), 400, `"gaol"`},
		{"other case", with(`"Agent":"x"`), 400, `"Agent"`},
		{"twice", with(`"goal":"again"`), 400, `"goal"`},
		{"deep", with(`"agent":` + deep), 400, "nested"},
		{"deeper", with(`"agent":` + strings.Repeat("[", 100_000)), 400, "nested"},
		{"NUL", with(`"agent":"a\u0000b"`), 400, "NUL"},
		{"half a surrogate", with(`"agent":"\ud83d"`), 400, "surrogate"},
		{"invalid UTF-8", with("\"agent\":\"\xff\""), 400, "UTF-8"},
		{"goal missing", `{"projectName":"my-app"}`, 400, "goal"},
		{"goal null", `{"projectName":"my-app","goal":null}`, 400, "goal"},
		{"goal blank", `{"projectName":"my-app","goal":" \t\n "}`, 400, "goal"},
		{"goal a number", `{"projectName":"my-app","goal":7}`, 400, "goal"},
		{"goal too long", `{"projectName":"my-app","goal":"` + strings.Repeat("é", loop.MaxGoalBytes/2) + `x"}`, 413, "the goal has 65537 bytes"},
		{"no project", `{"goal":"go"}`, 400, "projectName"},
		{"unknown project", `{"projectName":"nope","goal":"go"}`, 404, `"nope"`},
		{"project of two lines", `{"projectName":"a\nb","goal":"go"}`, 400, "projectName"},
		{"relative path", `{"projectPath":"src","goal":"go"}`, 400, "projectPath"},
		{"home path", `{"projectPath":"~/src","goal":"go"}`, 400, "projectPath"},
		{"long path", `{"projectPath":"/` + strings.Repeat("x", 5000) + `","goal":"go"}`, 400, "projectPath"},
		{"path outside", `{"projectName":"x","projectPath":"/etc","goal":"go"}`, 422, "/etc"},
		{"path climbs out", `{"projectName":"x","projectPath":"/src/../etc","goal":"go"}`, 422, "/etc"},
		{"path beside", `{"projectName":"x","projectPath":"/src-evil/x","goal":"go"}`, 422, "/src-evil"},
		{"no iterations", with(`"maxIterations":0`), 400, "maxIterations"},
		{"negative iterations", with(`"maxIterations":-1`), 400, "maxIterations"},
		{"too many iterations", with(`"maxIterations":1001`), 400, "maxIterations"},
		{"half an iteration", with(`"maxIterations":1.5`), 400, "maxIterations"},
		{"huge iterations", with(`"maxIterations":99999999999999999999`), 400, "maxIterations"},
		{"huger iterations", with(`"maxIterations":1e999`), 400, "maxIterations"},
		{"iterations as text", with(`"maxIterations":"10"`), 400, "maxIterations"},
		{"NaN iterations", with(`"maxIterations":NaN`), 400, "JSON"},
		{"chat by name", with(`"chatId":"@ann"`), 400, "chatId"},
		{"chat an object", with(`"chatId":{}`), 400, "chatId"},
		{"chat too big", with(`"chatId":92233720368547758080`), 400, "chatId"},
		{"phone by name", with(`"phoneNumber":"ann"`), 400, "phoneNumber"},
		{"phone without country", with(`"phoneNumber":"030123456"`), 400, "phoneNumber"},
		{"thread by name", with(`"discordThreadId":"general"`), 400, "discordThreadId"},
		{"branch an option", with(`"branchName":"--output=x"`), 400, "branchName"},
		{"anchor", with(`"anchorTurnId":"7"`), 400, "anchorTurnId"},
		{"strategy", with(`"contextStrategy":"all"`), 400, "contextStrategy"},
		{"agent of two lines", with(`"agent":"a\nb"`), 400, "agent"},
		{"created by a chat", with(`"createdBy":"telegram"`), 400, "createdBy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := r.call("POST", "/api/pulse/start", c.body, bearer)
			if a.status != c.status {
				t.Fatalf("status %d, want %d: %s", a.status, c.status, a.body)
			}
			if f := a.fault(t); !strings.Contains(f.Message, c.names) || f.Hint == "" {
				t.Errorf("message %q (hint %q) does not name %q", f.Message, f.Hint, c.names)
			}
		})
	}
	if calls := r.Calls(); len(calls) != 0 {
		t.Errorf("something was started: %q", calls)
	}
}

func TestContentTypeAndSize(t *testing.T) {
	r := serve(t, nil)
	r.AddProject("my-app", "/src/my-app")
	body := `{"projectName":"my-app","goal":"go"}`
	for kind, status := range map[string]int{
		"application/json": 201, "application/json; charset=UTF-8": 201, "text/plain": 415, "application/x-www-form-urlencoded": 415,
		"multipart/form-data; boundary=x": 415, "application/json; charset=latin1": 415, "": 415, "application/jsonp": 415, ";": 415,
	} {
		if a := r.call("POST", "/api/pulse/start", body, "Content-Type: "+kind); a.status != status {
			t.Errorf("%q: status %d, want %d", kind, a.status, status)
		}
	}
	if a := r.call("POST", "/api/pulse/start", body, "Content-Encoding: gzip"); a.status != 415 {
		t.Errorf("compressed: status %d", a.status)
	}
	a := r.call("POST", "/api/pulse/start", `{"goal":"`+strings.Repeat("x", 1<<20)+`"}`)
	if f := a.fault(t); a.status != 413 || f.Code != pulse.CodeTooLarge {
		t.Errorf("large: %d %+v", a.status, f)
	}
}

// A few characters name a session by accident, so they name none.
func TestShortIDsNameNothing(t *testing.T) {
	r := serve(t, nil)
	s := r.session(pulse.Session{})
	short := pulse.Short(s.ID)
	for _, id := range []string{short[7:], short[4:], short[1:], "%00"} {
		for _, call := range []string{"GET ", "GET /events", "GET /turns", "GET /prompt", "POST /abort", "POST /pause", "POST /resume"} {
			method, rest, _ := strings.Cut(call, " ")
			f := r.want(400, method, "/api/pulse/"+id+rest, "", nil).fault(t)
			if !strings.Contains(f.Message, "too short") || !strings.Contains(f.Hint, "8 characters") {
				t.Errorf("%s of %q: %+v", call, id, f)
			}
		}
		r.want(400, "POST", "/api/pulse/"+id+"/answer", `{"text":"x"}`, nil)
		r.want(400, "POST", "/api/sessions/"+id+"/message", `{"text":"x"}`, nil)
	}
	r.want(200, "POST", "/api/pulse/"+short+"/abort", "", nil)
}

func TestShowAndList(t *testing.T) {
	r := serve(t, nil)
	p := r.AddProject("my-app", "/src/my-app")
	s := r.session(pulse.Session{ProjectID: p.ID, LastSignal: pulse.SignalContinue, CurrentIteration: 2,
		ProgressLog: []pulse.ProgressEntry{{Iteration: 1, Signal: pulse.SignalContinue, Summary: "began", At: r.Now}}})
	done := r.session(pulse.Session{Status: pulse.SessionComplete})
	r.AddIteration(pulse.Iteration{SessionID: s.ID, Number: 1, Status: pulse.IterationComplete, Signal: pulse.SignalContinue, TaskContent: "first", CommitHash: "abc",
		FilesChanged: []string{"a.go"}, Anchor: pulse.Anchor{TurnID: "t1", Strategy: pulse.AnchorTemporal, Milliseconds: 1.5, Salience: .5, Depth: 3}})
	r.AddIteration(pulse.Iteration{SessionID: s.ID, Number: 2, Status: pulse.IterationTimeout, TaskContent: "second"})
	r.AddIteration(pulse.Iteration{SessionID: s.ID, Number: 2, Attempt: 2, Status: pulse.IterationRunning, TaskContent: "second again"})
	g := r.Block(s.ID, "which key?", pulse.GateOption{Key: "a", Label: "A"})

	var d wire.SessionDetail
	for _, id := range []string{string(s.ID), pulse.Short(s.ID), strings.ToUpper(string(s.ID))} {
		r.want(200, "GET", "/api/pulse/"+id, "", &d)
		if d.Session.ID != s.ID || len(d.Iterations) != 3 || d.Gate == nil || d.Gate.ID != g.ID || d.Iterations[0].AnchorResolutionMS != 1.5 {
			t.Errorf("detail %+v", d)
		}
	}
	var rows map[string]any
	r.want(200, "GET", "/api/pulse/"+string(done.ID), "", &rows)
	if rows["gate"] != nil || rows["session"].(map[string]any)["total_tokens_used"] != 0.0 {
		t.Errorf("rows %v", rows)
	}
	for _, id := range []string{"ffffffff", "xyzxyzxyz", strings.Repeat("0", 40), "..%2f..%2f.."} {
		r.want(404, "GET", "/api/pulse/"+id, "", nil)
	}

	count := func(query string) int {
		t.Helper()
		var l wire.SessionList
		r.want(200, "GET", "/api/pulse"+query, "", &l)
		return len(l.Sessions)
	}
	for query, n := range map[string]int{"": 2, "?status=running": 0, "?status=blocked": 1, "?status=blocked,complete": 2, "?status=blocked&status=complete": 2,
		"?limit=1": 1, "?project=my-app": 1, "?project=" + string(p.ID): 1} {
		if got := count(query); got != n {
			t.Errorf("%s: %d sessions, want %d", query, got, n)
		}
	}
	for query, names := range map[string]string{"?status=done": "pending, running", "?status=": "pending", "?limit=0": "500", "?limit=501": "500", "?limit=x": "500",
		"?limit=1&limit=2": "once", "?stat=running": "status", "?token=" + "x": "Authorization", "?%zz": "encode"} {
		a := r.call("GET", "/api/pulse"+query, "")
		if f := a.fault(t); a.status != 400 || !strings.Contains(f.Hint, names) {
			t.Errorf("%s: %d %+v", query, a.status, f)
		}
	}
	if a := r.call("GET", "/api/pulse?project=nope", ""); a.status != 404 || !strings.Contains(a.fault(t).Hint, "my-app") {
		t.Errorf("unknown project: %d %s", a.status, a.body)
	}

	for query, text := range map[string]string{"": "second again", "?iteration=1": "first", "?iteration=2": "second again"} {
		a := r.want(200, "GET", "/api/pulse/"+string(s.ID)+"/prompt"+query, "", nil)
		if string(a.body) != text || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
			t.Errorf("prompt%s: %q", query, a.body)
		}
	}
	r.want(404, "GET", "/api/pulse/"+string(s.ID)+"/prompt?iteration=3", "", nil)
	r.want(404, "GET", "/api/pulse/"+string(done.ID)+"/prompt", "", nil)
	r.want(400, "GET", "/api/pulse/"+string(s.ID)+"/prompt?iteration=0", "", nil)
}

func TestChanges(t *testing.T) {
	r := serve(t, nil)
	s := r.session(pulse.Session{})
	at := "/api/pulse/" + string(s.ID)
	status := func(want pulse.SessionStatus, got wire.SessionReply) {
		t.Helper()
		if got.Session.Status != want || got.Session.ID != s.ID {
			t.Errorf("status %s of %s, want %s", got.Session.Status, got.Session.ID, want)
		}
	}
	var got wire.SessionReply
	r.want(200, "POST", at+"/pause", "", &got)
	status(pulse.SessionPaused, got)
	r.want(409, "POST", at+"/pause", "", nil)
	r.want(200, "POST", at+"/resume", `{"answer":" use it "}`, &got)
	status(pulse.SessionRunning, got)
	g := r.Block(s.ID, "which?")
	r.want(400, "POST", at+"/answer", `{}`, nil)
	r.want(400, "POST", at+"/answer", `{"text":" "}`, nil)
	r.want(400, "POST", at+"/answer", `{"gateId":"x","text":"y"}`, nil)
	r.want(400, "POST", at+"/answer", "", nil)
	r.want(409, "POST", at+"/answer", fmt.Sprintf(`{"gateId":%q,"text":"y"}`, pulse.NewUUID(r.Now)), nil)
	r.want(200, "POST", at+"/answer", fmt.Sprintf(`{"gateId":%q,"choice":"a","text":"the first"}`, g.ID), &got)
	status(pulse.SessionRunning, got)
	r.want(409, "POST", at+"/answer", `{"text":"again"}`, nil)

	var said wire.MessageReply
	r.want(200, "POST", "/api/sessions/"+string(s.ID)+"/message", `{"text":"mind the tests"}`, &said, "Pulse-Client: cli")
	if said.As != pulse.InputGuidance {
		t.Errorf("taken as %s", said.As)
	}
	r.want(400, "POST", "/api/sessions/"+string(s.ID)+"/message", `{"text":""}`, nil)
	r.want(400, "POST", "/api/sessions/"+string(s.ID)+"/message", `{"text":"x"}`, nil, "Pulse-Client: telegram")
	r.want(413, "POST", "/api/sessions/"+string(s.ID)+"/message", `{"text":"`+strings.Repeat("ä", 100_001)+`"}`, nil)
	r.want(200, "POST", at+"/abort", "{}", &got)
	status(pulse.SessionAborted, got)
	r.want(409, "POST", at+"/resume", "", nil)
	r.want(400, "POST", at+"/abort", `{"force":true}`, nil)
	for verb, body := range map[string]string{"pause": "", "abort": "", "resume": "", "answer": `{"text":"x"}`} {
		r.want(404, "POST", "/api/pulse/ffffffff/"+verb, body, nil)
	}
	r.want(404, "POST", "/api/sessions/ffffffff/message", `{"text":"x"}`, nil)

	short := pulse.Short(s.ID)
	want := []string{"pause " + short + " by API", "resume use it " + short + " by API", "answer a the first " + short + " by API",
		"say mind the tests " + short + " by CLI", "abort " + short + " by API"}
	if got := r.Calls(); !slices.Equal(got, want) {
		t.Errorf("calls %q\nwant  %q", got, want)
	}
}

func TestEventsAndTurns(t *testing.T) {
	r := serve(t, nil)
	s := r.session(pulse.Session{})
	for i := range 5 {
		r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged, Data: map[string]any{"reason": fmt.Sprint(i)}})
	}
	at := "/api/pulse/" + string(s.ID)
	var l wire.EventList
	r.want(200, "GET", at+"/events?after=1&limit=2", "", &l)
	if len(l.Events) != 2 || l.Events[0].Seq != 2 || l.Next != 3 || !l.More {
		t.Errorf("page %+v", l)
	}
	r.want(200, "GET", at+"/events?after=3", "", &l)
	if len(l.Events) != 2 || l.Next != 5 || l.More {
		t.Errorf("page %+v", l)
	}
	r.want(200, "GET", at+"/events?after=5", "", &l)
	if len(l.Events) != 0 || l.Next != 5 {
		t.Errorf("page %+v", l)
	}
	r.want(400, "GET", at+"/events?after=-1", "", nil)
	r.want(400, "GET", at+"/events?after=99999999999999999999", "", nil)
	r.want(404, "GET", "/api/pulse/ffffffff/events", "", nil)

	r.AddTurn(pulse.TurnDetail{Turn: pulse.Turn{ID: "t1", SessionID: s.ID, Role: pulse.TurnAssistant, Status: pulse.TurnCompleted, CreatedAt: r.Now},
		Messages: []pulse.TurnMessage{{Seq: 2, Text: "done", At: r.Now}}, Thoughts: []pulse.TurnThought{{Seq: 1, Text: "hm", At: r.Now}},
		Tools: []pulse.TurnTool{{Seq: 3, CallID: "c", Name: "shell", Input: "{}", Output: "ok", Status: pulse.ToolCompleted, At: r.Now}}})
	var turns wire.TurnList
	r.want(200, "GET", at+"/turns", "", &turns)
	if len(turns.Turns) != 1 || turns.Turns[0].Messages[0].Text != "done" || turns.Turns[0].Thoughts[0].Text != "hm" || turns.Turns[0].Tools[0].Name != "shell" {
		t.Errorf("turns %+v", turns)
	}
	r.want(404, "GET", "/api/pulse/ffffffff/turns", "", nil)
}

func TestProjectsAndPairing(t *testing.T) {
	r := serve(t, nil)
	var p wire.ProjectReply
	r.want(201, "POST", "/api/projects", `{"name":"x","path":"/src/x"}`, &p)
	if p.Project.Name != "x" || p.Project.Path != "/src/x" {
		t.Errorf("project %+v", p)
	}
	r.want(201, "POST", "/api/projects", `{"path":"/src/y"}`, &p)
	if p.Project.Name != "y" {
		t.Errorf("project %+v", p)
	}
	r.want(400, "POST", "/api/projects", `{"name":"x"}`, nil)
	r.want(400, "POST", "/api/projects", `{"name":"x","path":"x"}`, nil)
	r.want(400, "POST", "/api/projects", `{"name":"a\u0007","path":"/src/z"}`, nil)
	r.want(422, "POST", "/api/projects", `{"name":"x","path":"/root"}`, nil)

	var code wire.PairReply
	r.want(201, "POST", "/api/pair", "", &code)
	if code.Role != pulse.RoleOperator || len(code.Code) < 8 || !code.ExpiresAt.After(r.Now) {
		t.Errorf("code %+v", code)
	}
	r.want(201, "POST", "/api/pair", `{"role":"owner"}`, &code)
	r.want(400, "POST", "/api/pair", `{"role":"king"}`, nil)
	if calls := r.Calls(); !slices.Equal(calls, []string{"pair operator", "pair owner"}) {
		t.Errorf("calls %q", calls)
	}

	without := serve(t, func(c *api.Config) { c.Registrar, c.Pairer = nil, nil })
	without.want(422, "POST", "/api/projects", `{"name":"x","path":"/src/x"}`, nil)
	if f := without.want(422, "POST", "/api/pair", "", nil).fault(t); f.Message != "there is no bot to pair with" ||
		f.Hint != "configure a bot first: pulse init, or telegram.token" {
		t.Errorf("without a bot: %+v", f)
	}
}

func TestHealth(t *testing.T) {
	var broken error
	r := serve(t, func(c *api.Config) {
		c.Ready = func(context.Context) error { return broken }
		c.Counts = func(context.Context) ([]api.Count, error) {
			return []api.Count{{Name: "pulse_sessions", Help: "Sessions.", Labels: map[string]string{"status": "a\"b"}, Value: 3}}, broken
		}
	})
	r.want(200, "GET", "/healthz", "", nil)
	r.want(200, "GET", "/readyz", "", nil)
	m := string(r.want(200, "GET", "/metrics", "", nil).body)
	for _, line := range []string{
		"# TYPE pulse_http_requests_total counter\n", `pulse_http_requests_total{code="200",method="GET",route="/healthz"} 1` + "\n",
		`pulse_sessions{status="a\"b"} 3` + "\n", "# HELP pulse_sessions Sessions.\n", "pulse_ws_clients 0\n", `pulse_build_info{version="test"} 1` + "\n",
	} {
		if !strings.Contains(m, line) {
			t.Errorf("metrics lack %q:\n%s", line, m)
		}
	}
	broken = errors.New("no database at postgres://u:hunter2@h")
	a := r.want(503, "GET", "/readyz", "", nil)
	if strings.Contains(string(a.body), "hunter2") {
		t.Errorf("the cause is told: %s", a.body)
	}
	r.want(500, "GET", "/metrics", "", nil)
	r.want(200, "GET", "/healthz", "", nil)
}

func TestFailuresAreToldWithoutTheirCause(t *testing.T) {
	r := serve(t, nil)
	s := r.session(pulse.Session{})
	for err, status := range map[error]int{
		errors.New("disk at /secret/place"):                                              500,
		&pulse.Error{Code: pulse.CodeUnavailable, Message: "busy", Err: errors.New("x")}: 503,
		&pulse.Error{Code: pulse.CodeForbidden, Message: "no"}:                           403,
		&pulse.Error{Code: pulse.CodeRateLimited, Message: "slow down"}:                  429,
		pulse.ErrStale: 409,
		fmt.Errorf("read: %w", context.DeadlineExceeded):          503,
		&pulse.Error{Code: "no such code", Message: "mysterious"}: 500,
	} {
		r.Break(err)
		for _, path := range []string{"/api/pulse", "/api/pulse/" + string(s.ID), "/api/projects"} {
			req, _ := http.NewRequest("GET", r.url+path, nil)
			res, rerr := http.DefaultTransport.RoundTrip(req)
			if rerr != nil {
				t.Fatal(rerr)
			}
			var body wire.Error
			derr := json.NewDecoder(res.Body).Decode(&body)
			res.Body.Close()
			if derr != nil || res.StatusCode != status || strings.Contains(body.Error.Message, "secret") || body.Error.Message == "" {
				t.Errorf("%s with %v: %d %+v", path, err, res.StatusCode, body)
			}
			if res.Header.Get("X-Request-Id") == "" {
				t.Error("no request id")
			}
		}
	}
}
