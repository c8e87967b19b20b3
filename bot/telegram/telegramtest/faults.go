package telegramtest

import (
	"fmt"
	"net/http"
	"time"
)

// Fault says how calls misbehave. Which: Method ("" any), ChatID (0 any), after letting Skip pass, Times times (0: once,
// negative: until removed). How: Hang, else Cut, else HTML, else Status. When: before the call had its effect, or, with
// Applied, after (what a caller cannot tell from a failure).
type Fault struct {
	Method string
	ChatID int64
	Skip   int
	Times  int

	Applied bool

	Hang        bool          // no answer until the caller gives up or the fault is removed
	HangFor     time.Duration // or until this time is over; 0: no longer bound
	Cut         bool          // the connection is closed without an answer
	HTML        bool          // 502 with a page, as a proxy in front of the API answers
	Status      int           // an error answer; default 500
	RetryAfter  int           // seconds; Status becomes 429
	Description string
}

// Injected is a fault at work.
type Injected struct {
	Fault
	s       *Server
	left    int
	hits    int
	release chan struct{}
	removed bool
}

// Inject makes the calls that match misbehave. The oldest fault that matches wins.
func (s *Server) Inject(f Fault) *Injected {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := f.Times
	if left == 0 {
		left = 1
	}
	in := &Injected{Fault: f, s: s, left: left, release: make(chan struct{})}
	s.faults = append(s.faults, in)
	return in
}

// Hits is how many calls the fault has met.
func (in *Injected) Hits() int {
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	return in.hits
}

// Remove ends the fault; calls that hang in it are cut.
func (in *Injected) Remove() {
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	if !in.removed {
		in.removed = true
		close(in.release)
		in.s.wake()
	}
}

// met is what one call needs of a fault, copied while the lock is held.
type met struct {
	Fault
	release <-chan struct{}
}

// takeFault must be called with the lock held.
func (s *Server) takeFault(call Call) *met {
	method, chat := call.Method, call.ChatID
	for _, in := range s.faults {
		if in.removed || in.left == 0 || (in.Method != "" && in.Method != method) || (in.ChatID != 0 && in.ChatID != chat) {
			continue
		}
		if in.Skip > 0 {
			in.Skip--
			continue
		}
		if in.left > 0 {
			in.left--
		}
		in.hits++
		s.wake()
		return &met{in.Fault, in.release}
	}
	if s.weather != nil {
		if f := s.weather(call); f != nil {
			return &met{*f, nil}
		}
	}
	return nil
}

// Weather makes f decide about each call that no injected fault meets: nil lets it pass. f runs with the server's lock held and
// must not call it. Weather(nil) ends it.
func (s *Server) Weather(f func(call Call) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.weather = f
}

func (s *Server) misbehave(w http.ResponseWriter, r *http.Request, in *met, finish func(status int, text string)) {
	switch {
	case in.Hang:
		var over <-chan time.Time
		if in.HangFor > 0 {
			over = time.After(in.HangFor)
		}
		select {
		case <-r.Context().Done():
		case <-in.release:
		case <-over:
		}
		finish(0, "hung")
		panic(http.ErrAbortHandler)
	case in.Cut:
		finish(0, "connection cut")
		panic(http.ErrAbortHandler)
	case in.HTML:
		finish(http.StatusBadGateway, "Bad Gateway")
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = fmt.Fprint(w, "<html><head><title>502 Bad Gateway</title></head></html>")
	default:
		a := in.answer()
		finish(a.status, a.description)
		writeAnswer(w, a)
	}
}

func (in *met) answer() answer {
	if in.RetryAfter > 0 {
		return tooMany(in.RetryAfter)
	}
	status := in.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	text := in.Description
	if text == "" {
		text = http.StatusText(status)
	}
	return refuse(status, "%s", text)
}

// Limits are the platform's published ones, enforced with 429 and retry_after; zero fields are not enforced.
type Limits struct {
	PerChatPerSecond  int
	PerGroupPerMinute int
	PerSecond         int
}

// RealLimits is what the platform's FAQ says of bots.
var RealLimits = Limits{PerChatPerSecond: 1, PerGroupPerMinute: 20, PerSecond: 30}

// limiter keeps the times of what was let through, a minute back at most. Refused calls do not count.
type limiter struct {
	limits Limits
	sent   map[int64][]time.Time // by chat; 0 is all
}

// admit returns 0, or the seconds to wait.
func (l *limiter) admit(chat int64, group bool, now time.Time) int {
	wait := l.over(0, time.Second, l.limits.PerSecond, now)
	wait = max(wait, l.over(chat, time.Second, l.limits.PerChatPerSecond, now))
	if group {
		wait = max(wait, l.over(chat, time.Minute, l.limits.PerGroupPerMinute, now))
	}
	if wait > 0 {
		return int((wait + time.Second - 1) / time.Second)
	}
	for _, k := range []int64{0, chat} {
		keep := l.sent[k]
		for len(keep) > 0 && now.Sub(keep[0]) >= time.Minute {
			keep = keep[1:]
		}
		l.sent[k] = append(keep, now)
	}
	return 0
}

func (l *limiter) over(key int64, window time.Duration, limit int, now time.Time) time.Duration {
	if limit <= 0 {
		return 0
	}
	times := l.sent[key]
	if len(times) < limit {
		return 0
	}
	oldest := times[len(times)-limit]
	if age := now.Sub(oldest); age < window {
		return window - age
	}
	return 0
}
