package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"pulseloop/loop"
	"pulseloop/pulse"
)

// DefaultListen is the address without configuration.
const DefaultListen = "127.0.0.1:3002"

// Registrar registers the repository at a path, if the path is allowed.
type Registrar interface {
	// Register answers the project registered under the path, which it
	// makes if need be. A path outside the allowed roots, or without a
	// usable repository, is a pulse.Error of CodeUnprocessed; a name that
	// belongs to another path one of CodeConflict.
	Register(ctx context.Context, name, path string) (pulse.Project, error)
}

// Pairer makes one-time codes that turn whoever sends them into an operator.
type Pairer interface {
	NewCode(ctx context.Context, role pulse.OperatorRole) (code string, expires time.Time, err error)
}

// Count is one number for /metrics, as the rest of the program knows it.
type Count struct {
	Name   string // Prometheus name, such as pulse_sessions
	Help   string
	Labels map[string]string
	Value  float64
}

// Limits bound what one peer may use. Zero fields take the defaults.
type Limits struct {
	Body        int64         // bytes of a request body: 1 MiB
	Conns       int           // open connections: 16384
	Header      time.Duration // to read the request's header: 10 s
	Read        time.Duration // to read a whole request: 30 s
	Write       time.Duration // to answer it: 60 s
	Idle        time.Duration // between requests: 120 s
	Shutdown    time.Duration // for requests under way at the end: 5 s
	Frame       int64         // bytes of a WebSocket message from a client: 64 KiB
	SocketQueue int           // frames waiting for one socket: 1024
	SocketBytes int           // bytes waiting for one socket: 8 MiB
	SocketWrite time.Duration // to write one frame: 10 s
	PingEvery   time.Duration // 30 s
	PongWithin  time.Duration // 10 s
	Grace       time.Duration // wait for a first subscription before sending everything: 250 ms
	FeedPoll    time.Duration // fallback reading of the feed: 1 s
	FeedPause   time.Duration // least time between two readings: 25 ms
}

// Config is what a Server is made of. Doer, Reader and Feed are required.
type Config struct {
	Doer      loop.Doer
	Reader    Reader
	Feed      Feed
	Registrar Registrar // nil: projects cannot be registered over the API
	Pairer    Pairer    // nil: no pairing over the API

	// Token is the bearer token. Beyond loopback it is required, there and
	// for every request; on loopback for whatever decides or grants.
	Token     string
	TokenFile string // shown in hints: where the token is to be found
	Listen    string // host:port; DefaultListen if empty
	Listening func(net.Addr)

	// AllowedHosts are further names under which the server is reached,
	// such as that of a proxy before it.
	AllowedHosts []string

	Ready   func(context.Context) error            // nil: ready as soon as it answers
	Counts  func(context.Context) ([]Count, error) // more for /metrics
	Redact  func(string) string                    // takes secrets out of whatever is sent
	Hooks   map[string]http.Handler                // by path; they guard themselves
	Version string
	Log     *slog.Logger
	Clock   func() time.Time
	Limits  Limits
}

// New checks the configuration and makes a server that does not run yet.
func New(cfg Config) (*Server, error) {
	if cfg.Doer == nil || cfg.Reader == nil || cfg.Feed == nil {
		return nil, errors.New("make API server: Doer, Reader and Feed are required")
	}
	cfg = cfg.withDefaults()
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, &pulse.Error{Code: pulse.CodeInvalid, Message: "http.listen " + quote(cfg.Listen) + " is not host:port",
			Hint: "for example " + DefaultListen, Err: err}
	}
	loopback := isLoopback(host)
	if !loopback && cfg.Token == "" {
		return nil, pulse.Invalid("refusing to listen on "+cfg.Listen+" without a token: anybody who reaches it could run agents here",
			"set http.token (PULSE_HTTP_TOKEN), or listen on "+DefaultListen)
	}
	s := &Server{cfg: cfg, guard: newGuard(cfg, host, loopback), tally: newTally()}
	s.hub = newHub(cfg, s.tally)
	s.handler = s.mount()
	return s, nil
}

func (c Config) withDefaults() Config {
	orString(&c.Listen, DefaultListen)
	orString(&c.TokenFile, "<data_dir>/token")
	orString(&c.Version, "dev")
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Redact == nil {
		c.Redact = func(s string) string { return s }
	}
	c.Limits = c.Limits.withDefaults()
	return c
}

func (l Limits) withDefaults() Limits {
	or(&l.Body, 1<<20)
	or(&l.Conns, 16384)
	or(&l.Header, 10*time.Second)
	or(&l.Read, 30*time.Second)
	or(&l.Write, 60*time.Second)
	or(&l.Idle, 120*time.Second)
	or(&l.Shutdown, 5*time.Second)
	or(&l.Frame, 64<<10)
	or(&l.SocketQueue, 1024)
	or(&l.SocketBytes, 8<<20)
	or(&l.SocketWrite, 10*time.Second)
	or(&l.PingEvery, 30*time.Second)
	or(&l.PongWithin, 10*time.Second)
	or(&l.Grace, 250*time.Millisecond)
	or(&l.FeedPoll, time.Second)
	or(&l.FeedPause, 25*time.Millisecond)
	return l
}

func or[T ~int | ~int64](v *T, fallback T) {
	if *v <= 0 {
		*v = fallback
	}
}

func orString(v *string, fallback string) {
	if *v == "" {
		*v = fallback
	}
}
