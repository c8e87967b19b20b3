package agent

import (
	"encoding/json"
	"time"

	"pulseloop/agent/cli"
)

// toolWatch tells an observer of the tool calls in a backend's events.
type toolWatch struct {
	observer ProgressObserver
	clock    func() time.Time
}

func newToolWatch(o ProgressObserver, clock func() time.Time) *toolWatch {
	return &toolWatch{observer: o, clock: clock}
}

func (w *toolWatch) take(e cli.Event) {
	if e.Tool == nil || (e.Kind != cli.EventToolStart && e.Kind != cli.EventToolEnd) {
		return
	}
	at := e.At
	if at.IsZero() {
		at = w.clock()
	}
	var args map[string]any
	_ = json.Unmarshal(e.Tool.Input, &args) // arguments that are no object have no attributes
	ev := ToolEvent{ID: e.Tool.ID, Name: e.Tool.Name, Started: e.Kind == cli.EventToolStart, Timestamp: at, Attributes: Attributes(args)}
	if ev.Started {
		w.observer.OnToolStart(ev)
		return
	}
	if e.Tool.Failed {
		ev.Attributes["status"] = "failed"
	}
	w.observer.OnToolEnd(ev)
}

// toolRecorder passes tool events found in plain output on to the observers
// and into the record.
type toolRecorder struct {
	NoopObserver
	next ProgressObserver
	rec  *recorder
}

func (t *toolRecorder) OnToolStart(e ToolEvent) {
	t.next.OnToolStart(e)
	t.rec.take(cli.Event{Kind: cli.EventToolStart, At: e.Timestamp, Tool: toolOf(e)})
}

func (t *toolRecorder) OnToolEnd(e ToolEvent) {
	t.next.OnToolEnd(e)
	t.rec.take(cli.Event{Kind: cli.EventToolEnd, At: e.Timestamp, Tool: toolOf(e)})
}

func toolOf(e ToolEvent) *cli.Tool {
	input, _ := json.Marshal(e.Attributes) // a map of strings always encodes
	summary := e.Name
	for _, k := range []string{"command", "file_path", "query"} {
		if v := e.Attributes[k]; v != "" {
			summary = v
			break
		}
	}
	return &cli.Tool{ID: e.ID, Name: e.Name, Input: input, Summary: summary}
}
