package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/coder/websocket"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

// ended is why we close a socket.
type ended struct {
	code   websocket.StatusCode
	reason string
}

func (e *ended) Error() string { return e.reason }

var (
	errGoingAway = &ended{websocket.StatusGoingAway, "the server stops; reconnect with your cursors"}
	errTooSlow   = &ended{websocket.StatusTryAgainLater, "too slow for the events; reconnect with your cursors"}
	errBroken    = &ended{websocket.StatusInternalError, "something went wrong here; reconnect with your cursors"}
	errSilent    = &ended{websocket.StatusPolicyViolation, "no answer to a ping"}
)

// socket serves one WebSocket: this goroutine reads, another one writes.
func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		s.refuse(w, r, &httpError{status: http.StatusUpgradeRequired, header: http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}},
			said: pulse.Invalid("this path speaks WebSocket", "connect to it with a WebSocket client")})
		return
	}
	// The request's own context ends in ways that a taken-over connection
	// does not follow; the hub and the two goroutines end this one.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	c, err := s.hub.attach(ctx, cancel)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer s.hub.detach(c)
	s.sockets.Add(1)
	defer s.sockets.Done()
	// Host and Origin were checked before, for this path as for every other.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
	}
	conn.SetReadLimit(s.cfg.Limits.Frame)
	if rec, ok := w.(*recorder); ok {
		// The bare connection: a goodbye under way cannot be cut short otherwise.
		s.hub.connected(c, func() { _ = rec.taken.Close() })
	}
	k := &sock{hub: s.hub, client: c, conn: conn, limits: s.cfg.Limits, subs: make(chan wire.Subscribe), pong: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				s.cfg.Log.Error("socket panicked", "panic", s.cfg.Redact(fmt.Sprint(p)), "stack", s.cfg.Redact(string(debug.Stack())))
				cancel(errBroken)
				k.close(errBroken)
			}
		}()
		cancel(k.write(ctx))
	}()
	cancel(k.read(ctx))
	<-done
}

// sock is one WebSocket in service.
type sock struct {
	hub    *hub
	client *client
	conn   *websocket.Conn
	limits Limits
	subs   chan wire.Subscribe
	pong   chan error
}

// read takes subscriptions until the peer goes or sends something else. It
// ends with the connection and not with the context, because ending a read
// cuts the connection before a reason can be given.
func (k *sock) read(ctx context.Context) error {
	for {
		kind, b, err := k.conn.Read(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		sub, err := parseSubscribe(kind, b)
		if err != nil {
			return err
		}
		select {
		case k.subs <- sub:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// parseSubscribe reads the one message that clients send.
func parseSubscribe(kind websocket.MessageType, b []byte) (wire.Subscribe, error) {
	var sub wire.Subscribe
	if kind != websocket.MessageText {
		return sub, &ended{websocket.StatusUnsupportedData, "send text frames with JSON"}
	}
	if err := decode(b, &sub); err != nil {
		return sub, bad(err)
	}
	if sub.Type != "subscribe" {
		return sub, bad(pulse.Invalid("unknown type "+quote(sub.Type), "send a message of type subscribe"))
	}
	if !sub.All && len(sub.Sessions) == 0 {
		return sub, bad(pulse.Invalid("nothing to subscribe to", "send all or sessions"))
	}
	for id, seq := range sub.Sessions {
		if !pulse.ValidUUID(string(id)) {
			return sub, bad(pulse.Invalid("session "+quote(string(id))+" is not a full id", "use the whole UUID"))
		}
		if seq < 0 {
			return sub, bad(pulse.Invalid("a cursor is negative", "use 0 for the beginning"))
		}
	}
	return sub, nil
}

// bad closes for what a client sent. A close reason has 123 bytes at most.
func bad(err error) error {
	var e *pulse.Error
	reason := err.Error()
	if errors.As(err, &e) {
		reason = e.Message + " (" + e.Hint + ")"
	}
	return &ended{websocket.StatusInvalidFramePayloadData, cut(reason, 123)}
}

// cut shortens a text to so many bytes, between characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// write is the socket's loop: subscriptions, frames, pings, until the end.
func (k *sock) write(ctx context.Context) error {
	grace := time.NewTimer(k.limits.Grace)
	defer grace.Stop()
	ping := time.NewTicker(k.limits.PingEvery)
	defer ping.Stop()
	err := error(nil)
	for err == nil {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case sub := <-k.subs:
			grace.Stop()
			err = k.apply(ctx, sub)
		case <-grace.C:
			// Nothing asked for: everything from the moment of connecting on.
			err = k.apply(ctx, wire.Subscribe{All: true})
		case <-k.client.queue.ready:
			err = k.drain(ctx)
		case <-ping.C:
			go k.ping(ctx)
		case err = <-k.pong:
		}
	}
	k.close(err)
	return err
}

// ping finds peers that are gone without a word. It runs beside the writing,
// because a pong may take long.
func (k *sock) ping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.limits.PongWithin)
	defer cancel()
	if k.conn.Ping(ctx) == nil {
		return
	}
	select {
	case k.pong <- errSilent:
	default:
	}
}

func (k *sock) close(err error) {
	var e *ended
	if errors.As(err, &e) && e != errSilent {
		// The peer may be gone already; the close frame is a courtesy.
		_ = k.conn.Close(e.code, e.reason)
		return
	}
	_ = k.conn.CloseNow()
}

// drain writes what is queued.
func (k *sock) drain(ctx context.Context) error {
	list, over := k.client.queue.take()
	if over {
		return errTooSlow
	}
	return k.send(ctx, list)
}

func (k *sock) send(ctx context.Context, list []waiting) error {
	for _, w := range list {
		if err := k.put(ctx, w.bytes); err != nil {
			return err
		}
	}
	return nil
}

// put writes one frame within its time. The end of the context does not
// interrupt it: half a frame would leave no way to say goodbye.
func (k *sock) put(ctx context.Context, b []byte) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.limits.SocketWrite)
	defer cancel()
	return k.conn.Write(ctx, websocket.MessageText, b)
}

// apply takes up a subscription: what was queued goes out first, then the
// acknowledgement, then what was missed, session by session.
func (k *sock) apply(ctx context.Context, sub wire.Subscribe) error {
	s := k.hub.subscribe(k.client, sub)
	if s.over {
		return errTooSlow
	}
	if err := k.send(ctx, s.before); err != nil {
		return err
	}
	cursors := make(map[string]any, len(s.cursors))
	for id, seq := range s.cursors {
		cursors[string(id)] = seq
	}
	ack := wire.Frame{Type: wire.FrameSubscribed, At: k.hub.clock().UTC(), Data: map[string]any{"all": sub.All, "cursors": cursors}}
	b, err := json.Marshal(ack)
	if err != nil {
		return err
	}
	if err := k.put(ctx, b); err != nil {
		return err
	}
	for _, id := range s.behind {
		if err := k.replay(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// replay reads one session from the client's cursor until the hub can take
// over. Between pages, the frames of other sessions go out.
func (k *sock) replay(ctx context.Context, id pulse.SessionID) error {
	seq := k.hub.position(k.client, id)
	for {
		page, err := k.hub.feed.Events(ctx, id, seq, pageSize)
		if err != nil {
			k.hub.log.Error("read missed events", "session", id, "err", k.hub.redact(err.Error()))
			return &ended{websocket.StatusInternalError, "events cannot be read at present; reconnect with your cursors"}
		}
		for _, e := range page {
			w, err := k.hub.encode(wire.FromEvent(e))
			if err != nil {
				return err
			}
			if err := k.put(ctx, w.bytes); err != nil {
				return err
			}
			seq = e.Seq
		}
		if len(page) < pageSize && k.hub.join(k.client, id, seq, len(page) == 0) {
			return nil
		}
		if err := k.drain(ctx); err != nil {
			return err
		}
	}
}
