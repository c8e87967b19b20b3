// Package tracing tells what agents do to whoever collects traces, over OTLP:
// a span for each run, its iterations and the tool calls in them. It owns the
// spans' names and attributes and the way out; it never holds up a run: what
// the collector does not take in time is dropped.
//
// An Exporter is one for a process and safe for concurrent use; an Observer is
// one for a run and used by one goroutine at a time, as the daemon does.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"pulseloop/agent"
	"pulseloop/pulse"
)

// Config says where traces go.
type Config struct {
	Endpoint       string // OTEL_EXPORTER_OTLP_ENDPOINT, such as http://localhost:4318; "" exports nothing
	ServiceVersion string
	Log            *slog.Logger
}

const (
	maxValue   = 4 << 10 // bytes of an attribute
	maxWaiting = 2048    // spans; more are dropped
	batchAfter = 2 * time.Second
	tryFor     = 5 * time.Second  // one request
	giveUpOn   = 20 * time.Second // one batch, with its repetitions
)

// Exporter sends the spans of all runs.
type Exporter struct {
	provider *sdk.TracerProvider // nil: nothing is exported
	tracer   trace.Tracer
}

// New returns an Exporter. Without an endpoint it does nothing and starts
// nothing. It does not wait for the collector, which may come and go.
func New(ctx context.Context, cfg Config) (*Exporter, error) {
	const scope = "pulseloop/agent/tracing"
	if cfg.Endpoint == "" {
		return &Exporter{tracer: noop.NewTracerProvider().Tracer(scope)}, nil
	}
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, pulse.Invalid(fmt.Sprintf("the endpoint for traces, %q, is no URL of a collector", cfg.Endpoint),
			"set OTEL_EXPORTER_OTLP_ENDPOINT to something like http://localhost:4318, or unset it")
	}
	out, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.JoinPath("v1", "traces").String()), otlptracehttp.WithTimeout(tryFor),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: giveUpOn}))
	if err != nil {
		return nil, fmt.Errorf("make exporter of traces: %w", err)
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxValue
	p := sdk.NewTracerProvider(
		sdk.WithBatcher(&quiet{SpanExporter: out, log: log}, sdk.WithBatchTimeout(batchAfter), sdk.WithExportTimeout(giveUpOn), sdk.WithMaxQueueSize(maxWaiting)),
		sdk.WithRawSpanLimits(limits),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "pulse"), attribute.String("service.version", cfg.ServiceVersion))))
	return &Exporter{provider: p, tracer: p.Tracer(scope)}, nil
}

// Observe returns the observer of one run: it fits agent.Config.Observers.
func (e *Exporter) Observe(t pulse.Task) agent.ProgressObserver {
	return e.Observer(cmp.Or(t.MediaContext.IterationNumber, 1))
}

// Observer returns an observer whose first iteration has the number given.
func (e *Exporter) Observer(first int) *Observer {
	return &Observer{tracer: e.tracer, next: first, tools: map[string]trace.Span{}}
}

// Shutdown sends what waits, as long as ctx allows. Call it when the runs are
// over.
func (e *Exporter) Shutdown(ctx context.Context) error {
	if e.provider == nil {
		return nil
	}
	if err := e.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}

// quiet logs failures now and then. The library would print each of them on
// standard error, into the middle of a conversation.
type quiet struct {
	sdk.SpanExporter
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

// ExportSpans sends a batch; one that cannot be sent is lost.
func (q *quiet) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.last) > time.Minute {
		q.last = time.Now()
		q.log.Warn("traces could not be sent", "spans", len(spans), "err", err)
	}
	return nil
}
