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
	far.Config.ClaimConns = 1
	s := far.Open(t, nil)
	check(t, second(s.Migrate(t.Context())))
	for i, n := range []int{1, 3} {
		// Once, so that the connection is there and the statement prepared.
		if _, err := s.ClaimMany(t.Context(), "d", []string{"other"}, n, time.Minute); !errors.Is(err, pulse.ErrNone) {
			t.Fatal(err)
		}
		want := map[pulse.TaskID]bool{}
		for range n { // without a wake-up, whose answer could be lost instead
			task := pulse.TaskID(pulse.NewUUID(time.Now()))
			want[task] = true
			place.Exec(t, "INSERT INTO inbox_tasks (id, kind, route, status, content, media_context, spec, max_attempts, created_at) VALUES ($1, 'iterate', 'r', 'queued', '', '{}', '{}', 3, now())", string(task))
		}
		d.on.Store(true)
		claims, err := s.ClaimMany(t.Context(), "d", []string{"r"}, n, time.Minute)
		if err != nil || len(claims) != n || int(d.cut.Load()) != i+1 {
			t.Fatalf("claims %+v: %v; %d connections were cut", claims, err, d.cut.Load())
		}
		for _, c := range claims {
			if !want[c.Task.ID] || c.Task.Attempt != 1 {
				t.Errorf("claim %+v", c)
			}
			check(t, s.Running(t.Context(), pulse.Fence{TaskID: c.Task.ID, Token: c.Token}))
		}
	}
}
