package tracing_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"pulseloop/agent"
	"pulseloop/agent/tracing"
	"pulseloop/pulse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a collector that keeps what it gets.
type receiver struct {
	t  *testing.T
	mu sync.Mutex
	// by name; and the attributes of the resource
	spans    map[string]*spans.Span
	resource map[string]string
}

func listen(t *testing.T) (*receiver, string) {
	r := &receiver{t: t, spans: map[string]*spans.Span{}, resource: map[string]string{}}
	s := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(s.Close)
	return r, s.URL
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var in collector.ExportTraceServiceRequest
	if err != nil || req.Method != http.MethodPost || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("%s %s %v: %v", req.Method, req.URL, req.Header, err)
	}
	if err := proto.Unmarshal(body, &in); err != nil {
		r.t.Errorf("decode: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range in.ResourceSpans {
		r.resource = attributes(rs.Resource.Attributes)
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				if r.spans[s.Name] != nil {
					r.t.Errorf("span %s came twice", s.Name)
				}
				r.spans[s.Name] = s
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func attributes(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.Key] = fmt.Sprint(v.IntValue)
		default:
			out[kv.Key] = fmt.Sprintf("%T", v)
		}
	}
	return out
}

func (r *receiver) want(name, parent string, status spans.Status_StatusCode, attrs map[string]string) {
	r.t.Helper()
	s := r.spans[name]
	if s == nil {
		r.t.Errorf("no span %s", name)
		return
	}
	under := ""
	for _, p := range r.spans {
		if string(p.SpanId) == string(s.ParentSpanId) {
			under = p.Name
		}
	}
	if under != parent || (parent == "") != (len(s.ParentSpanId) == 0) {
		r.t.Errorf("%s is under %q (%s), want %q", name, under, hex.EncodeToString(s.ParentSpanId), parent)
	}
	if got := s.Status.GetCode(); got != status {
		r.t.Errorf("%s has status %v", name, got)
	}
	if got := attributes(s.Attributes); fmt.Sprint(got) != fmt.Sprint(attrs) {
		r.t.Errorf("%s has\n%v, want\n%v", name, got, attrs)
	}
	if s.EndTimeUnixNano < s.StartTimeUnixNano {
		r.t.Errorf("%s ends before it starts", name)
	}
}

func start(t *testing.T, endpoint string) *tracing.Exporter {
	t.Helper()
	e, err := tracing.New(t.Context(), tracing.Config{Endpoint: endpoint, ServiceVersion: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func tool(id, name string, started bool, attrs map[string]string) agent.ToolEvent {
	return agent.ToolEvent{ID: id, Name: name, Started: started, Timestamp: time.Now(), Attributes: attrs}
}

func TestSpans(t *testing.T) {
	r, url := listen(t)
	e := start(t, url)
	o := e.Observer(1)
	o.OnLoopStart("epic-1")
	o.OnToolStart(tool("0", "outside", true, nil))
	o.OnToolEnd(tool("0", "outside", false, nil))
	o.OnBeadStart(agent.Bead{ID: "b1", Title: "first"})
	o.OnToolStart(tool("1", "read", true, map[string]string{"file_path": "a.go"}))
	o.OnToolStart(tool("2", "bash", true, map[string]string{"command": "make"}))
	o.OnToolEnd(tool("1", "read", false, map[string]string{"duration_ms": "5"}))
	o.OnToolEnd(tool("2", "bash", false, map[string]string{"status": "failed"}))
	o.OnToolEnd(tool("9", "lonely", false, nil))
	o.OnToolStart(tool("3", "endless", true, nil))
	o.OnBeadComplete(agent.BeadResult{Bead: agent.Bead{ID: "b1"}, Outcome: agent.OutcomeSuccess, Duration: 1500 * time.Millisecond, ChatID: "chat"})
	o.OnBeadStart(agent.Bead{ID: "b2", Title: "second"})
	o.OnBeadComplete(agent.BeadResult{Outcome: agent.OutcomeTimeout, ExitCode: 3, Error: "silent"})
	o.OnLoopEnd(&agent.CoreResult{Succeeded: 1, TimedOut: 1, Duration: 2 * time.Second})
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	const unset, failed = spans.Status_STATUS_CODE_UNSET, spans.Status_STATUS_CODE_ERROR
	r.want("loop", "", failed, map[string]string{"root_bead": "epic-1", "succeeded": "1", "failed": "0", "questions": "0", "timed_out": "1", "duration": "2s"})
	r.want("iteration-1", "loop", unset, map[string]string{"bead_id": "b1", "bead_title": "first", "iteration": "1", "outcome": "success",
		"duration_ms": "1500", "chat_id": "chat", "exit_code": "0", "error": ""})
	r.want("iteration-2", "loop", failed, map[string]string{"bead_id": "b2", "bead_title": "second", "iteration": "2", "outcome": "timeout",
		"duration_ms": "0", "chat_id": "", "exit_code": "3", "error": "silent"})
	r.want("outside", "loop", unset, map[string]string{"tool_name": "outside"})
	r.want("read", "iteration-1", unset, map[string]string{"tool_name": "read", "file_path": "a.go", "duration_ms": "5"})
	r.want("bash", "iteration-1", failed, map[string]string{"tool_name": "bash", "command": "make", "status": "failed"})
	r.want("lonely", "iteration-1", unset, map[string]string{"tool_name": "lonely"})
	r.want("endless", "iteration-1", failed, map[string]string{"tool_name": "endless"})
	if len(r.spans) != 8 || r.resource["service.name"] != "pulse" || r.resource["service.version"] != "1.2.3" {
		t.Errorf("%d spans, resource %v", len(r.spans), r.resource)
	}
}

// Several runs at once share the exporter, and no span gets into another's
// trace.
func TestRunsKeepApart(t *testing.T) {
	r, url := listen(t)
	e := start(t, url)
	var runs sync.WaitGroup
	for n := 1; n <= 20; n++ {
		runs.Go(func() {
			o := e.Observe(pulse.Task{MediaContext: pulse.MediaContext{IterationNumber: n}})
			o.OnLoopStart("")
			o.OnBeadStart(agent.Bead{})
			runtime.Gosched()
			o.OnToolStart(tool("same", fmt.Sprintf("tool-%d", n), true, nil))
			o.OnToolEnd(tool("same", fmt.Sprintf("tool-%d", n), false, nil))
			o.OnBeadComplete(agent.BeadResult{Outcome: agent.OutcomeSuccess})
		})
	}
	runs.Wait()
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	traces := map[string]bool{}
	for n := 1; n <= 20; n++ {
		it, tl := r.spans[fmt.Sprintf("iteration-%d", n)], r.spans[fmt.Sprintf("tool-%d", n)]
		if it == nil || tl == nil || string(tl.ParentSpanId) != string(it.SpanId) || string(tl.TraceId) != string(it.TraceId) {
			t.Fatalf("run %d: %v, %v", n, it, tl)
		}
		traces[string(it.TraceId)] = true
	}
	if len(traces) != 20 {
		t.Errorf("%d traces", len(traces))
	}
}

func TestLongValuesAreCut(t *testing.T) {
	r, url := listen(t)
	e := start(t, url)
	o := e.Observer(1)
	o.OnToolEnd(tool("1", "bash", false, map[string]string{"command": strings.Repeat("x", 1<<20)}))
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(attributes(r.spans["bash"].Attributes)["command"]); n != 4<<10 {
		t.Errorf("%d bytes", n)
	}
}

func TestNoEndpointNoExport(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	before := runtime.NumGoroutine()
	e := start(t, "")
	everything(e.Observer(1))
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines were started", now-before)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func everything(o *tracing.Observer) {
	o.OnLoopStart("")
	o.OnBeadStart(agent.Bead{})
	o.OnToolStart(tool("1", "x", true, nil))
	o.OnToolEnd(tool("1", "x", false, nil))
	o.OnBeadComplete(agent.BeadResult{})
	o.OnLoopEnd(nil)
}

// Calls in an order nobody promised are no reason to fail.
func TestAnyOrder(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	e := start(t, s.URL)
	o := e.Observer(1)
	o.OnLoopEnd(nil)
	o.OnBeadComplete(agent.BeadResult{})
	o.OnToolEnd(tool("", "", false, nil))
	everything(o)
	everything(o)
	o = e.Observer(1)
	o.OnBeadStart(agent.Bead{})
	o.OnBeadComplete(agent.BeadResult{})
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCollectorThatHangsHoldsNobodyUp(t *testing.T) {
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	e := start(t, s.URL)
	began := time.Now()
	for range 2000 { // more than the queue holds
		everything(e.Observer(1))
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the runs took %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began = time.Now()
	_ = e.Shutdown(ctx)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("shutdown took %v", took)
	}
}

func TestEndpointThatIsNone(t *testing.T) {
	for _, endpoint := range []string{"localhost:4318", "ftp://x", "http://", "::"} {
		if _, err := tracing.New(t.Context(), tracing.Config{Endpoint: endpoint}); pulse.CodeOf(err) != pulse.CodeInvalid {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

func TestEndpointWithAPath(t *testing.T) {
	got := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.URL.Path }))
	t.Cleanup(s.Close)
	e := start(t, s.URL+"/otlp/")
	everything(e.Observer(1))
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if path := <-got; path != "/otlp/v1/traces" {
		t.Errorf("sent to %s", path)
	}
}
