package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"pulseloop/pulse"
)

// guard decides who may ask. It looks at the address the server listens on
// and at what the request carries, never at where it says it comes from:
// addresses and proxy headers can be arranged.
type guard struct {
	loopback bool
	token    [sha256.Size]byte
	hasToken bool
	where    string          // of the token, for hints
	names    map[string]bool // under which the server is reached
	proxies  map[string]bool // those of them that a proxy may have replaced
	wrong    bucket
}

func newGuard(cfg Config, host string, loopback bool) *guard {
	g := &guard{
		loopback: loopback, token: sha256.Sum256([]byte(cfg.Token)), hasToken: cfg.Token != "", where: cfg.TokenFile,
		names: map[string]bool{"localhost": true}, proxies: map[string]bool{},
		wrong: bucket{clock: cfg.Clock, rate: 20, size: 50},
	}
	if host != "" {
		g.names[strings.ToLower(host)] = true
	}
	for _, h := range cfg.AllowedHosts {
		g.names[strings.ToLower(h)] = true
		g.proxies[strings.ToLower(h)] = true
	}
	return g
}

// host refuses names that are not ours: a page whose name was rebound to
// this machine's address still sends its own name.
func (g *guard) host(r *http.Request) error {
	name := hostname(r.Host)
	if g.names[name] || g.names[strings.ToLower(r.Host)] {
		return nil
	}
	// An address cannot be rebound; which ones are ours is known on loopback only.
	if ip, err := netip.ParseAddr(name); err == nil && (!g.loopback || ip.IsLoopback()) {
		return nil
	}
	return &pulse.Error{Code: pulse.CodeForbidden, Message: "the host " + quote(r.Host) + " is not one of this server's names",
		Hint: "use localhost or 127.0.0.1, or add the name to http.allowed_hosts"}
}

// origin refuses requests that a page of another origin makes.
func (g *guard) origin(r *http.Request) error {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	refusal := &pulse.Error{Code: pulse.CodeForbidden, Message: "pages of the origin " + quote(origins[0]) + " may not call this server",
		Hint: "call it without a browser, or from the page it serves itself"}
	u, err := url.Parse(origins[0])
	if len(origins) != 1 || err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return refusal
	}
	// The host has passed host() before, so that equality is enough. A
	// configured name counts besides, for a proxy that rewrites Host.
	if strings.EqualFold(u.Host, r.Host) || g.proxies[strings.ToLower(u.Host)] {
		return nil
	}
	return refusal
}

// entry says who may use a route.
type entry int

const (
	openAlways   entry = iota // health of the process: everybody
	openLoopback              // start, read, pause, abort: the token beyond loopback
	tokenAlways               // whatever decides, answers or grants
)

// check looks at the bearer token as the route asks. A wrong one is refused
// everywhere, because whoever sends it believes to have rights.
func (g *guard) check(r *http.Request, e entry) error {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		if e == openAlways || (e == openLoopback && g.loopback) {
			return nil
		}
		return &pulse.Error{Code: pulse.CodeUnauthorized, Message: "this request needs the token",
			Hint: "send Authorization: Bearer TOKEN; the token is in " + g.where}
	}
	scheme, given, _ := strings.Cut(values[0], " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	same := subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1
	if same && g.hasToken && len(values) == 1 && strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	if !g.wrong.take() {
		return &pulse.Error{Code: pulse.CodeRateLimited, Message: "too many wrong tokens", Hint: "wait a second"}
	}
	return &pulse.Error{Code: pulse.CodeUnauthorized, Message: "the token is wrong",
		Hint: "send Authorization: Bearer TOKEN with the token in " + g.where}
}

// bucket limits how often wrong tokens get an answer. The right token never
// passes through it, so that nobody can lock its holder out.
type bucket struct {
	clock func() time.Time
	rate  float64 // a second
	size  float64

	mu   sync.Mutex
	have float64
	last time.Time
}

func (b *bucket) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock()
	if b.last.IsZero() {
		b.have = b.size
	} else {
		b.have = min(b.size, b.have+max(0, now.Sub(b.last).Seconds())*b.rate)
	}
	b.last = now
	if b.have < 1 {
		return false
	}
	b.have--
	return true
}

// hostname is a Host header without its port, in lower case.
func hostname(hostport string) string {
	h := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		h = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(h, "["), "]"))
}

// isLoopback reports whether only this machine reaches a listen address.
// An empty host listens on every address.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
