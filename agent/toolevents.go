package agent

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"pulseloop/agent/cli"
)

// maxEventLine bounds a buffered line; a longer one cannot be a tool event
// worth showing, and is skipped to its end.
const maxEventLine = 1 << 20

// keptLine bounds the buffer that is kept between two lines.
const keptLine = 64 << 10

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
	e, ok := parseToolEvent(w.line, w.clock())
	w.skipping = false
	if w.line = w.line[:0]; cap(w.line) > keptLine {
		w.line = nil
	}
	if !ok {
		return
	}
	if e.Started {
		w.observer.OnToolStart(e)
	} else {
		w.observer.OnToolEnd(e)
	}
}

// attributeNames are the names under which observers are told what a call is
// about, each with the argument names that agents use for it, the best first.
var attributeNames = []struct {
	name string
	from []string
}{
	{"file_path", []string{"file_path", "path", "filePath", "file"}},
	{"command", []string{"command", "cmd"}},
	{"query", []string{"query", "pattern"}},
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
		DurationMS any            `json:"duration_ms"`
	}
	if !cli.Decode(line, &raw) || raw.Type != "tool_call" {
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
	if ms, ok := raw.DurationMS.(float64); ok {
		e.Attributes["duration_ms"] = plainValue(ms)
	}
	return e, true
}

const (
	maxAttribute     = 4 << 10 // bytes of a file path, command or query
	maxOtherArgument = 200     // a longer one is content, not a description
	maxAttributes    = 32
)

// Attributes picks what people want to see of a tool's arguments: the file,
// the command, the query, and other short plain values under their own names.
func Attributes(args map[string]any) map[string]string {
	out := map[string]string{}
	used := map[string]bool{}
	for _, a := range attributeNames {
		for _, from := range a.from {
			used[from] = true
			if v := plainValue(args[from]); v != "" && out[a.name] == "" {
				out[a.name] = cli.CutMiddle(v, maxAttribute)
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(args)) {
		v := plainValue(args[k])
		if used[k] || v == "" || len(v)+len(k) > maxOtherArgument || len(out) >= maxAttributes {
			continue
		}
		out[k] = v
	}
	return out
}

// plainValue gives a value as people write it; "" for what is no plain value.
func plainValue(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any: // a command in words
		var words []string
		for _, w := range v {
			s, ok := w.(string)
			if !ok {
				return ""
			}
			words = append(words, s)
		}
		return strings.Join(words, " ")
	}
	return ""
}
