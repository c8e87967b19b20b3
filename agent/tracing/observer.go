package tracing

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"pulseloop/agent"
)

// maxOpenTools bounds the calls of a run that were begun and have not ended.
const maxOpenTools = 256

// Observer makes the spans of one run: the loop, in it the iterations, in
// these the tool calls. A tool call outside of an iteration belongs to the
// loop.
type Observer struct {
	agent.NoopObserver
	tracer    trace.Tracer
	next      int
	loop      trace.Span
	iteration trace.Span
	tools     map[string]trace.Span
}

var _ agent.ProgressObserver = (*Observer)(nil)

// within gives the context of a span's children.
func within(s trace.Span) context.Context {
	return trace.ContextWithSpan(context.Background(), s)
}

// OnLoopStart begins the root span.
func (o *Observer) OnLoopStart(rootBead string) {
	_, o.loop = o.tracer.Start(context.Background(), "loop", trace.WithAttributes(attribute.String("root_bead", rootBead)))
}

// OnBeadStart begins an iteration's span.
func (o *Observer) OnBeadStart(b agent.Bead) {
	n := o.next
	o.next++
	_, o.iteration = o.tracer.Start(within(o.loop), fmt.Sprintf("iteration-%d", n), trace.WithAttributes(
		attribute.String("bead_id", b.ID), attribute.String("bead_title", b.Title), attribute.Int("iteration", n)))
}

// OnBeadComplete ends the iteration's span, and tool calls that never ended.
func (o *Observer) OnBeadComplete(r agent.BeadResult) {
	o.endTools()
	if o.iteration == nil {
		return
	}
	o.iteration.SetAttributes(attribute.String("outcome", string(r.Outcome)), attribute.Int64("duration_ms", r.Duration.Milliseconds()),
		attribute.String("chat_id", r.ChatID), attribute.Int("exit_code", r.ExitCode), attribute.String("error", r.Error))
	if r.Outcome == agent.OutcomeFailure || r.Outcome == agent.OutcomeTimeout {
		o.iteration.SetStatus(codes.Error, r.Error)
	}
	o.iteration.End()
	o.iteration = nil
}

// OnLoopEnd ends the root span.
func (o *Observer) OnLoopEnd(r *agent.CoreResult) {
	o.endTools()
	if o.loop == nil {
		return
	}
	if r != nil {
		o.loop.SetAttributes(attribute.Int("succeeded", r.Succeeded), attribute.Int("failed", r.Failed), attribute.Int("questions", r.Questions),
			attribute.Int("timed_out", r.TimedOut), attribute.String("duration", r.Duration.String()))
		if r.Failed+r.TimedOut > 0 {
			o.loop.SetStatus(codes.Error, "")
		}
	}
	o.loop.End()
	o.loop = nil
}

// OnToolStart begins a tool call's span.
func (o *Observer) OnToolStart(e agent.ToolEvent) {
	s := o.begin(e)
	if len(o.tools) < maxOpenTools {
		o.tools[key(e)] = s
	}
}

// OnToolEnd ends a tool call's span; an end without a start is a span without
// a length.
func (o *Observer) OnToolEnd(e agent.ToolEvent) {
	s, ok := o.tools[key(e)]
	if !ok {
		s = o.begin(e)
	}
	delete(o.tools, key(e))
	s.SetAttributes(attributes(e)...)
	if e.Attributes["status"] == "failed" {
		s.SetStatus(codes.Error, "")
	}
	s.End(trace.WithTimestamp(e.Timestamp))
}

// key finds a call again; one without an id is known by its name.
func key(e agent.ToolEvent) string { return cmp.Or(e.ID, "\x00"+e.Name) }

func (o *Observer) begin(e agent.ToolEvent) trace.Span {
	parent := context.Background()
	switch {
	case o.iteration != nil:
		parent = within(o.iteration)
	case o.loop != nil:
		parent = within(o.loop)
	}
	_, s := o.tracer.Start(parent, cmp.Or(e.Name, "tool"), trace.WithTimestamp(e.Timestamp), trace.WithAttributes(attributes(e)...))
	return s
}

func attributes(e agent.ToolEvent) []attribute.KeyValue {
	var out []attribute.KeyValue
	for _, k := range slices.Sorted(maps.Keys(e.Attributes)) {
		out = append(out, attribute.String(k, e.Attributes[k]))
	}
	if e.Name != "" {
		out = append(out, attribute.String("tool_name", e.Name))
	}
	return out
}

// endTools ends what never ended.
func (o *Observer) endTools() {
	for k, s := range o.tools {
		s.SetStatus(codes.Error, "the call never ended")
		s.End()
		delete(o.tools, k)
	}
}
