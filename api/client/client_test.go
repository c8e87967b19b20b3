package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pulseloop/api"
	"pulseloop/api/apitest"
	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/pulse"
)

func TestMain(m *testing.M) {
	http.DefaultTransport.(*http.Transport).DisableKeepAlives = true
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// serve runs the API on a world, at addr if it is not empty, until stop.
func serve(t *testing.T, w *apitest.World, addr string) (string, func()) {
	t.Helper()
	s, err := api.New(api.Config{Doer: w, Reader: w, Feed: w, Registrar: w, Pairer: w, Token: "secret", Clock: w.Clock,
		Limits: api.Limits{FeedPause: time.Millisecond, Shutdown: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	var once atomic.Bool
	stop := func() {
		if once.Swap(true) {
			return
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(stop)
	return ln.Addr().String(), stop
}

func dial(t *testing.T, addr, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{BaseURL: "http://" + addr + "/", Token: token, Origin: pulse.OriginCLI, Backoff: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryCall(t *testing.T) {
	w := apitest.New()
	addr, _ := serve(t, w, "")
	c, ctx := dial(t, addr, "secret"), t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(c.Health(ctx))
	p, err := c.AddProject(ctx, "my-app", "/src/my-app")
	ok(err)
	ten := 10
	s, err := c.Start(ctx, wire.Start{ProjectName: p.Name, Goal: "Implement auth", MaxIterations: &ten, ChatID: "42"})
	ok(err)
	if s.CreatedBy != pulse.OriginCLI || s.ChatID != "42" {
		t.Errorf("session %+v", s)
	}
	w.AddIteration(pulse.Iteration{SessionID: s.ID, Number: 1, TaskContent: "  the prompt\n"})
	short := pulse.Short(s.ID)
	d, err := c.Get(ctx, short)
	ok(err)
	if len(d.Iterations) != 1 || d.Session.ID != s.ID {
		t.Errorf("detail %+v", d)
	}
	text, err := c.Prompt(ctx, short, 1)
	ok(err)
	if text != "  the prompt\n" {
		t.Errorf("prompt %q", text)
	}
	if text, err = c.Prompt(ctx, short, 0); err != nil || text == "" {
		t.Errorf("latest prompt %q, %v", text, err)
	}
	got, err := c.Pause(ctx, short)
	ok(err)
	if got.Status != pulse.SessionPaused {
		t.Errorf("status %s", got.Status)
	}
	_, err = c.Resume(ctx, short, "go on")
	ok(err)
	g := w.Block(s.ID, "which?")
	_, err = c.Answer(ctx, short, wire.Answer{GateID: g.ID, Text: "that"})
	ok(err)
	said, err := c.Say(ctx, short, "mind the tests")
	ok(err)
	if said.As != pulse.InputGuidance {
		t.Errorf("as %s", said.As)
	}
	list, err := c.List(ctx, client.Filter{Statuses: []pulse.SessionStatus{"running", "paused"}, Project: "my-app", Limit: 5})
	ok(err)
	if len(list) != 1 {
		t.Errorf("list %+v", list)
	}
	events, err := c.Events(ctx, short, 1)
	ok(err)
	if len(events.Events) != 4 || events.Events[0].Seq != 2 {
		t.Errorf("events %+v", events)
	}
	turns, err := c.Turns(ctx, short)
	ok(err)
	projects, err := c.Projects(ctx)
	ok(err)
	if len(turns) != 0 || len(projects) != 1 {
		t.Errorf("%v %v", turns, projects)
	}
	code, err := c.Pair(ctx, "")
	ok(err)
	if code.Code == "" || code.Role != pulse.RoleOperator {
		t.Errorf("code %+v", code)
	}
	_, err = c.Abort(ctx, short)
	ok(err)
}

func TestErrorsComeBack(t *testing.T) {
	w := apitest.New()
	addr, stop := serve(t, w, "")
	with, without, wrong := dial(t, addr, "secret"), dial(t, addr, ""), dial(t, addr, "guess")
	s := w.AddSession(pulse.Session{Status: pulse.SessionAborted})
	id := string(s.ID)
	for name, c := range map[string]struct {
		call func() error
		code pulse.Code
		says string
	}{
		"conflict":      {func() error { _, err := with.Pause(t.Context(), id); return err }, pulse.CodeConflict, "aborted"},
		"not found":     {func() error { _, err := with.Get(t.Context(), "ffffffff"); return err }, pulse.CodeNotFound, "ffffffff"},
		"odd id":        {func() error { _, err := with.Get(t.Context(), "../x?y#z"); return err }, pulse.CodeNotFound, "x?y#z"},
		"unprocessable": {func() error { _, err := with.AddProject(t.Context(), "x", "/etc"); return err }, pulse.CodeUnprocessed, "/etc"},
		"no token":      {func() error { _, err := without.Pair(t.Context(), ""); return err }, pulse.CodeUnauthorized, "token"},
		"wrong token":   {func() error { _, err := wrong.Projects(t.Context()); return err }, pulse.CodeUnauthorized, "wrong"},
		"follow":        {func() error { return wrong.Follow(t.Context(), client.Follow{All: true}, nil) }, pulse.CodeUnauthorized, "wrong"},
		"follow an end": {func() error {
			return with.Follow(t.Context(), client.Follow{Sessions: map[pulse.SessionID]int64{"ffff": 0}}, nil)
		}, pulse.CodeInvalid, "ffff"},
	} {
		err := c.call()
		var e *pulse.Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stop()
	for _, err := range []error{with.Health(t.Context()), with.Follow(t.Context(), client.Follow{All: true}, nil)} {
		if pulse.CodeOf(err) != pulse.CodeUnavailable || !strings.Contains(err.Error(), "start it with `pulse up`") {
			t.Errorf("nobody there: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := with.Health(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAnotherProgramAnswers(t *testing.T) {
	for _, status := range []int{200, 302, 404, 500} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/steal")
			w.WriteHeader(status)
			fmt.Fprint(w, "<html>hello")
		}))
		c := dial(t, other.Listener.Addr().String(), "secret")
		if err := c.Health(t.Context()); pulse.CodeOf(err) != pulse.CodeUnavailable || !strings.Contains(err.Error(), "is not pulse") {
			t.Errorf("%d: %v", status, err)
		}
		other.Close()
	}
	for _, bad := range []string{"127.0.0.1:3002", "ftp://x", "http://", "http://u:p@h", "http://h?token=x", "http://[::1"} {
		if _, err := client.New(client.Config{BaseURL: bad}); pulse.CodeOf(err) != pulse.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The server goes away and comes back twice, and events happen all the
// while: each is seen once, in order, those of a new session too.
func TestFollowOverReconnects(t *testing.T) {
	w := apitest.New()
	s := w.AddSession(pulse.Session{})
	emit := func(id pulse.SessionID) { w.Emit(id, pulse.Event{Type: pulse.EventSessionChanged}) }
	emit(s.ID)
	addr, stop := serve(t, w, "")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	frames := make(chan wire.Frame, 100)
	lost := make(chan error, 100)
	c, err := client.New(client.Config{BaseURL: "http://" + addr, Backoff: 10 * time.Millisecond, Reconnected: func(cause error) { lost <- cause }})
	if err != nil {
		t.Fatal(err)
	}
	followed := make(chan error, 1)
	go func() {
		followed <- c.Follow(ctx, client.Follow{All: true, Sessions: map[pulse.SessionID]int64{s.ID: 0}}, func(f wire.Frame) error {
			frames <- f
			return nil
		})
	}()
	expect := func(id pulse.SessionID, seq int64) {
		t.Helper()
		select {
		case f := <-frames:
			if f.SessionID != id || f.Seq != seq {
				t.Fatalf("frame %s %d, want %s %d", f.SessionID, f.Seq, id, seq)
			}
		case <-ctx.Done():
			t.Fatalf("no frame %s %d", id, seq)
		}
	}
	expect(s.ID, 1)
	emit(s.ID)
	expect(s.ID, 2)

	stop()
	<-lost
	emit(s.ID)
	emit(s.ID)
	_, stop = serve(t, w, addr)
	expect(s.ID, 3)
	expect(s.ID, 4)

	stop()
	<-lost
	fresh := w.AddSession(pulse.Session{})
	emit(fresh.ID)
	emit(fresh.ID)
	serve(t, w, addr)
	expect(fresh.ID, 1)
	expect(fresh.ID, 2)
	emit(s.ID)
	expect(s.ID, 5)

	cancel()
	if err := <-followed; err != nil {
		t.Errorf("a cancelled follow: %v", err)
	}
	select {
	case f := <-frames:
		t.Errorf("one frame too many: %+v", f)
	default:
	}
}

func TestFollowStopsWhenTold(t *testing.T) {
	w := apitest.New()
	s := w.AddSession(pulse.Session{})
	w.Emit(s.ID, pulse.Event{Type: pulse.EventSessionCompleted})
	addr, _ := serve(t, w, "")
	enough := errors.New("enough")
	err := dial(t, addr, "").Follow(t.Context(), client.Follow{Sessions: map[pulse.SessionID]int64{s.ID: 0}}, func(f wire.Frame) error { return enough })
	if !errors.Is(err, enough) {
		t.Errorf("ended with %v", err)
	}
}
