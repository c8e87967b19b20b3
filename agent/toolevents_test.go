package agent_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pulseloop/agent"
)

// heard writes down the tool events in full.
type heard struct {
	agent.NoopObserver
	events []string
}

func (h *heard) OnToolStart(e agent.ToolEvent) { h.add("start", e) }
func (h *heard) OnToolEnd(e agent.ToolEvent)   { h.add("end", e) }
func (h *heard) add(what string, e agent.ToolEvent) {
	if e.Started != (what == "start") {
		what = "mixed up " + what
	}
	h.events = append(h.events, fmt.Sprintf("%s id=%s name=%s at=%d %v", what, e.ID, e.Name, e.Timestamp.Unix(), e.Attributes))
}

func listen(pieces ...string) []string {
	h := &heard{}
	w := agent.NewToolEventWriter(h, func() time.Time { return time.Unix(42, 0) })
	for _, p := range pieces {
		if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
			panic(fmt.Sprint(n, err))
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return h.events
}

const (
	startLine = `{"type":"tool_call","subtype":"started","name":"read","arguments":{"path":"foo.go"},"call_id":"c1"}`
	endLine   = `{"type":"tool_call","subtype":"ended","name":"read","duration_ms":123,"call_id":"c1"}`
)

var toolLines = []struct {
	name, in string
	want     []string
}{
	{"start and end", startLine + "\n" + endLine + "\n", []string{"start id=c1 name=read at=42 map[file_path:foo.go]", "end id=c1 name=read at=42 map[duration_ms:123]"}},
	{"completed is ended", strings.Replace(endLine, "ended", "completed", 1) + "\n", []string{"end id=c1 name=read at=42 map[duration_ms:123]"}},
	{"last line without an end", startLine, []string{"start id=c1 name=read at=42 map[file_path:foo.go]"}},
	{"carriage returns", startLine + "\r\n" + endLine + "\r\n", []string{"start id=c1 name=read at=42 map[file_path:foo.go]", "end id=c1 name=read at=42 map[duration_ms:123]"}},
	{"between other lines", "hello\n\n  " + startLine + "\n{\"type\":\"text\"}\n", []string{"start id=c1 name=read at=42 map[file_path:foo.go]"}},
	{"unknown subtype", strings.Replace(startLine, "started", "dreamt", 1) + "\n", nil},
	{"no subtype", `{"type":"tool_call","name":"x"}` + "\n", nil},
	{"another type that mentions it", `{"type":"text","text":"\"tool_call\"","subtype":"started"}` + "\n", nil},
	{"no object", `"tool_call"` + "\n" + `["tool_call"]` + "\n" + `{"type":"tool_call",` + "\n", nil},
	{"in the middle of a line", "log: " + startLine + "\n", nil},
	{"fields of other types", `{"type":"tool_call","subtype":"started","name":"x","arguments":"ls","call_id":7,"duration_ms":"1"}` + "\n", []string{"start id= name=x at=42 map[]"}},
	{"attributes", `{"type":"tool_call","subtype":"started","name":"x","call_id":"1","arguments":{"cmd":["git","status"],"pattern":"a.*b","filePath":"/x","limit":1000000,"all":true,"deep":{"a":1},"list":[1],"none":null}}` + "\n",
		[]string{"start id=1 name=x at=42 map[all:true command:git status file_path:/x limit:1000000 query:a.*b]"}},
	{"two names for one", `{"type":"tool_call","subtype":"started","name":"x","call_id":"1","arguments":{"file":"c","path":"b","file_path":"a"}}` + "\n",
		[]string{"start id=1 name=x at=42 map[file_path:a]"}},
	{"content is not shown", `{"type":"tool_call","subtype":"started","name":"x","call_id":"1","arguments":{"content":"` + strings.Repeat("c", 300) + `"}}` + "\n",
		[]string{"start id=1 name=x at=42 map[]"}},
}

func TestToolEventWriter(t *testing.T) {
	for _, tt := range toolLines {
		t.Run(tt.name, func(t *testing.T) {
			if got := listen(tt.in); !slices.Equal(got, tt.want) {
				t.Errorf("whole:\n%q, want\n%q", got, tt.want)
			}
			if got := listen(strings.Split(tt.in, "")...); !slices.Equal(got, tt.want) {
				t.Errorf("byte by byte:\n%q, want\n%q", got, tt.want)
			}
		})
	}
}

func TestToolEventWriterSkipsHugeLines(t *testing.T) {
	huge := strings.Replace(startLine, "foo.go", strings.Repeat("x", 2<<20), 1)
	want := []string{"start id=c1 name=read at=42 map[file_path:foo.go]"}
	if got := listen(huge, "\n", startLine, "\n"); !slices.Equal(got, want) {
		t.Errorf("got %.300q", got)
	}
	pieces := []string{}
	for range 64 {
		pieces = append(pieces, strings.Repeat("y", 64<<10))
	}
	if got := listen(append(pieces, "\n", startLine)...); !slices.Equal(got, want) {
		t.Errorf("after a huge line in pieces: %.300q", got)
	}
}

func TestAttributesAreBounded(t *testing.T) {
	args := map[string]any{"command": strings.Repeat("c", 1<<20)}
	for i := range 500 {
		args[fmt.Sprint("k", i)] = "v"
	}
	got := agent.Attributes(args)
	if len(got) > 32 || len(got["command"]) > 5<<10 || got["command"] == "" {
		t.Errorf("%d attributes, a command of %d bytes", len(got), len(got["command"]))
	}
}

func FuzzToolEventWriter(f *testing.F) {
	for _, tt := range toolLines {
		f.Add([]byte(tt.in), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		whole := listen(string(in))
		var pieces []string
		for rest := in; len(rest) > 0; {
			n := min(max(size&0xff, 1), len(rest))
			pieces, rest = append(pieces, string(rest[:n])), rest[n:]
		}
		if got := listen(pieces...); !slices.Equal(got, whole) {
			t.Errorf("in pieces %q, whole %q", got, whole)
		}
		if lines := bytes.Count(in, []byte("tool_call")); len(whole) > lines {
			t.Errorf("%d events out of %d", len(whole), lines)
		}
	})
}
