package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pulseloop/api"
	"pulseloop/api/wire"
	"pulseloop/pulse"
)

var update = flag.Bool("update", false, "write the golden files anew")

// peer is a WebSocket client of the tests.
type peer struct {
	t    *testing.T
	conn *websocket.Conn
	ctx  context.Context
	bulk bool // too many frames to hold each against the description
}

func (r *running) dial() *peer {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if t, ok := c.(*net.TCPConn); ok {
			err = t.SetReadBuffer(smallBuffer)
		}
		return c, err
	}}}
	conn, _, err := websocket.Dial(ctx, r.url+"/ws", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetReadLimit(16 << 20)
	r.t.Cleanup(func() { conn.CloseNow() })
	return &peer{t: r.t, conn: conn, ctx: ctx}
}

// subscribe sends a message and reads frames up to its acknowledgement.
func (p *peer) subscribe(message string) wire.Frame {
	p.t.Helper()
	p.send(message)
	for {
		if f := p.next(); f.Type == wire.FrameSubscribed {
			return f
		}
	}
}

func (p *peer) send(message string) {
	p.t.Helper()
	if err := p.conn.Write(p.ctx, websocket.MessageText, []byte(message)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) raw() []byte {
	p.t.Helper()
	_, b, err := p.conn.Read(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	if !p.bulk {
		frameConforms(p.t, b)
	}
	return b
}

func (p *peer) next() wire.Frame {
	p.t.Helper()
	var f wire.Frame
	if err := json.Unmarshal(p.raw(), &f); err != nil {
		p.t.Fatal(err)
	}
	return f
}

// closed reads on until the end, and gives its code and reason.
func (p *peer) closed() (websocket.StatusCode, string) {
	p.t.Helper()
	for {
		if _, _, err := p.conn.Read(p.ctx); err != nil {
			var e websocket.CloseError
			if !errors.As(err, &e) {
				p.t.Fatalf("the connection ended without a word: %v", err)
			}
			return e.Code, e.Reason
		}
	}
}

const sessionID = "019cb73d-3218-7da8-9f8e-4ba449e2ab27"

// The frames of one iteration, as the daemon stores them: what is written
// in one batch is read together, and the order comes out all the same.
func TestGoldenFrames(t *testing.T) {
	r := serve(t, func(c *api.Config) { c.Limits.FeedPoll = time.Hour })
	r.session(pulse.Session{ID: sessionID})
	p := r.dial()
	p.subscribe(`{"type":"subscribe","all":true}`)
	at := func(ms int) time.Time { return r.Now.Add(time.Duration(ms) * time.Millisecond) }
	ev := func(ms int, kind pulse.EventType, turn pulse.TurnID, data map[string]any) pulse.Event {
		return pulse.Event{Type: kind, TurnID: turn, At: at(ms), Data: data}
	}
	de := func(ms int, n int64, kind pulse.EventType, turn pulse.TurnID, text string) pulse.StreamDelta {
		return pulse.StreamDelta{TaskID: "task", Attempt: 1, N: n, TurnID: turn, Type: kind, Text: text, At: at(ms)}
	}
	// No wake before everything is there: one reading has to put it in order.
	r.Quietly(func() {
		r.Emit(sessionID,
			ev(0, pulse.EventSessionStarted, "", map[string]any{"goal": "Implement auth"}),
			ev(1, pulse.EventIterationStarted, "", map[string]any{"iteration": 1}),
			ev(2, pulse.EventTurnStarted, "turn-1", nil),
			ev(6, pulse.EventToolStarted, "turn-1", map[string]any{"name": "shell"}),
			ev(8, pulse.EventToolCompleted, "turn-1", map[string]any{"name": "shell", "status": "completed"}),
			ev(9, pulse.EventTurnCompleted, "turn-1", nil),
			ev(9, pulse.EventTurnStarted, "turn-2", nil),
			ev(12, pulse.EventTurnCompleted, "turn-2", nil),
			ev(13, pulse.EventIterationEnded, "", map[string]any{"signal": "COMPLETE"}),
			ev(14, pulse.EventSessionCompleted, "", map[string]any{"branch": "pulse/a<b>&"}))
		r.Stream(sessionID,
			de(2, 1, pulse.EventThoughtDelta, "turn-1", "Let me"),
			de(4, 2, pulse.EventThoughtDelta, "turn-1", " see"),
			de(5, 3, pulse.EventMessageDelta, "turn-1", "I look"),
			de(7, 4, pulse.EventMessageDelta, "turn-1", " around"),
			de(20, 5, pulse.EventMessageDelta, "turn-1", " (late clock)"),
			de(1, 6, pulse.EventMessageDelta, "turn-2", "(early clock)"))
	})
	r.Wake()
	var got bytes.Buffer
	for range 16 {
		got.Write(p.raw())
		got.WriteByte('\n')
	}
	const file = "testdata/frames.golden.jsonl"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got\n%swant\n%s", got.Bytes(), want)
	}
}

func TestSubscribing(t *testing.T) {
	r := serve(t, nil)
	a, b := r.session(pulse.Session{}), r.session(pulse.Session{})
	mark := func(s pulse.Session, name string) {
		r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged, Data: map[string]any{"reason": name}})
	}
	mark(a, "a1")
	mark(a, "a2")
	mark(b, "b1")

	one := r.dial()
	one.subscribe(fmt.Sprintf(`{"type":"subscribe","sessions":{%q:1}}`, a.ID))
	known := r.dial()
	known.subscribe(fmt.Sprintf(`{"type":"subscribe","all":true,"sessions":{%q:2}}`, a.ID))
	expect := func(p *peer, names ...string) {
		t.Helper()
		for _, n := range names {
			if f := p.next(); f.Data["reason"] != n {
				t.Fatalf("frame %+v, want %s", f, n)
			}
		}
	}
	expect(one, "a2")
	expect(known, "b1") // b is one it has not heard of

	mark(b, "b2")
	mark(a, "a3")
	c := r.session(pulse.Session{})
	mark(c, "c1")
	expect(one, "a3")
	seen := map[any]bool{}
	for range 3 {
		seen[known.next().Data["reason"]] = true
	}
	if len(seen) != 3 || !seen["b2"] || !seen["a3"] || !seen["c1"] {
		t.Errorf("seen %v", seen)
	}

	// A second message replaces the first, from its own cursors.
	one.subscribe(fmt.Sprintf(`{"type":"subscribe","sessions":{%q:0}}`, c.ID))
	expect(one, "c1")
	mark(a, "a4")
	mark(c, "c2")
	expect(one, "c2")

	for range 2 { // a4 and c2, in any order: then the server has read both
		known.next()
	}

	// All, said late, means from now on.
	one.subscribe(`{"type":"subscribe","all":true}`)
	mark(b, "b3")
	expect(one, "b3")

	// A session that no longer moves can be read up, and followed when it wakes.
	r.Rest(a.ID)
	late := r.dial()
	late.subscribe(fmt.Sprintf(`{"type":"subscribe","sessions":{%q:3}}`, a.ID))
	expect(late, "a4")
	mark(a, "a5")
	expect(late, "a5")
}

// Who asks for nothing gets everything, from the moment of connecting on.
func TestSayingNothing(t *testing.T) {
	r := serve(t, func(c *api.Config) { c.Limits.Grace = time.Millisecond })
	s := r.session(pulse.Session{})
	r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged})
	p := r.dial()
	if f := p.next(); f.Type != wire.FrameSubscribed || f.Data["all"] != true {
		t.Fatalf("first frame %+v", f)
	}
	r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged})
	if f := p.next(); f.Seq != 2 {
		t.Errorf("frame %+v", f)
	}
}

// An old session that wakes up is sent from where it woke, not from its
// beginning.
func TestOldSessionWakes(t *testing.T) {
	r := serve(t, nil)
	old := r.session(pulse.Session{})
	for range 3 {
		r.Emit(old.ID, pulse.Event{Type: pulse.EventSessionChanged, At: r.Now.Add(-time.Hour)})
	}
	r.Rest(old.ID)
	p := r.dial()
	p.subscribe(`{"type":"subscribe","all":true}`)
	r.Emit(old.ID, pulse.Event{Type: pulse.EventSessionChanged})
	if f := p.next(); f.Seq != 4 {
		t.Errorf("first frame %+v", f)
	}
}

func TestReplayOfManyWhileItGoesOn(t *testing.T) {
	r := serve(t, nil)
	s := r.session(pulse.Session{})
	const before, during = 2300, 300
	for range before {
		r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged})
	}
	p := r.dial()
	p.bulk = true
	p.send(fmt.Sprintf(`{"type":"subscribe","all":true,"sessions":{%q:100}}`, s.ID))
	go func() {
		for range during {
			r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged})
		}
	}()
	if f := p.next(); f.Type != wire.FrameSubscribed {
		t.Fatalf("first frame %+v", f)
	}
	for want := int64(101); want <= before+during; want++ {
		if f := p.next(); f.Seq != want {
			t.Fatalf("seq %d, want %d", f.Seq, want)
		}
	}
}

func TestBadFrames(t *testing.T) {
	r := serve(t, nil)
	for message, reason := range map[string]string{
		`hello`: "JSON", `{}`: "type", `{"type":"publish"}`: `"publish"`, `{"type":"subscribe"}`: "nothing", `{"type":"subscribe","sessions":{"x":1}}`: "full id",
		`{"type":"subscribe","all":true,"extra":1}`: `"extra"`, `{"type":"subscribe","all":"yes"}`: "all", `{"type":"subscribe","all":true,"all":true}`: "twice",
		fmt.Sprintf(`{"type":"subscribe","sessions":{%q:-1}}`, sessionID): "negative", fmt.Sprintf(`{"type":"subscribe","sessions":{%q:1e99}}`, sessionID): "sessions",
		`{"type":"subscribe","ignored":"` + strings.Repeat("ä", 500) + `"}`: `"ignored"`, `[` + strings.Repeat(`[`, 1000): "object",
	} {
		p := r.dial()
		p.send(message)
		if code, got := p.closed(); code != websocket.StatusInvalidFramePayloadData || !strings.Contains(got, reason) {
			t.Errorf("%.60s: closed with %d %q", message, code, got)
		}
	}
	p := r.dial()
	if err := p.conn.Write(p.ctx, websocket.MessageBinary, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if code, _ := p.closed(); code != websocket.StatusUnsupportedData {
		t.Errorf("binary: closed with %d", code)
	}
	p = r.dial()
	p.send(strings.Repeat(" ", 65<<10))
	if code, _ := p.closed(); code != websocket.StatusMessageTooBig {
		t.Errorf("large: closed with %d", code)
	}
}

// A reader that stops reading loses deltas and then the connection, and
// nobody else notices; with its cursor it misses no event.
func TestSlowReader(t *testing.T) {
	r := serve(t, func(c *api.Config) {
		c.Limits.SocketQueue, c.Limits.SocketBytes = 64, 1<<20
		c.Limits.SocketWrite = time.Hour // or a slow machine is cut for its time, before it is for its backlog
	})
	s := r.session(pulse.Session{ID: sessionID})
	slow, quick := r.dial(), r.dial()
	slow.subscribe(`{"type":"subscribe","all":true}`)
	slow.bulk, quick.bulk = true, true
	quick.subscribe(`{"type":"subscribe","all":true}`)

	big := strings.Repeat("x", 64<<10)
	n := int64(0)
	metric := func(name string) bool {
		return !strings.Contains(string(r.want(200, "GET", "/metrics", "", nil).body), name+" 0\n")
	}
	for !metric("pulse_ws_dropped_deltas_total") {
		n++
		r.Stream(s.ID, pulse.StreamDelta{TaskID: "task", Attempt: 1, N: n, Type: pulse.EventMessageDelta, Text: big})
		if f := quick.next(); f.Data["n"] != float64(n) {
			t.Fatalf("quick reader: delta %v, want %d", f.Data["n"], n)
		}
	}
	last := int64(0)
	for !metric("pulse_ws_slow_closed_total") {
		last++
		r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged, Data: map[string]any{"reason": big}})
		if f := quick.next(); f.Seq != last {
			t.Fatalf("quick reader: event %d, want %d", f.Seq, last)
		}
	}
	seen := int64(0)
	for {
		_, b, err := slow.conn.Read(slow.ctx)
		if err != nil {
			if code := websocket.CloseStatus(err); code != websocket.StatusTryAgainLater && code != -1 {
				t.Errorf("closed with %d: %v", code, err)
			}
			break
		}
		var f wire.Frame
		if err := json.Unmarshal(b, &f); err != nil {
			t.Fatal(err)
		}
		if !f.Delta() {
			if f.Seq != seen+1 {
				t.Fatalf("slow reader: event %d after %d", f.Seq, seen)
			}
			seen = f.Seq
		}
	}
	if seen >= last {
		t.Fatalf("the slow reader had all %d events", last)
	}
	again := r.dial()
	again.subscribe(fmt.Sprintf(`{"type":"subscribe","sessions":{%q:%d}}`, s.ID, seen))
	for seen < last {
		if seen++; again.next().Seq != seen {
			t.Fatal("a gap after reconnecting")
		}
	}
}

// A peer that is gone without a word is found by its silence.
func TestHalfOpen(t *testing.T) {
	r := serve(t, func(c *api.Config) {
		c.Limits.PingEvery, c.Limits.PongWithin = 500*time.Millisecond, 5*time.Second // what a busy machine needs for a pong
	})
	alive := r.dial()
	alive.subscribe(`{"type":"subscribe","all":true}`)
	ended := make(chan error, 1)
	go func() { // reading answers pings
		_, _, err := alive.conn.Read(alive.ctx)
		ended <- err
	}()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", r.addr)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", res, err)
	}
	clients := func(n string) func() bool {
		return func() bool {
			return strings.Contains(string(r.want(200, "GET", "/metrics", "", nil).body), "pulse_ws_clients "+n+"\n")
		}
	}
	eventually(t, "the dead peer is dropped, the live one kept", clients("1"))
	select {
	case err := <-ended:
		t.Errorf("the live peer was dropped: %v", err)
	default:
	}
	alive.conn.CloseNow()
	<-ended
	eventually(t, "nobody is left", clients("0"))
}

func TestNothingIsReadForNobody(t *testing.T) {
	r := serve(t, func(c *api.Config) { c.Limits.FeedPoll = time.Millisecond })
	s := r.session(pulse.Session{})
	p := r.dial()
	p.subscribe(`{"type":"subscribe","all":true}`)
	p.conn.Close(websocket.StatusNormalClosure, "")
	var before int
	eventually(t, "the reading ends", func() bool {
		before = r.Reads()
		r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionChanged})
		<-time.After(20 * time.Millisecond)
		return r.Reads() == before
	})
	// What happened meanwhile is history for whoever comes now.
	q := r.dial()
	if f := q.subscribe(`{"type":"subscribe","all":true}`); f.Data["cursors"].(map[string]any)[string(s.ID)] == nil {
		t.Errorf("cursors %v", f.Data)
	}
	r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionCompleted})
	if f := q.next(); f.Type != string(pulse.EventSessionCompleted) {
		t.Errorf("frame %+v", f)
	}
}

func TestStoppingSaysSo(t *testing.T) {
	r := serve(t, nil)
	p := r.dial()
	p.subscribe(`{"type":"subscribe","all":true}`)
	done := make(chan error, 1)
	go func() { done <- r.stop() }()
	if code, reason := p.closed(); code != websocket.StatusGoingAway || !strings.Contains(reason, "reconnect") {
		t.Errorf("closed with %d %q", code, reason)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := r.Waiters(); n != 0 {
		t.Errorf("%d still wait for events", n)
	}
}

// A peer that takes nothing any more cannot keep the server from stopping:
// without being cut it would for an hour, and stop gives up long before.
func TestStoppingDespiteAStuckPeer(t *testing.T) {
	r := serve(t, func(c *api.Config) {
		c.Limits.Shutdown, c.Limits.SocketWrite, c.Limits.SocketBytes = 100*time.Millisecond, time.Hour, 1<<20
	})
	s := r.session(pulse.Session{})
	p := r.dial()
	p.subscribe(`{"type":"subscribe","all":true}`)
	big := func(n int) pulse.Event {
		return pulse.Event{Type: pulse.EventSessionChanged, Data: map[string]any{"reason": strings.Repeat("x", n)}}
	}
	r.Emit(s.ID, big(8<<20))
	if _, _, err := p.conn.Reader(p.ctx); err != nil { // its beginning is here, and the rest finds no room
		t.Fatal(err)
	}
	r.Emit(s.ID, big(1<<20), big(1<<20))
	eventually(t, "the peer is stuck", func() bool {
		return strings.Contains(string(r.want(200, "GET", "/metrics", "", nil).body), "pulse_ws_slow_closed_total 1\n")
	})
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// A feed that fails for a while costs delay and no event.
func TestFeedRecovers(t *testing.T) {
	r := serve(t, nil)
	s := r.session(pulse.Session{})
	p := r.dial()
	p.subscribe(`{"type":"subscribe","all":true}`)
	r.Break(errors.New("gone"))
	r.Emit(s.ID, pulse.Event{Type: pulse.EventSessionStarted}, pulse.Event{Type: pulse.EventSessionCompleted})
	before := r.Reads()
	eventually(t, "it was tried", func() bool { return r.Reads() > before })
	r.Break(nil)
	for want := int64(1); want <= 2; want++ {
		if f := p.next(); f.Seq != want {
			t.Errorf("frame %+v, want %d", f, want)
		}
	}
}
