package telegramtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Options say how the server starts; the zero value is a polite server without rate limits.
type Options struct {
	// Token is what callers must present; default a fixed one of the right shape.
	Token string
	// Username of the bot, without the @; default pulse_test_bot.
	Username string
	// Addr to listen on; default 127.0.0.1:0.
	Addr string
	// SpecsDir is a folder with telegram-bot-api.json; default $PULSE_SPECS_DIR; without it only behaviour is checked.
	SpecsDir string
	// Limits to enforce with 429; the zero value enforces none.
	Limits Limits
	// Now is the clock of dates and limits; default time.Now.
	Now func() time.Time
}

// DefaultToken is the token a Server accepts unless told otherwise.
const DefaultToken = "4000000001:AAtelegramtest-0123456789_abcdefghij"

// Call is one request as it arrived, with what was answered.
type Call struct {
	Method string
	ChatID int64
	Params map[string]string // JSON for whatever is not a plain value
	At     time.Time
	Status int    // 0 when the connection was cut or the caller gave up
	Error  string // description when refused
	Effect bool   // whether the server's state was changed as the call asked
}

// Server is the fake. Create it with New, end it with Close.
type Server struct {
	opt  Options
	spec *spec
	http *http.Server
	ln   net.Listener
	stop context.CancelFunc
	ctx  context.Context
	done sync.WaitGroup

	mu         sync.Mutex
	changed    chan struct{}
	calls      []Call
	violations []string
	faults     []*Injected
	weather    func(call Call) *Fault
	bot        *User
	users      map[int64]*User
	chats      map[int64]*Chat
	files      map[string]file
	callbacks  map[string]*Callback
	commands   []Command
	nextUser   int64
	nextGroup  int64
	nextMsg    int
	nextToken  int
	queue      updateQueue
	limiter    limiter
}

// New starts a server. It fails only when it cannot listen or cannot read the description it was given.
func New(opt Options) (*Server, error) {
	if opt.Token == "" {
		opt.Token = DefaultToken
	}
	if opt.Username == "" {
		opt.Username = "pulse_test_bot"
	}
	if opt.Addr == "" {
		opt.Addr = "127.0.0.1:0"
	}
	if opt.SpecsDir == "" {
		opt.SpecsDir = os.Getenv("PULSE_SPECS_DIR")
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	sp, err := loadSpec(opt.SpecsDir)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", opt.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for the fake Bot API: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		opt: opt, spec: sp, ln: ln, ctx: ctx, stop: stop,
		changed: make(chan struct{}), users: map[int64]*User{}, chats: map[int64]*Chat{},
		files: map[string]file{}, callbacks: map[string]*Callback{},
		nextUser: 1001, nextGroup: 1, nextMsg: 1,
		queue:   updateQueue{next: firstUpdate},
		limiter: limiter{limits: opt.Limits, sent: map[int64][]time.Time{}},
	}
	s.bot = &User{s: s, ID: botID(opt.Token), FirstName: "Pulse", Username: opt.Username, bot: true}
	s.users[s.bot.ID] = s.bot
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	s.done.Go(func() { _ = s.http.Serve(ln) })
	s.done.Go(s.deliverWebhooks)
	return s, nil
}

// TB is the part of testing.TB that Start needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Start is New for tests: it closes the server at the end of the test and fails the test on every violation.
func Start(tb TB, opt Options) *Server {
	tb.Helper()
	s, err := New(opt)
	if err != nil {
		tb.Fatalf("start the fake Bot API: %v", err)
		return nil
	}
	tb.Cleanup(func() {
		s.Close()
		for _, v := range s.Violations() {
			tb.Errorf("Bot API violation: %s", v)
		}
	})
	return s
}

// URL is the base to use instead of https://api.telegram.org.
func (s *Server) URL() string { return "http://" + s.ln.Addr().String() }

// Token is the one callers must use.
func (s *Server) Token() string { return s.opt.Token }

// Username of the bot, without the @.
func (s *Server) Username() string { return s.opt.Username }

// BotID is the bot's user id.
func (s *Server) BotID() int64 { return s.bot.ID }

// SpecChecked says whether calls are compared with a published description.
func (s *Server) SpecChecked() bool { return s.spec != nil }

// Close ends the listener and every request that hangs.
func (s *Server) Close() {
	s.stop()
	_ = s.http.Close()
	s.done.Wait()
}

// Violations are the calls, so far, that a correct client would not have made.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.violations...)
}

// Calls returns every request so far, in order of arrival.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// CallsOf returns the requests of one method, in order.
func (s *Server) CallsOf(method string) []Call {
	var out []Call
	for _, c := range s.Calls() {
		if c.Method == method {
			out = append(out, c)
		}
	}
	return out
}

// Await returns when ok holds, looking again after every change of the server's state, or with an error when ctx ends. ok runs
// without locks held, so it may call anything on the server.
func (s *Server) Await(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("await the fake Bot API: %w (calls so far: %s)", context.Cause(ctx), s.tail(12))
		case <-s.ctx.Done():
			return fmt.Errorf("await the fake Bot API: it was closed")
		}
	}
}

func (s *Server) tail(n int) string {
	calls := s.Calls()
	if len(calls) > n {
		calls = calls[len(calls)-n:]
	}
	names := make([]string, 0, len(calls))
	for _, c := range calls {
		names = append(names, fmt.Sprintf("%s=%d %s", c.Method, c.Status, c.Error))
	}
	return strings.Join(names, "; ")
}

// wake must be called with the lock held, after every change.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) violate(format string, args ...any) {
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// ServeHTTP answers /bot<token>/<method> and /file/bot<token>/<path>.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path, ok := strings.CutPrefix(r.URL.Path, "/file/bot"+s.opt.Token+"/"); ok {
		s.serveFile(w, path)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/bot")
	token, method, found := strings.Cut(rest, "/")
	if !ok || !found || !strings.Contains(token, ":") {
		writeAnswer(w, refuse(http.StatusNotFound, "Not Found"))
		return
	}
	if token != s.opt.Token {
		writeAnswer(w, refuse(http.StatusUnauthorized, "Unauthorized"))
		return
	}
	p, err := readParams(r)
	if err != nil {
		s.mu.Lock()
		s.violate("%s: unreadable request: %v", method, err)
		s.mu.Unlock()
		writeAnswer(w, refuse(http.StatusBadRequest, "Bad Request: can't parse request"))
		return
	}
	s.serveMethod(w, r, method, p)
}

// serveMethod logs, checks, applies the injected fault, if any, and else the method.
func (s *Server) serveMethod(w http.ResponseWriter, r *http.Request, method string, p params) {
	chat, _ := p.chatID()
	s.mu.Lock()
	index := len(s.calls)
	s.calls = append(s.calls, Call{Method: method, ChatID: chat, Params: p.plain(), At: s.opt.Now()})
	for _, v := range s.spec.check(method, p) {
		s.violate("%s: %s", method, v)
	}
	fault := s.takeFault(s.calls[index])
	s.mu.Unlock()

	finish := func(a answer, effect bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls[index].Status, s.calls[index].Error, s.calls[index].Effect = a.status, a.description, effect
		s.wake()
	}
	if fault != nil && !fault.Applied {
		s.misbehave(w, r, fault, func(status int, text string) { finish(answer{status: status, description: text}, false) })
		return
	}
	a := s.apply(r, method, p)
	effect := a.status == http.StatusOK
	if fault != nil {
		s.misbehave(w, r, fault, func(status int, text string) { finish(answer{status: status, description: text}, effect) })
		return
	}
	finish(a, effect)
	writeAnswer(w, a)
}

// answer is what goes back; status 200 carries result.
type answer struct {
	status      int
	result      any
	description string
	retryAfter  int
	migrateTo   int64
}

func done(result any) answer { return answer{status: http.StatusOK, result: result} }

func refuse(status int, format string, args ...any) answer {
	return answer{status: status, description: fmt.Sprintf(format, args...)}
}

func bad(format string, args ...any) answer {
	return refuse(http.StatusBadRequest, "Bad Request: "+format, args...)
}

func tooMany(seconds int) answer {
	a := refuse(http.StatusTooManyRequests, "Too Many Requests: retry after %d", seconds)
	a.retryAfter = seconds
	return a
}

func writeAnswer(w http.ResponseWriter, a answer) {
	body := map[string]any{"ok": a.status == http.StatusOK}
	if a.status == http.StatusOK {
		body["result"] = a.result
	} else {
		body["error_code"], body["description"] = a.status, a.description
		extra := map[string]any{}
		if a.retryAfter > 0 {
			extra["retry_after"] = a.retryAfter
		}
		if a.migrateTo != 0 {
			extra["migrate_to_chat_id"] = a.migrateTo
		}
		if len(extra) > 0 {
			body["parameters"] = extra
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(body)
}

func botID(token string) int64 {
	head, _, _ := strings.Cut(token, ":")
	var id int64
	_, _ = fmt.Sscan(head, &id)
	return id
}
