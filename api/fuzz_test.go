package api_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"pulseloop/api"
	"pulseloop/api/apitest"
	"pulseloop/api/wire"
)

// Whatever is sent: a goal that was stated is started as it was stated, and
// everything else is refused with a reason, never with a 500.
func FuzzStart(f *testing.F) {
	for _, seed := range []string{
		`{"projectName":"my-app","projectPath":"/src/my-app","goal":"Implement auth","maxIterations":10}`,
		`{"projectName":"my-app","goal":"x","chatId":-100,"createdBy":"cli"}`, `{"goal":"\ud83d"}`, `{"goal":1e999}`, `[[[[`, `{"a":{"a":{}}}`, `null`, "\xff", `{"goal":"a"} {}`,
		`{"projectName":"my-app","goal":"x","goal":"y"}`, `{"projectName":"my-app","goal":"x","maxIterations":-0}`, `{"projectPath":"/src/\u202e","goal":"\ufffd"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := apitest.New()
		w.AddProject("my-app", "/src/my-app")
		s, err := api.New(api.Config{Doer: w, Reader: w, Feed: w, Registrar: w})
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequest("POST", "/api/pulse/start", strings.NewReader(body))
		req.Host = "localhost"
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, req)
		if rec.Code == 201 {
			var sent map[string]any
			var got wire.SessionReply
			if json.Unmarshal([]byte(body), &sent) != nil || json.Unmarshal(rec.Body.Bytes(), &got) != nil {
				t.Fatalf("started from %q: %s", body, rec.Body)
			}
			goal, _ := sent["goal"].(string)
			if got.Session.Goal == "" || strings.TrimSpace(goal) != got.Session.Goal {
				t.Fatalf("goal %q became %q", goal, got.Session.Goal)
			}
			return
		}
		var e wire.Error
		if rec.Code >= 500 || json.Unmarshal(rec.Body.Bytes(), &e) != nil || e.Error.Message == "" || !utf8.ValidString(rec.Body.String()) || len(w.Calls()) != 0 {
			t.Fatalf("%d for %q: %s", rec.Code, body, rec.Body)
		}
	})
}
