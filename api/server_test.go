package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"pulseloop/api"
	"pulseloop/api/apitest"
)

func TestConnectionsAreLimited(t *testing.T) {
	r := serve(t, func(c *api.Config) { c.Limits.Conns = 3 })
	var held []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
		// An answer shows that the connection was accepted.
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 200 {
			t.Fatalf("%v %v", res, err)
		}
	}
	over, err := net.Dial("tcp", r.addr)
	if err == nil {
		defer over.Close()
		fmt.Fprintf(over, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_ = over.SetReadDeadline(time.Now().Add(patience))
		if n, err := over.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a fourth connection was served: %d %v", n, err)
		}
	}
	held[0].Close()
	eventually(t, "a place is free again", func() bool {
		res, err := http.Get(r.url + "/healthz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == 200
	})
}

func TestSlowSendersAreCut(t *testing.T) {
	r := serve(t, func(c *api.Config) { c.Limits.Header, c.Limits.Read = 50*time.Millisecond, 100*time.Millisecond })
	for _, begin := range []string{
		"GET /heal", "POST /api/pulse/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"goal\":",
	} {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, begin)
		_ = c.SetReadDeadline(time.Now().Add(patience))
		b, err := io.ReadAll(c)
		if err != nil {
			t.Errorf("%.20q: not cut: %v", begin, err)
		}
		if strings.Contains(string(b), "201") {
			t.Errorf("%.20q: %s", begin, b)
		}
		c.Close()
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	r := serve(t, nil)
	req, err := http.NewRequest("GET", r.url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return // cut while it was still sending
	}
	res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", res.StatusCode)
	}
}

func TestRunListensAndEnds(t *testing.T) {
	w := apitest.New()
	addr := make(chan net.Addr, 1)
	cfg := api.Config{Doer: w, Reader: w, Feed: w, Listen: "127.0.0.1:0", Listening: func(a net.Addr) { addr <- a }}
	s, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	at := (<-addr).String()
	res, err := http.Get("http://" + at + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	cfg.Listen = at
	second, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(ctx); err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("two on one address: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
