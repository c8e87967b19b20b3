package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

func frameError(t *testing.T, frame string) error {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal([]byte(frame), &v); err != nil {
		t.Fatalf("%s: %v", frame, err)
	}
	return doc.Components.Schemas["Frame"].Value.VisitJSON(v)
}

// The description knows what a whole session says: the events that the
// demonstration is held to are as it describes them.
func TestTheDemonstrationIsAsDescribed(t *testing.T) {
	b, err := os.ReadFile("../e2e/testdata/demo_frames.golden")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(b) {
		seq, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if seq == "~" {
			continue // the text of deltas, joined
		}
		head, data, _ := strings.Cut(rest, " {")
		kind, _, _ := strings.Cut(head, " ")
		data = strings.ReplaceAll("{"+data, `"durationMs":"#"`, `"durationMs":7`)
		if err := frameError(t, fmt.Sprintf(`{"type":%q,"seq":%s,"at":"2026-03-04T05:06:07Z","data":%s}`, kind, seq, data)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		n++
	}
	if n < 20 {
		t.Errorf("%d events", n)
	}
}

// Every type of frame has a description of its data, which refuses a
// field too many and one too few.
func TestTheDataOfEveryTypeIsDescribed(t *testing.T) {
	r := serve(t, nil)
	s := r.session(pulse.Session{ID: sessionID})
	kinds := []pulse.EventType{pulse.EventSessionStarted, pulse.EventSessionCompleted, pulse.EventSessionError, pulse.EventSessionChanged,
		pulse.EventIterationStarted, pulse.EventIterationEnded, pulse.EventGateOpened, pulse.EventGateResolved, pulse.EventTurnStarted,
		pulse.EventTurnCompleted, pulse.EventToolStarted, pulse.EventToolCompleted, pulse.EventTurnNote}
	for _, k := range kinds {
		r.Emit(s.ID, pulse.Event{Type: k})
	}
	var got wire.EventList
	r.want(200, "GET", "/api/pulse/"+sessionID+"/events", "", &got) // held to the description by want
	if len(got.Events) != len(kinds) {
		t.Fatalf("%d events of %d types", len(got.Events), len(kinds))
	}
	frames := append(got.Events, wire.FromDelta(pulse.StreamDelta{SessionID: s.ID, TaskID: "t", Attempt: 1, N: 1, Type: pulse.EventMessageDelta, Text: "x", At: r.Now}, 1),
		wire.FromDelta(pulse.StreamDelta{SessionID: s.ID, TaskID: "t", Attempt: 1, N: 1, Type: pulse.EventThoughtDelta, Text: "x", At: r.Now}, 1),
		wire.Frame{Type: wire.FrameSubscribed, At: r.Now, Data: map[string]any{"all": true, "cursors": map[string]any{sessionID: 3}}})
	var described []string
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range doc.Components.Schemas["Frame"].Value.Properties["type"].Value.Enum {
		described = append(described, v.(string))
	}
	var seen []string
	for _, f := range frames {
		seen = append(seen, f.Type)
		encoded := func(data map[string]any) string {
			g := f
			g.Data = data
			b, err := json.Marshal(g)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if err := frameError(t, encoded(f.Data)); err != nil {
			t.Errorf("%s: %v", f.Type, err)
		}
		more := map[string]any{"unheardOf": 1}
		for k, v := range f.Data {
			more[k] = v
		}
		for name, data := range map[string]map[string]any{"no data": {}, "a field too many": more} {
			if frameError(t, encoded(data)) == nil {
				t.Errorf("%s with %s is as described", f.Type, name)
			}
		}
	}
	slices.Sort(seen)
	slices.Sort(described)
	if !slices.Equal(seen, described) {
		t.Errorf("sent      %q\ndescribed %q", seen, described)
	}
}
