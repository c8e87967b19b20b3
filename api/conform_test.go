package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"pulseloop/api"
)

// document is the description that is served, checked once.
var document = sync.OnceValues(func() (*openapi3.T, error) {
	b, err := os.ReadFile("openapi.json")
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(b)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

// router finds the operation of a request; it is costly to make.
var router = sync.OnceValues(func() (routers.Router, error) {
	doc, err := document()
	if err != nil {
		return nil, err
	}
	return legacy.NewRouter(doc)
})

// conform checks an exchange against the description: every answer, and
// every request that was accepted.
func conform(t *testing.T, req *http.Request, sent []byte, res *http.Response, got []byte) {
	t.Helper()
	described, err := router()
	if err != nil {
		t.Fatalf("openapi.json: %v", err)
	}
	asked := req.Clone(context.Background())
	asked.URL.Scheme, asked.URL.Host = "", ""
	asked.Body = io.NopCloser(bytes.NewReader(sent))
	if req.Method == http.MethodHead || res.StatusCode == http.StatusMethodNotAllowed || !knownPath(req.URL.Path) {
		return // hooks, and what has no operation to be described under
	}
	rt, params, err := described.FindRoute(asked)
	if err != nil {
		if res.StatusCode < 400 {
			t.Errorf("%s %s answers %d and is not described: %v", req.Method, req.URL.Path, res.StatusCode, err)
		}
		return
	}
	in := &openapi3filter.RequestValidationInput{Request: asked, PathParams: params, Route: rt,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}}
	if res.StatusCode < 400 && req.Method != http.MethodHead {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			t.Errorf("%s %s was accepted, but the description refuses it: %v", req.Method, req.URL, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: res.StatusCode, Header: res.Header, Options: in.Options}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		out.Options = &openapi3filter.Options{ExcludeResponseBody: true, IncludeResponseStatus: true}
	}
	out.SetBodyBytes(got)
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		t.Errorf("%s %s: the answer %d is not as described: %v", req.Method, req.URL, res.StatusCode, err)
	}
}

func knownPath(p string) bool {
	return strings.HasPrefix(p, "/api/") || slices.Contains(api.RouteNames(), "GET "+p)
}

func TestEveryRouteIsDescribed(t *testing.T) {
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("version %s", doc.OpenAPI)
	}
	var served, described []string
	served = append(served, api.RouteNames()...)
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if !slices.Equal(served, described) {
		t.Errorf("served    %q\ndescribed %q", served, described)
	}
}

func TestDescriptionIsServed(t *testing.T) {
	r := serve(t, nil)
	var doc struct{ OpenAPI string }
	a := r.want(200, "GET", "/openapi.json", "", &doc)
	file, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || !bytes.Equal(a.body, file) {
		t.Error("the served document is not the file")
	}
}

// frameConforms checks a WebSocket frame against its schema, which needs nothing that is new in 3.1.
func frameConforms(t *testing.T, b []byte) {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("frame is not JSON: %v", err)
	}
	if err := doc.Components.Schemas["Frame"].Value.VisitJSON(v); err != nil {
		t.Errorf("frame %s: %v", b, err)
	}
}
