package db_test

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"pulseloop/db/dbtest"
	"pulseloop/pulse"
)

// deaf stands before PostgreSQL. While deaf is set, it passes on what is asked, waits until the server has answered, and cuts
// the connection instead of passing the answer on.
type deaf struct {
	on  atomic.Bool
	cut atomic.Int32
}

func (d *deaf) before(t *testing.T, server string) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go d.serve(client, server)
		}
	}()
	return l.Addr().String()
}

func (d *deaf) serve(client net.Conn, server string) {
	defer client.Close()
	up, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, client)
		_ = up.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if err != nil {
			return
		}
		if d.on.CompareAndSwap(true, false) {
			d.cut.Add(1)
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestALostAnswerIsAskedFor loses the answer to a claim, which was committed. The claim must be found, not left to its lease.
func TestALostAnswerIsAskedFor(t *testing.T) {
	place := dbtest.NewPostgres(t)
	u, err := url.Parse(place.Config.URL)
	check(t, err)
	d := &deaf{}
	u.Host = d.before(t, u.Host)
	far := place
	far.Config.URL = u.String()
	s := far.Open(t, nil)
	check(t, second(s.Migrate(t.Context())))
	now := time.Now()
	task := pulse.TaskID(pulse.NewUUID(now))
	check(t, s.Apply(t.Context(), pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{{ID: task, Kind: pulse.TaskIterate, Route: "r", MaxAttempts: 3}}}))
	// Once, so that the statement is prepared and the connection is there.
	if _, err := s.Claim(t.Context(), "d", []string{"other"}, time.Minute); !errors.Is(err, pulse.ErrNone) {
		t.Fatal(err)
	}
	d.on.Store(true)
	c, err := s.Claim(t.Context(), "d", []string{"r"}, time.Minute)
	if err != nil || c.Task.ID != task || c.Task.Attempt != 1 || d.cut.Load() != 1 {
		t.Fatalf("claim %+v: %v; %d connections were cut", c, err, d.cut.Load())
	}
	check(t, s.Running(t.Context(), pulse.Fence{TaskID: task, Token: c.Token}))
}
