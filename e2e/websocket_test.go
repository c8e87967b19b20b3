package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

var update = flag.Bool("update", false, "write the golden files anew")

// demoGoal is what `pulse demo` asks for.
const demoGoal = "Add a health endpoint with a test, and document it."

var errSeen = errors.New("the last frame was seen")

// journal writes frames as text in which every run of the demonstration is the same: ids become names in the order in which
// they turn up, times go, what is measured becomes #, and deltas of one text are joined.
type journal struct {
	names map[string]string
	kinds map[string]int
	lines []string
	open  string // the delta that is being joined: its type and turn
	text  strings.Builder
}

var (
	uuids  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	hashes = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	short  = regexp.MustCompile(`-[0-9a-f]{8}\b`) // at the end of a branch
)

func (j *journal) name(kind, id string) string {
	if j.names[id] == "" {
		j.kinds[kind]++
		j.names[id] = fmt.Sprintf("%s%d", kind, j.kinds[kind])
	}
	return j.names[id]
}

// measured are the fields whose values differ with every run.
var measured = map[string]bool{"durationMs": true}

func (j *journal) stable(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			v[k] = j.stable(k, v[k])
		}
		return v
	case string:
		v = uuids.ReplaceAllStringFunc(v, func(id string) string { return j.name(strings.TrimSuffix(key, "Id"), id) })
		v = hashes.ReplaceAllStringFunc(v, func(id string) string { return j.name("commit", id) })
		return short.ReplaceAllString(v, "-XXXXXXXX")
	}
	if measured[key] {
		return "#"
	}
	return v
}

func (j *journal) add(t *testing.T, f wire.Frame) {
	t.Helper()
	turn := ""
	if f.TurnID != "" {
		turn = " " + j.name("turn", string(f.TurnID))
	}
	if f.Delta() {
		if now := f.Type + turn; now != j.open {
			j.close()
			j.open = now
		}
		j.text.WriteString(f.Data["text"].(string))
		return
	}
	j.close()
	b, err := json.Marshal(j.stable("data", f.Data))
	if err != nil {
		t.Fatal(err)
	}
	j.lines = append(j.lines, fmt.Sprintf("%d %s%s %s", f.Seq, f.Type, turn, b))
}

func (j *journal) close() {
	if j.open != "" {
		j.lines = append(j.lines, fmt.Sprintf("~ %s %q", j.open, j.text.String()))
		j.open = ""
		j.text.Reset()
	}
}

func newJournal(s pulse.SessionID) *journal {
	return &journal{names: map[string]string{string(s): "session"}, kinds: map[string]int{}}
}

// golden reads the list of frames.
func golden(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatalf("%v (go test ./e2e -run TestWebSocketFramesOfTheDemo -update writes it)", err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func writeGolden(t *testing.T, file string, lines []string) {
	t.Helper()
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", file), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Fatalf("%s differ in line %d:\n got %s\nwant %s\nall:\n%s", what, i+1, g, w, strings.Join(got, "\n"))
		}
	}
}

// eventsOf are the lines without the deltas, which are no events.
func eventsOf(lines []string) []string {
	var out []string
	for _, l := range lines {
		if !strings.HasPrefix(l, "~") {
			out = append(out, l)
		}
	}
	return out
}

func TestWebSocketFramesOfTheDemo(t *testing.T) {
	t.Parallel()
	// One session at a time: its frames are then in one order on any machine.
	p := e2etest.Start(t, e2etest.Options{Projects: map[string]*e2etest.Repository{"sample": e2etest.Repo(t)}})
	ctx := e2etest.Context(t)
	conn, _, err := websocket.Dial(ctx, p.URL()+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"subscribe","all":true}`)); err != nil {
		t.Fatal(err)
	}
	next := func() (f wire.Frame) {
		_, b, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &f); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		return f
	}
	if f := next(); f.Type != wire.FrameSubscribed {
		t.Fatalf("the first frame is %+v", f)
	}
	s, err := p.Client().Start(ctx, wire.Start{ProjectName: "sample", Goal: demoGoal})
	if err != nil {
		t.Fatal(err)
	}
	j := newJournal(s.ID)
	for last := ""; last != string(pulse.EventSessionCompleted); {
		f := next()
		if f.SessionID != s.ID || f.At.IsZero() {
			t.Errorf("frame %+v", f)
		}
		j.add(t, f)
		last = f.Type
	}
	j.close()
	if *update {
		writeGolden(t, "demo_frames.golden", j.lines)
	}
	want := golden(t, "demo_frames.golden")
	same(t, "the frames", j.lines, want)

	// Who comes later gets the same events, by the socket and by the list.
	late := newJournal(s.ID)
	err = p.Client().Follow(ctx, client.Follow{Sessions: map[pulse.SessionID]int64{s.ID: 0}}, func(f wire.Frame) error {
		if !f.Delta() {
			late.add(t, f)
		}
		if f.Type == string(pulse.EventSessionCompleted) {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		t.Fatal(err)
	}
	same(t, "the events of a late reader", late.lines, eventsOf(want))
}
