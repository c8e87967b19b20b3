package agent

import (
	"encoding/json"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/internal/secret"
)

// toolWatch tells an observer of the tool calls in a backend's events.
type toolWatch struct {
	observer ProgressObserver
	clock    func() time.Time
}

func (w toolWatch) take(e cli.Event) {
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

// toolEvents turns tool events found in plain output into events of a
// backend.
type toolEvents struct {
	NoopObserver
	take func(cli.Event)
}

func (t *toolEvents) OnToolStart(e ToolEvent) {
	t.take(cli.Event{Kind: cli.EventToolStart, At: e.Timestamp, Tool: toolOf(e)})
}

func (t *toolEvents) OnToolEnd(e ToolEvent) {
	t.take(cli.Event{Kind: cli.EventToolEnd, At: e.Timestamp, Tool: toolOf(e)})
}

func toolOf(e ToolEvent) *cli.Tool {
	input, _ := json.Marshal(e.Attributes) // a map of strings always encodes
	summary := ""
	for _, k := range []string{"command", "file_path", "query"} {
		if v := e.Attributes[k]; v != "" {
			summary = cli.OneLine(v)
			break
		}
	}
	return &cli.Tool{ID: e.ID, Name: e.Name, Input: input, Summary: summary}
}

// maxToolInput bounds the arguments of a call that are kept: whole files may
// be among them, and the file itself is in the tree.
const maxToolInput = 32 << 10

// cleanTool gives the call without secrets and bounded. Its input stays JSON:
// what is no longer an object becomes a string.
func cleanTool(r *secret.Redactor, t *cli.Tool) *cli.Tool {
	if t == nil {
		return nil
	}
	c := *t
	c.ID, c.Name, c.Summary = r.String(t.ID), r.String(t.Name), r.String(t.Summary)
	c.Output = cli.CutMiddle(r.String(t.Output), cli.MaxToolOutput)
	input := r.String(string(t.Input))
	if input != "" && (len(input) > maxToolInput || !json.Valid([]byte(input))) {
		quoted, _ := json.Marshal(cli.CutMiddle(input, maxToolInput/2)) // a string always encodes
		input = string(quoted)
	}
	c.Input = json.RawMessage(input)
	return &c
}
