package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pulseloop/api"
	"pulseloop/api/apitest"
	"pulseloop/api/wire"
	"pulseloop/pulse"
)

const token = "correct horse battery staple"

// patience ends a test that hangs. It says nothing about how fast anything
// has to be: a busy machine may take its time.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	http.DefaultTransport.(*http.Transport).DisableKeepAlives = true
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// running is a served API over an in-memory world.
type running struct {
	*apitest.World
	t    *testing.T
	url  string
	addr string
	stop func() error
}

// serve starts a server on a loopback port. Beyond the address it listens
// on, everything is as change leaves it.
func serve(t *testing.T, change func(*api.Config)) *running {
	t.Helper()
	w := apitest.New()
	cfg := api.Config{
		Doer: w, Reader: w, Feed: w, Registrar: w, Pairer: w, Token: token, Version: "test", Clock: w.Clock,
		Limits: api.Limits{Grace: time.Hour, FeedPause: time.Millisecond, FeedPoll: 50 * time.Millisecond, Shutdown: time.Second},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, small{ln}) }()
	r := &running{World: w, t: t, addr: ln.Addr().String(), url: "http://" + ln.Addr().String()}
	var ended bool
	r.stop = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			t.Error("the server does not stop")
			return nil
		}
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return r
}

// small keeps the system from taking megabytes for a peer that does not
// read: what such a peer costs is the server's to bound, and is tested soon.
type small struct{ net.Listener }

// smallBuffer is several segments of the loopback: with less, a window that
// opens by too little for a segment waits for timers of the system.
const smallBuffer = 256 << 10

func (l small) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok {
		err = t.SetWriteBuffer(smallBuffer)
	}
	return c, err
}

// reply is an answer, read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (a reply) fault(t *testing.T) wire.ErrorDetail {
	t.Helper()
	var e wire.Error
	if err := json.Unmarshal(a.body, &e); err != nil || e.Error.Code == "" || e.Error.Message == "" {
		t.Fatalf("not an error body: %d %s", a.status, a.body)
	}
	return e.Error
}

// call is a request with headers as "Name: value".
func (r *running) call(method, path, body string, headers ...string) reply {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	conform(r.t, req, []byte(body), res, b)
	return reply{res.StatusCode, res.Header, b}
}

const bearer = "Authorization: Bearer " + token

// want calls with the token, and expects a status.
func (r *running) want(status int, method, path, body string, into any, headers ...string) reply {
	r.t.Helper()
	a := r.call(method, path, body, append([]string{bearer}, headers...)...)
	if a.status != status {
		r.t.Fatalf("%s %s: status %d, want %d: %s", method, path, a.status, status, bytes.TrimSpace(a.body))
	}
	if into != nil {
		if err := json.Unmarshal(a.body, into); err != nil {
			r.t.Fatalf("%s %s: %v in %s", method, path, err, a.body)
		}
	}
	return a
}

// session puts a session into the world with a known project.
func (r *running) session(s pulse.Session) pulse.Session {
	s.ProjectName = "my-app"
	if s.Goal == "" {
		s.Goal = "Implement auth"
	}
	return r.AddSession(s)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}
