package modeltest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
)

// maxBody bounds what is read of a request; real conversations stay far below.
const maxBody = 64 << 20

// Server is a scripted model on a loopback port. Close it.
type Server struct {
	// URL is the address without a path, such as http://127.0.0.1:40123.
	URL string

	http    *httptest.Server
	scripts []Script
	closed  chan struct{}

	mu         sync.Mutex
	changed    chan struct{}
	requests   []Request
	violations []string
	owner      map[int]string
	hits       map[[2]int]int
	ids        int
}

func newServer(scripts []Script, routes func(*Server, *http.ServeMux)) *Server {
	s := &Server{
		scripts: slices.Clone(scripts),
		closed:  make(chan struct{}),
		changed: make(chan struct{}),
		owner:   map[int]string{},
		hits:    map[[2]int]int{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", s.ping)
	routes(s, mux)
	s.http = httptest.NewUnstartedServer(mux)
	if host, _, err := net.SplitHostPort(s.http.Listener.Addr().String()); err != nil || !net.ParseIP(host).IsLoopback() {
		panic("modeltest: the listener is not on loopback: " + s.http.Listener.Addr().String())
	}
	s.http.Start()
	s.URL = s.http.URL
	return s
}

// Close ends hanging answers and stops the server. It may be called once.
func (s *Server) Close() {
	close(s.closed)
	s.http.CloseClientConnections()
	s.http.Close()
}

// Requests are the model requests so far, refused ones included, in the order they came.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Violations are what clients did against the protocol or beyond the scripts. A test that ends with any of them is not green.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// Wait blocks until the requests so far satisfy the condition, or ctx ends.
func (s *Server) Wait(ctx context.Context, cond func([]Request) bool) error {
	for {
		s.mu.Lock()
		changed, reqs := s.changed, slices.Clone(s.requests)
		s.mu.Unlock()
		if cond(reqs) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for a model request (%d so far): %w", len(reqs), ctx.Err())
		}
	}
}

// ping answers the reachability probes of the CLIs; everything else nobody asked for is a violation.
func (s *Server) ping(w http.ResponseWriter, r *http.Request) {
	if (r.Method == http.MethodHead || r.Method == http.MethodGet) && r.URL.Path == "/" {
		w.WriteHeader(http.StatusOK)
		return
	}
	s.violate("unexpected request %s %s", r.Method, r.URL.Path)
	http.Error(w, "modeltest: no such endpoint: "+r.Method+" "+r.URL.Path, http.StatusNotFound)
}

func (s *Server) violate(format string, args ...any) string {
	msg := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, msg)
	return msg
}

func (s *Server) record(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	close(s.changed)
	s.changed = make(chan struct{})
}

// nextID mints ids that are unique within the server, with the prefix the protocol uses.
func (s *Server) nextID(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	return fmt.Sprintf("%s%06d", prefix, s.ids)
}

func readJSON(r *http.Request, into any) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return body, fmt.Errorf("decode body: %w", err)
	}
	return body, nil
}
