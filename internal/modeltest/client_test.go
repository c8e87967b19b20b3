package modeltest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// obj spells JSON objects in the tests.
type obj = map[string]any

type reply struct {
	status int
	header http.Header
	body   []byte
	// broken is what reading the body ended with, nil where the stream ended as it should.
	broken error
}

func post(t *testing.T, ctx context.Context, url string, body any, header http.Header) reply {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("post %s: %v", url, err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: got, broken: err}
}

// events decodes a stream's data lines; names and types must agree.
func (r reply) events(t *testing.T) []obj {
	t.Helper()
	var out []obj
	var name string
	sc := bufio.NewScanner(bytes.NewReader(r.body))
	for sc.Scan() {
		if n, ok := strings.CutPrefix(sc.Text(), "event: "); ok {
			name = n
		}
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		var o obj
		if err := json.Unmarshal([]byte(data), &o); err != nil {
			t.Fatalf("event %s is not JSON: %v\n%s", name, err, data)
		}
		if o["type"] != name {
			t.Fatalf("event %q carries type %q", name, o["type"])
		}
		out = append(out, o)
	}
	return out
}

func (r reply) object(t *testing.T) obj {
	t.Helper()
	var o obj
	if err := json.Unmarshal(r.body, &o); err != nil {
		t.Fatalf("body is not JSON: %v\n%s", err, r.body)
	}
	return o
}

func types(events []obj) []string {
	var out []string
	for _, e := range events {
		out = append(out, e["type"].(string))
	}
	return out
}

// join concatenates one string field of all events of a type.
func join(events []obj, typ string, path ...string) string {
	var b strings.Builder
	for _, e := range events {
		if e["type"] != typ {
			continue
		}
		var v any = e
		for _, p := range path {
			v, _ = v.(obj)[p]
		}
		s, _ := v.(string)
		b.WriteString(s)
	}
	return b.String()
}

func start(t *testing.T, mk func(...Script) *Server, scripts ...Script) *Server {
	t.Helper()
	s := mk(scripts...)
	t.Cleanup(s.Close)
	return s
}

// clean fails the test where the server saw anything it should not have.
func clean(t *testing.T, s *Server) {
	t.Helper()
	for _, v := range s.Violations() {
		t.Errorf("violation: %s", v)
	}
}

// violated demands exactly one violation that says what.
func violated(t *testing.T, s *Server, what string) {
	t.Helper()
	vs := s.Violations()
	if len(vs) != 1 || !strings.Contains(vs[0], what) {
		t.Errorf("violations = %q, want one that mentions %q", vs, what)
	}
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
