package telegram_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
	for range 2 { // the second is a replay: accepted, stored once
		if got := deliver(h, good, nil); got != 200 {
			t.Errorf("good update: %d", got)
		}
	}
	if in.len() != 1 || in.offset != "" {
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
