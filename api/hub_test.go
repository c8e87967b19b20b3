package api

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pulseloop/api/apitest"
	"pulseloop/api/wire"
	"pulseloop/pulse"
)

func delta(s string) waiting { return waiting{bytes: []byte(s), delta: true} }
func frame(s string) waiting { return waiting{bytes: []byte(s)} }

func TestQueueShedsDeltasBeforeEvents(t *testing.T) {
	q := newQueue(4, 1000)
	put := func(w waiting, lost int, over bool) {
		t.Helper()
		if l, o := q.put(w); l != lost || o != over {
			t.Fatalf("put %s: lost %d, over %v", w.bytes, l, o)
		}
	}
	put(delta("d1"), 0, false)
	put(delta("d2"), 0, false)
	put(delta("d3"), 1, false) // half of the room is for events
	put(frame("e1"), 0, false)
	put(frame("e2"), 0, false)
	put(frame("e3"), 2, false) // the deltas make room
	put(frame("e4"), 0, false)
	list, over := q.take()
	var got []string
	for _, w := range list {
		got = append(got, string(w.bytes))
	}
	if over || strings.Join(got, " ") != "e1 e2 e3 e4" {
		t.Fatalf("took %q, over %v", got, over)
	}
	for range 4 {
		put(frame("e"), 0, false)
	}
	put(frame("e"), 0, true)
	put(frame("e"), 0, false) // told once
	if list, over := q.take(); !over || len(list) != 0 {
		t.Fatalf("after an overflow: %v %v", list, over)
	}
	q = newQueue(4, 10)
	put(frame(strings.Repeat("x", 100)), 0, false) // larger than all the room, but alone
	put(frame("y"), 0, true)
}

// A feed that changes under the reading: the turn ends, with its last
// delta, after the deltas were read.
type racingFeed struct {
	*apitest.World
	between func()
}

func (f *racingFeed) Events(ctx context.Context, id pulse.SessionID, after int64, limit int) ([]pulse.Event, error) {
	if do := f.between; do != nil {
		f.between = nil
		do()
	}
	return f.World.Events(ctx, id, after, limit)
}

// hubFor makes a hub that has been read up once, with one client of all.
func hubFor(t *testing.T, f Feed, w *apitest.World) (*hub, *client) {
	t.Helper()
	h := newHub(Config{Feed: f, Clock: w.Clock}.withDefaults(), newTally())
	attached := make(chan *client, 1)
	go func() {
		c, err := h.attach(t.Context(), func(error) {})
		if err != nil {
			t.Error(err)
		}
		attached <- c
	}()
	<-h.kick
	if _, err := h.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := <-attached
	h.subscribe(c, wire.Subscribe{All: true})
	return h, c
}

func types(t *testing.T, c *client) []string {
	t.Helper()
	list, _ := c.queue.take()
	var out []string
	for _, w := range list {
		var f wire.Frame
		if err := json.Unmarshal(w.bytes, &f); err != nil {
			t.Fatal(err)
		}
		out = append(out, f.Type)
	}
	return out
}

func TestLastDeltaComesBeforeTheTurnsEnd(t *testing.T) {
	w := apitest.New()
	f := &racingFeed{World: w}
	s := w.AddSession(pulse.Session{})
	h, c := hubFor(t, f, w)
	d := func(n int64, turn pulse.TurnID) pulse.StreamDelta {
		return pulse.StreamDelta{TaskID: "task", Attempt: 1, N: n, TurnID: turn, Type: pulse.EventMessageDelta}
	}
	w.Emit(s.ID, pulse.Event{Type: pulse.EventTurnStarted, TurnID: "t"})
	w.Stream(s.ID, d(1, "t"))
	f.between = func() {
		w.Stream(s.ID, d(2, "t"), d(3, "u"))
		w.Emit(s.ID, pulse.Event{Type: pulse.EventTurnCompleted, TurnID: "t"})
	}
	if _, err := h.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := types(t, c); !slices.Equal(got, []string{"turn:started", "turn:message_delta", "turn:message_delta", "turn:completed"}) {
		t.Fatalf("frames %q", got)
	}
	// The next turn's delta waits for its start.
	w.Emit(s.ID, pulse.Event{Type: pulse.EventTurnStarted, TurnID: "u"})
	if _, err := h.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := types(t, c); !slices.Equal(got, []string{"turn:started", "turn:message_delta"}) {
		t.Fatalf("frames %q", got)
	}
}

func TestJoinWaitsUntilAllIsRead(t *testing.T) {
	w := apitest.New()
	s := w.AddSession(pulse.Session{})
	h, c := hubFor(t, w, w)
	for range 5 {
		w.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged})
	}
	if got := h.subscribe(c, wire.Subscribe{Sessions: map[pulse.SessionID]int64{s.ID: 2}}); !slices.Equal(got.behind, []pulse.SessionID{s.ID}) {
		t.Fatalf("behind %v", got.behind)
	}
	if _, err := h.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := types(t, c); len(got) != 0 {
		t.Fatalf("sent %q to one who reads by itself", got)
	}
	if h.join(c, s.ID, 4, false) {
		t.Error("joined at 4, though 5 was sent while it was reading")
	}
	if !h.join(c, s.ID, 5, false) {
		t.Error("not joined at the end")
	}
	w.Emit(s.ID, pulse.Event{Type: pulse.EventSessionCompleted})
	if _, err := h.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := types(t, c); !slices.Equal(got, []string{"session:completed"}) {
		t.Errorf("frames %q", got)
	}
}

// What was purged cannot be read any more; the connection goes on from what
// there is, and does not look for it for ever.
func TestJoinAfterAPurge(t *testing.T) {
	w := apitest.New()
	s := w.AddSession(pulse.Session{EventSeq: 7}) // its events are gone
	h, c := hubFor(t, w, w)
	h.subscribe(c, wire.Subscribe{Sessions: map[pulse.SessionID]int64{s.ID: 2}})
	if h.join(c, s.ID, 2, false) || !h.join(c, s.ID, 2, true) {
		t.Error("exhausted is not what decides")
	}
	w.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged})
	if _, err := h.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := types(t, c); len(got) != 1 {
		t.Errorf("frames %q", got)
	}
}

func TestBucketRefills(t *testing.T) {
	now := time.Unix(0, 0)
	b := bucket{clock: func() time.Time { return now }, rate: 2, size: 3}
	take := func(n int) (got int) {
		for range n {
			if b.take() {
				got++
			}
		}
		return got
	}
	if got := take(10); got != 3 {
		t.Errorf("at first %d", got)
	}
	now = now.Add(time.Second)
	if got := take(10); got != 2 {
		t.Errorf("after a second %d", got)
	}
	now = now.Add(-time.Hour) // a clock that is set back gives nothing
	if got := take(10); got != 0 {
		t.Errorf("after a step back %d", got)
	}
}
