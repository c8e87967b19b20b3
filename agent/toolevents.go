package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// maxEventLine bounds a buffered line; a longer one cannot be a tool event
// worth showing, and is skipped to its end.
const maxEventLine = 1 << 20

// ToolEventWriter reads tool events out of an agent's output: JSON lines of
// type "tool_call" with subtype "started", "ended" or "completed". Pieces of
// lines are buffered; everything else is ignored. It always takes all bytes
// and never fails, so it can stand beside any other writer. Not for
// concurrent use.
type ToolEventWriter struct {
	observer ProgressObserver
	clock    func() time.Time
	line     []byte
	skipping bool
}

// NewToolEventWriter returns a writer that tells the observer.
func NewToolEventWriter(o ProgressObserver, clock func() time.Time) *ToolEventWriter {
	if clock == nil {
		clock = time.Now
	}
	return &ToolEventWriter{observer: o, clock: clock}
}

// Write takes the next bytes of the output.
func (w *ToolEventWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.buffer(p)
			break
		}
		w.buffer(p[:i])
		w.finish()
		p = p[i+1:]
	}
	return n, nil
}

// Close handles a last line without an end.
func (w *ToolEventWriter) Close() error {
	w.finish()
	return nil
}

func (w *ToolEventWriter) buffer(p []byte) {
	if w.skipping || len(w.line)+len(p) > maxEventLine {
		w.skipping, w.line = true, w.line[:0]
		return
	}
	w.line = append(w.line, p...)
}

func (w *ToolEventWriter) finish() {
	line := w.line
	w.line, w.skipping = w.line[:0], false
	e, ok := parseToolEvent(line, w.clock())
	if !ok {
		return
	}
	if e.Started {
		w.observer.OnToolStart(e)
	} else {
		w.observer.OnToolEnd(e)
	}
}

// attributeNames maps the argument names that agents use to those that
// observers are told.
var attributeNames = map[string]string{
	"path": "file_path", "file_path": "file_path", "filePath": "file_path", "file": "file_path",
	"command": "command", "cmd": "command", "query": "query", "pattern": "query",
}

func parseToolEvent(line []byte, now time.Time) (ToolEvent, bool) {
	if !bytes.Contains(line, []byte(`"tool_call"`)) {
		return ToolEvent{}, false
	}
	var raw struct {
		Type       string         `json:"type"`
		Subtype    string         `json:"subtype"`
		Name       string         `json:"name"`
		CallID     string         `json:"call_id"`
		Arguments  map[string]any `json:"arguments"`
		DurationMS *float64       `json:"duration_ms"`
	}
	if json.Unmarshal(line, &raw) != nil || raw.Type != "tool_call" {
		return ToolEvent{}, false
	}
	e := ToolEvent{ID: raw.CallID, Name: raw.Name, Timestamp: now, Attributes: Attributes(raw.Arguments)}
	switch raw.Subtype {
	case "started":
		e.Started = true
	case "ended", "completed":
	default:
		return ToolEvent{}, false
	}
	if raw.DurationMS != nil {
		e.Attributes["duration_ms"] = fmt.Sprint(*raw.DurationMS)
	}
	return e, true
}

// Attributes picks what people want to see of a tool's arguments: the file,
// the command, the query, and other short plain values under their own names.
func Attributes(args map[string]any) map[string]string {
	out := map[string]string{}
	for k, v := range args {
		text := fmt.Sprint(v)
		if name, ok := attributeNames[k]; ok {
			out[name] = text
			continue
		}
		switch v.(type) {
		case string, float64, bool:
			if len(text) <= 200 {
				out[k] = text
			}
		}
	}
	return out
}
