package chaos

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"pulseloop/e2e/e2etest"
)

// air is the network between programs and the database: a proxy in the test's own process, which may be made as bad as
// networks are.
type air struct {
	t        *testing.T
	server   *toxiproxy.ApiServer // the proxy wants one; nothing of it listens
	proxy    *toxiproxy.Proxy
	upstream string
	listen   string
}

func newAir(t *testing.T, upstream string) *air {
	a := &air{t: t, server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), upstream: upstream, listen: quietAddr(t)}
	a.clear()
	t.Cleanup(func() { a.proxy.Stop() })
	return a
}

var nextAir atomic.Int64

// quietAddr is an address whose port the system hands out to nobody, so that it is still free after a cut.
func quietAddr(t *testing.T) string {
	t.Helper()
	const first, many = 12000, 7000
	for range many {
		addr := fmt.Sprintf("127.0.0.1:%d", first+(int64(os.Getpid())*53+nextAir.Add(1))%many)
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// through is the same database by way of the air.
func (a *air) through(database string) string {
	a.t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		a.t.Fatal(err)
	}
	u.Host = a.listen
	return u.String()
}

// clear makes the network good again. What is connected is cut, as it is when a long partition ends: the peers have forgotten
// each other. (A proxy is replaced, not mended: to take a toxic out of connections that end at the same moment can hang.)
func (a *air) clear() {
	a.t.Helper()
	if a.proxy != nil {
		a.proxy.Stop()
	}
	e2etest.Await(a.t, "the network at its address", func() bool {
		a.proxy = toxiproxy.NewProxy(a.server, "database", a.listen, a.upstream)
		return a.proxy.Start() == nil
	})
}

// gone takes the network away altogether: connections are cut, new ones refused.
func (a *air) gone() { a.proxy.Stop() }

// worsen adds toxics, for what is connected too. Where that hangs, as it can when a connection ends at the same moment, the
// connections are cut, and the new ones meet the toxics from their beginning.
func (a *air) worsen(toxics ...string) {
	a.t.Helper()
	for _, p := range []*toxiproxy.Proxy{a.proxy, nil} {
		if p == nil {
			a.t.Log("the network was cut to make it worse")
			a.clear()
			p = a.proxy
		}
		done := make(chan error, 1)
		go func() { done <- poison(p, toxics) }()
		ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Second)
		select {
		case err := <-done:
			cancel()
			if err != nil {
				a.t.Fatalf("make the network bad: %v", err)
			}
			return
		case <-ctx.Done():
			cancel()
		}
	}
	a.t.Fatal("the network cannot be made bad")
}

func poison(p *toxiproxy.Proxy, toxics []string) error {
	for _, toxic := range toxics {
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return fmt.Errorf("%s: %w", toxic, err)
		}
	}
	return nil
}

// both is a toxic on the way there and on the way back.
func both(kind, attributes string) []string {
	return []string{toxic(kind, "upstream", attributes), toxic(kind, "downstream", attributes)}
}

func toxic(kind, direction, attributes string) string {
	return fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "attributes": {%s}}`, kind+" "+direction, kind, direction, attributes)
}

// silence swallows everything, and acknowledges it: only who waits no longer notices.
func silence() []string { return both("timeout", `"timeout": 0`) }
