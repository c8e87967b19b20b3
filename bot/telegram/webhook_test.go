package telegram_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pulseloop/bot/telegram"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/pulse"
)

const secret = "0123456789abcdef0123456789abcdef"

func hook(t *testing.T, e *env, in *intake) *telegram.Webhook {
	t.Helper()
	h, err := telegram.NewWebhook(e.client, in, telegram.WebhookConfig{URL: "https://bot.example/telegram", Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func deliver(h http.Handler, body string, change func(*http.Request)) int {
	r := httptest.NewRequest(http.MethodPost, "/telegram", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(telegram.SecretHeader, secret)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestWebhookRefuses(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	h := hook(t, e, in)
	const good = `{"update_id": 10, "message": {"message_id": 1, "text": "x"}}`
	for name, c := range map[string]struct {
		body   string
		change func(*http.Request)
		want   int
	}{
		"no secret":       {good, func(r *http.Request) { r.Header.Del(telegram.SecretHeader) }, 401},
		"wrong secret":    {good, func(r *http.Request) { r.Header.Set(telegram.SecretHeader, secret[:31]+"0") }, 401},
		"longer secret":   {good, func(r *http.Request) { r.Header.Set(telegram.SecretHeader, secret+"x") }, 401},
		"empty secret":    {good, func(r *http.Request) { r.Header.Set(telegram.SecretHeader, "") }, 401},
		"two secrets":     {good, func(r *http.Request) { r.Header.Add(telegram.SecretHeader, secret) }, 401},
		"get":             {good, func(r *http.Request) { r.Method = http.MethodGet }, 405},
		"form":            {good, func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, 415},
		"gzip":            {good, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415},
		"too large":       {`{"update_id": 1, "x": "` + strings.Repeat("a", 1<<20) + `"}`, nil, 413},
		"not json":        {`update_id=1`, nil, 400},
		"no id":           {`{"message": {}}`, nil, 400},
		"negative id":     {`{"update_id": -1}`, nil, 400},
		"huge id":         {`{"update_id": 9223372036854775807}`, nil, 400},
		"text id":         {`{"update_id": "7"}`, nil, 400},
		"deep":            {`{"update_id": 1, "x": ` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, nil, 400},
		"deeper":          {`{"update_id": 1, "x": ` + strings.Repeat(`{"a":`, 10000) + `1` + strings.Repeat("}", 10000) + `}`, nil, 400},
		"two ids":         {`{"update_id": 1, "update_id": 2}`, nil, 400},
		"two messages":    {`{"update_id": 1, "message": {"text": "a"}, "Message": {"from": {"id": 7}}}`, nil, 400},
		"deflate":         {good, func(r *http.Request) { r.Header.Set("Content-Encoding", "deflate, identity") }, 415},
		"no type":         {good, func(r *http.Request) { r.Header.Del("Content-Type") }, 415},
		"a list":          {`[{"update_id": 1}]`, nil, 400},
		"nothing":         {``, nil, 400},
		"two values":      {good + good, nil, 400},
		"secret in query": {good, func(r *http.Request) { r.Header.Del(telegram.SecretHeader); r.URL.RawQuery = "secret_token=" + secret }, 401},
	} {
		if got := deliver(h, c.body, c.change); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if in.len() != 0 {
		t.Errorf("%d refused updates were stored", in.len())
	}
	for _, odd := range []string{`{"update_id": 0}`, `{"update_id": 9007199254740991}`, `{"update_id": 3, "shiny_new_thing": {"x": [1, {}]}}`, `{"update_id": 4, "message": null}`} {
		if got := deliver(h, odd, func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json; charset=utf-8")
			r.Host = "evil.example"
			r.Header.Set("X-Forwarded-For", "127.0.0.1")
			r.Header.Set("X-Forwarded-Host", "localhost")
		}); got != 200 {
			t.Errorf("%s: %d", odd, got)
		}
	}
	if in.len() != 4 {
		t.Errorf("%d odd updates were stored, want 4", in.len())
	}
	for range 2 { // the second is a replay: accepted, stored once
		if got := deliver(h, good, nil); got != 200 {
			t.Errorf("good update: %d", got)
		}
	}
	if in.len() != 5 || in.offset != "" {
		t.Errorf("stored %d, offset %q", in.len(), in.offset)
	}
}

// The body of a stranger's request is never read.
func TestWebhookReadsNothingOfStrangers(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	r := httptest.NewRequest(http.MethodPost, "/telegram", io.NopCloser(trap{t}))
	w := httptest.NewRecorder()
	hook(t, e, newIntake()).ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized {
		t.Errorf("status %d", w.Code)
	}
}

// Who knows the secret and sends slowly, or not what it announced, is cut off and has stored nothing.
func TestWebhookIsNotKeptWaiting(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	h, err := telegram.NewWebhook(e.client, in, telegram.WebhookConfig{URL: "https://bot.example/telegram", Secret: secret, BodyTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h)
	defer web.Close()
	for name, rest := range map[string]string{"nothing": "", "a part": `{"update_id": 1`} {
		conn, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "POST /telegram HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s: %s\r\nContent-Length: 500\r\n\r\n%s", telegram.SecretHeader, secret, rest)
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
	}
	if in.len() != 0 {
		t.Errorf("%d were stored", in.len())
	}
}

type trap struct{ t *testing.T }

func (tr trap) Read([]byte) (int, error) {
	tr.t.Error("the body was read before the secret was checked")
	return 0, io.EOF
}

func TestWebhookEndToEnd(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	failures := 0
	in.fail(func() error {
		if failures++; failures < 3 {
			return errors.New("database away")
		}
		return nil
	}, nil)
	mux := http.NewServeMux()
	web := httptest.NewServer(mux)
	defer web.Close()
	h, err := telegram.NewWebhook(e.client, in, telegram.WebhookConfig{URL: web.URL + "/telegram"})
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/telegram", h)
	if err := h.Register(e.ctx); err != nil {
		t.Fatal(err)
	}
	if e.client.Username() != e.srv.Username() {
		t.Errorf("username %q", e.client.Username())
	}
	ann := e.srv.User("Ann")
	ann.Private().Say(ann, "one")
	ann.Private().Say(ann, "two")
	if err := in.await(e.ctx, 2); err != nil {
		t.Fatal(err)
	}
	if err := e.srv.Await(e.ctx, func() bool { return len(e.srv.Pending()) == 0 }); err != nil {
		t.Fatal(err)
	}
	if failures != 4 {
		t.Errorf("%d commits were tried, want two refused and two good", failures)
	}
	if !strings.Contains(e.srv.WebhookError(), "503") {
		t.Errorf("while the database was away Telegram was told %q", e.srv.WebhookError())
	}
	// Back to polling: the webhook goes, the updates stay.
	_, stop := run(t, e, in, quick())
	ann.Private().Say(ann, "three")
	if err := in.await(e.ctx, 3); err != nil {
		t.Fatal(err)
	}
	stop()
}

func TestWebhookConfiguration(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	for name, cfg := range map[string]telegram.WebhookConfig{
		"no url":       {Secret: secret},
		"plain http":   {URL: "http://bot.example/x", Secret: secret},
		"short secret": {URL: "https://bot.example/x", Secret: "short"},
		"bad secret":   {URL: "https://bot.example/x", Secret: strings.Repeat("é", 20)},
	} {
		if _, err := telegram.NewWebhook(e.client, newIntake(), cfg); pulse.CodeOf(err) != pulse.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
