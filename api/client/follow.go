package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

// Follow is what a stream of events starts from.
type Follow struct {
	All      bool                      // every session
	Sessions map[pulse.SessionID]int64 // session to the seq after which to begin; full ids
}

// Follow hands every frame to fn, in order within each session, until the
// context ends (nil) or fn returns an error (that error). Lost connections
// are replaced and go on after the last event seen, so that fn sees every
// event exactly once; stream deltas may be missed. A server that cannot be
// reached at first, or that refuses, is an error.
func (c *Client) Follow(ctx context.Context, f Follow, fn func(wire.Frame) error) error {
	st := &stream{client: c, all: f.All, cursors: maps.Clone(f.Sessions), fn: fn}
	for attempt := 0; ; {
		heard, err := st.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var stop *stopped
		if errors.As(err, &stop) {
			return stop.err
		}
		if !st.connected {
			return err
		}
		if heard {
			attempt = 0
		}
		if c.cfg.Reconnected != nil {
			c.cfg.Reconnected(err)
		}
		if !wait(ctx, attempt, c.cfg.Backoff) {
			return nil
		}
		attempt++
	}
}

// silence is how long a server may stay without a word or a ping, which it
// sends every half minute, before its machine is taken to be gone.
const silence = 2 * time.Minute

// stopped ends following for good.
type stopped struct{ err error }

func (s *stopped) Error() string { return s.err.Error() }

// stream is one Follow, over all its connections.
type stream struct {
	client    *Client
	all       bool
	cursors   map[pulse.SessionID]int64
	connected bool
	fn        func(wire.Frame) error
}

// once follows over one connection; heard tells whether it brought anything.
func (s *stream) once(ctx context.Context) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := time.AfterFunc(silence, cancel)
	defer watch.Stop()
	conn, err := s.dial(ctx, func() { watch.Reset(silence) })
	if err != nil {
		return false, err
	}
	defer conn.CloseNow()
	// The server bounds its frames by what it stores; deltas and events with
	// whole tool outputs are far below this.
	conn.SetReadLimit(64 << 20)
	sub, err := json.Marshal(wire.Subscribe{Type: "subscribe", All: s.all, Sessions: s.cursors})
	if err != nil {
		return false, &stopped{fmt.Errorf("encode subscription: %w", err)}
	}
	if err := conn.Write(ctx, websocket.MessageText, sub); err != nil {
		return false, err
	}
	for {
		_, b, err := conn.Read(ctx)
		if err != nil {
			return heard, s.closed(err)
		}
		heard = true
		watch.Reset(silence)
		if err := s.take(b); err != nil {
			return heard, err
		}
	}
}

// take hands one frame on, unless it was seen before the connection broke.
func (s *stream) take(b []byte) error {
	var f wire.Frame
	if err := json.Unmarshal(b, &f); err != nil {
		return &stopped{s.client.stranger(err)}
	}
	if s.cursors == nil {
		s.cursors = map[pulse.SessionID]int64{}
	}
	if f.Type == wire.FrameSubscribed {
		s.connected = true
		return s.acknowledged(f)
	}
	if !f.Delta() {
		if f.Seq <= s.cursors[f.SessionID] {
			return nil
		}
		s.cursors[f.SessionID] = f.Seq
	}
	if err := s.fn(f); err != nil {
		return &stopped{err}
	}
	return nil
}

// acknowledged takes over where the server begins, for the sessions that
// this client had no cursor of.
func (s *stream) acknowledged(f wire.Frame) error {
	b, err := json.Marshal(f.Data["cursors"])
	if err != nil {
		return &stopped{s.client.stranger(err)}
	}
	var at map[pulse.SessionID]int64
	if err := json.Unmarshal(b, &at); err != nil {
		return &stopped{s.client.stranger(err)}
	}
	for id, seq := range at {
		if _, ok := s.cursors[id]; !ok {
			s.cursors[id] = seq
		}
	}
	return nil
}

func (s *stream) dial(ctx context.Context, alive func()) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, s.client.base.String()+"/ws",
		&websocket.DialOptions{HTTPClient: s.client.cfg.HTTP, HTTPHeader: s.client.header(),
			OnPingReceived: func(context.Context, []byte) bool { alive(); return true }})
	if err == nil {
		return conn, nil
	}
	if res == nil || res.StatusCode == 0 {
		return nil, s.client.unreached(ctx, err)
	}
	defer res.Body.Close()
	b, readErr := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if readErr != nil {
		return nil, s.client.unreached(ctx, readErr)
	}
	err = s.client.refused(res.StatusCode, b)
	if res.StatusCode < http.StatusInternalServerError && res.StatusCode != http.StatusTooManyRequests {
		return nil, &stopped{err} // it will say the same again
	}
	return nil, err
}

// closed tells refusals of what we sent, which would come again, from
// everything else that ends a connection.
func (s *stream) closed(err error) error {
	var e websocket.CloseError
	if errors.As(err, &e) && e.Code == websocket.StatusInvalidFramePayloadData {
		return &stopped{pulse.Invalid(e.Reason, "")}
	}
	return err
}

// wait lets time pass before the next attempt, the longer the more failed.
func wait(ctx context.Context, attempt int, most time.Duration) bool {
	d := min(most, 100*time.Millisecond<<min(attempt, 10))
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
