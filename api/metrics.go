package api

import (
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// tally counts what the server itself does.
type tally struct {
	mu       sync.Mutex
	requests map[requestKey]int64
	deltas   int64
	slowEnds int64
}

type requestKey struct {
	route  string
	method string
	status int
}

func newTally() *tally { return &tally{requests: map[requestKey]int64{}} }

func (t *tally) request(route, method string, status int) {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodHead:
	default:
		method = "other" // a caller may invent any number of methods
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests[requestKey{route, method, status}]++
}

// lost counts what a slow reader missed, and whether that was its end.
func (t *tally) lost(deltas int, over bool) {
	if deltas == 0 && !over {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deltas += int64(deltas)
	if over {
		t.slowEnds++
	}
}

// metrics answers in the text form that Prometheus reads.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	counts := s.ownCounts()
	if s.cfg.Counts != nil {
		more, err := s.cfg.Counts(r.Context())
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		counts = append(counts, more...)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	// A failed write means that the caller is gone: nobody to tell.
	_, _ = w.Write([]byte(exposition(counts)))
}

func (s *Server) ownCounts() []Count {
	s.tally.mu.Lock()
	defer s.tally.mu.Unlock()
	out := []Count{
		{Name: "pulse_build_info", Help: "The running version.", Labels: map[string]string{"version": s.cfg.Version}, Value: 1},
		{Name: "pulse_ws_clients", Help: "Open WebSockets.", Value: float64(s.hub.count())},
		{Name: "pulse_ws_dropped_deltas_total", Help: "Stream deltas that slow readers missed.", Value: float64(s.tally.deltas)},
		{Name: "pulse_ws_slow_closed_total", Help: "WebSockets closed because they fell behind the events.", Value: float64(s.tally.slowEnds)},
	}
	for k, n := range s.tally.requests {
		out = append(out, Count{Name: "pulse_http_requests_total", Help: "Requests by route, method and status.", Value: float64(n),
			Labels: map[string]string{"route": k.route, "method": k.method, "code": strconv.Itoa(k.status)}})
	}
	return out
}

// exposition writes counts grouped by name. A name that ends in _total is a
// counter, every other one a gauge.
func exposition(counts []Count) string {
	lines := make(map[string][]string, len(counts))
	help := map[string]string{}
	for _, c := range counts {
		lines[c.Name] = append(lines[c.Name], c.Name+labels(c.Labels)+" "+strconv.FormatFloat(c.Value, 'g', -1, 64))
		help[c.Name] = c.Help
	}
	names := make([]string, 0, len(lines))
	for n := range lines {
		names = append(names, n)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, n := range names {
		kind := "gauge"
		if strings.HasSuffix(n, "_total") {
			kind = "counter"
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", n, strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(help[n]), n, kind)
		sort.Strings(lines[n])
		b.WriteString(strings.Join(lines[n], "\n") + "\n")
	}
	return b.String()
}

func labels(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	parts := make([]string, 0, len(m))
	for k, v := range m {
		parts = append(parts, k+`="`+strings.NewReplacer("\\", `\\`, `"`, `\"`, "\n", `\n`).Replace(v)+`"`)
	}
	sort.Strings(parts)
	return "{" + strings.Join(parts, ",") + "}"
}
