package telegram

import (
	"testing"
	"time"
)

func TestLimiterKeepsAReserve(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := NewLimiter(Limits{})
	// Edits in a group may not use up the minute: what is reserved is there for a final at once.
	edits := 0
	for range 600 {
		if l.Take("-100", true, now) == 0 {
			edits++
		}
		now = now.Add(100 * time.Millisecond)
	}
	if edits < 15 || edits > 17 {
		t.Errorf("%d edits a minute", edits)
	}
	now = now.Add(time.Second)
	if wait := l.Take("-100", false, now); wait != 0 {
		t.Errorf("a final waits %v behind edits", wait)
	}
}

func TestLimiterGlobal(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := NewLimiter(Limits{})
	sent := 0
	for i := range 100 {
		if l.Take(string(rune('A'+i)), true, now) == 0 {
			sent++
		}
	}
	if sent != 27 {
		t.Errorf("%d edits in one instant", sent)
	}
	if wait := l.Take("final", false, now); wait != 0 {
		t.Errorf("a final waits %v", wait)
	}
	if at := l.Ready("other", true, now); at.Sub(now) < time.Second {
		t.Errorf("ready %v", at.Sub(now))
	}
	l.Block("blocked", false, now.Add(time.Hour))
	l.Block("blocked", false, now.Add(time.Minute)) // a shorter one does not end the longer
	if at := l.Ready("blocked", false, now); at.Sub(now) != time.Hour {
		t.Errorf("blocked until %v", at.Sub(now))
	}
	l.Block("edits", true, now.Add(time.Hour))
	if at := l.Ready("edits", true, now); at.Sub(now) != time.Hour {
		t.Errorf("edits are blocked until %v", at.Sub(now))
	}
	if at := l.Ready("edits", false, now); at.Sub(now) > 2*time.Second {
		t.Errorf("a final waits %v for what edits are punished for", at.Sub(now))
	}
}

// A call that is long on its way counts from its end: the next one may be quicker.
func TestLimiterCountsFromTheEnd(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	l := NewLimiter(Limits{})
	if l.Take("1", false, began) != 0 {
		t.Fatal("not at once")
	}
	ended := began.Add(700 * time.Millisecond)
	l.Done("1", ended)
	l.Done("2", ended) // nobody's
	if at := l.Ready("1", false, ended); at.Sub(ended) < time.Second {
		t.Errorf("ready %v after the end", at.Sub(ended))
	}
	if at := l.Ready("2", false, ended); at.After(ended) {
		t.Errorf("another chat waits %v", at.Sub(ended))
	}
}

func TestLimiterForgets(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := NewLimiter(Limits{})
	for i := range 5000 {
		l.Take(string(rune(i+1000)), false, now)
		now = now.Add(time.Second)
	}
	if len(l.chats) > 1100 {
		t.Errorf("%d chats remembered", len(l.chats))
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("hello world\n\nmore", 10)
	f.Add("👨‍👩‍👧‍👦👨‍👩‍👧‍👦🇩🇪🇩🇪", 7)
	f.Add("e\u0301\u0301\u0301 x", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 2 || limit > 5000 {
			return
		}
		text := []rune(s)
		at := 0
		for _, c := range split(text, limit) {
			if c.from != at || (c.to <= c.from && len(text) > 0) {
				t.Fatalf("cut %+v after %d", c, at)
			}
			if n := units(text[c.from:c.to]); n > limit {
				t.Fatalf("%d units in %d", n, limit)
			}
			at = c.to
		}
		if at != len(text) {
			t.Fatalf("%d of %d characters", at, len(text))
		}
	})
}
