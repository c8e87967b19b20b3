package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxHeader bounds the header of a request; ours have a few hundred bytes.
const maxHeader = 16 << 10

// Server is the HTTP surface. Make it with New.
type Server struct {
	cfg     Config
	guard   *guard
	tally   *tally
	hub     *hub
	handler http.Handler
	sockets sync.WaitGroup
}

// Handler is the server's handler. Sockets are only served while Serve or
// Run runs, because that is what reads the feed.
func (s *Server) Handler() http.Handler { return s.handler }

// Run listens on the configured address and serves until the context ends.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	return s.Serve(ctx, ln)
}

// Serve serves on a listener until the context ends, then lets the requests
// under way finish for a while. It closes the listener, and it can be called
// once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: s.cfg.Limits.Header, ReadTimeout: s.cfg.Limits.Read,
		WriteTimeout: s.cfg.Limits.Write, IdleTimeout: s.cfg.Limits.Idle, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	if s.cfg.Listening != nil {
		s.cfg.Listening(ln.Addr())
	}
	hubCtx, stopHub := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHub()
	var wg sync.WaitGroup
	wg.Go(func() { s.hub.run(hubCtx) })
	failed := make(chan error, 1)
	wg.Go(func() { failed <- srv.Serve(newLimited(ln, s.cfg.Limits.Conns)) })
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
		err = s.shutdown(srv)
	}
	stopHub()
	wg.Wait()
	late := time.AfterFunc(s.cfg.Limits.Shutdown, s.hub.cut)
	s.sockets.Wait()
	late.Stop()
	return err
}

// shutdown lets requests finish; those that do not are cut.
func (s *Server) shutdown(srv *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Limits.Shutdown)
	defer cancel()
	err := srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Log.Warn("cut requests that did not end", "after", s.cfg.Limits.Shutdown)
		err = srv.Close()
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop HTTP server: %w", err)
	}
	return nil
}

// limited closes connections beyond a number at once: queueing them would
// let whoever opens many keep everybody else waiting unseen.
type limited struct {
	net.Listener
	most int64
	open atomic.Int64
}

func newLimited(ln net.Listener, most int) *limited { return &limited{Listener: ln, most: int64(most)} }

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &limitedConn{Conn: c, free: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		// No time for words: whoever holds so many gets a reset.
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
}

type limitedConn struct {
	net.Conn
	free func()
}

func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
