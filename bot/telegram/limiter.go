package telegram

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits are the platform's, as its documentation gives them; zero fields take the default.
type Limits struct {
	ChatGap        time.Duration // between two messages or edits in one chat; default 1 s
	GroupEditGap   time.Duration // between two edits in a group; default 3 s
	GroupPerMinute int           // default 20, of which edits may use all but Reserved
	PerSecond      int           // over all chats; default 30, of which edits may use all but Reserved
	Reserved       int           // kept for what is not an edit; default 3
}

// Limiter says when the platform will take the next message. Edits count as messages do, so they leave a reserve: a live progress
// message must never keep the answer waiting.
type Limiter struct {
	lim Limits

	mu    sync.Mutex
	chats map[string]*chatUse
	all   []time.Time // within the last second
}

type chatUse struct {
	last    time.Time
	minute  []time.Time
	blocked time.Time // by a retry_after
	edits   time.Time // by a retry_after of an edit: the platform limits them by themselves, and a final must not wait for them
}

// NewLimiter makes a Limiter.
func NewLimiter(lim Limits) *Limiter {
	if lim.ChatGap <= 0 {
		lim.ChatGap = time.Second
	}
	if lim.GroupEditGap <= 0 {
		lim.GroupEditGap = 3 * time.Second
	}
	if lim.GroupPerMinute <= 0 {
		lim.GroupPerMinute = 20
	}
	if lim.PerSecond <= 0 {
		lim.PerSecond = 30
	}
	if lim.Reserved <= 0 {
		lim.Reserved = 3
	}
	return &Limiter{lim: lim, chats: map[string]*chatUse{}}
}

// slack is added to each window: requests overtake each other on the way, and the platform counts arrivals.
const slack = 20 * time.Millisecond

// Ready answers when a message, or an edit, may next go to the chat.
func (l *Limiter) Ready(chat string, edit bool, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready(chat, edit, now)
}

// Take reserves a place now, or answers how long to wait.
func (l *Limiter) Take(chat string, edit bool, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.ready(chat, edit, now); at.After(now) {
		return at.Sub(now)
	}
	u := l.chats[chat]
	if u == nil {
		l.forget(now)
		u = &chatUse{}
		l.chats[chat] = u
	}
	u.last = now
	u.minute = append(since(u.minute, now.Add(-time.Minute-slack)), now)
	l.all = append(since(l.all, now.Add(-time.Second-slack)), now)
	return 0
}

// Done says that the call a place was taken for has ended. The platform counts arrivals: with the end as the time that counts,
// none that follows can arrive too early, however long this one was on its way.
func (l *Limiter) Done(chat string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.chats[chat]
	if u == nil || !now.After(u.last) {
		return
	}
	if n := len(u.minute); n > 0 {
		u.minute[n-1] = now
	}
	if i := slices.Index(l.all, u.last); i >= 0 {
		l.all = append(slices.Delete(l.all, i, i+1), now)
	}
	u.last = now
}

// Block keeps a chat silent, or only without edits, as a retry_after asks.
func (l *Limiter) Block(chat string, edit bool, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.chats[chat]
	if u == nil {
		u = &chatUse{}
		l.chats[chat] = u
	}
	of := &u.blocked
	if edit {
		of = &u.edits
	}
	*of = later(*of, until)
}

func (l *Limiter) ready(chat string, edit bool, now time.Time) time.Time {
	reserve := 0
	if edit {
		reserve = l.lim.Reserved
	}
	at := window(l.all, time.Second, max(l.lim.PerSecond-reserve, 1), now)
	u := l.chats[chat]
	if u == nil {
		return at
	}
	at = later(at, u.blocked)
	if edit {
		at = later(at, u.edits)
	}
	gap := l.lim.ChatGap
	if group(chat) {
		at = later(at, window(u.minute, time.Minute, max(l.lim.GroupPerMinute-reserve, 1), now))
		if edit {
			gap = l.lim.GroupEditGap
		}
	}
	if u.last.IsZero() {
		return at
	}
	return later(at, u.last.Add(gap+slack))
}

// window answers when one more fits into a sliding window of n.
func window(times []time.Time, size time.Duration, n int, now time.Time) time.Time {
	if len(times) < n {
		return now
	}
	return times[len(times)-n].Add(size + slack)
}

// forget drops chats of which nothing is remembered that matters.
func (l *Limiter) forget(now time.Time) {
	if len(l.chats) < 1000 {
		return
	}
	for k, u := range l.chats {
		if now.Sub(u.last) > time.Minute && now.After(u.blocked) && now.After(u.edits) {
			delete(l.chats, k)
		}
	}
}

func since(times []time.Time, from time.Time) []time.Time {
	for len(times) > 0 && !times[0].After(from) {
		times = times[1:]
	}
	return times
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// group tells chats of many from those of one person: their ids are negative.
func group(chat string) bool { return strings.HasPrefix(chat, "-") }
