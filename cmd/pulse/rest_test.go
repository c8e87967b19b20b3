package main

import (
	"testing"
	"testing/synctest"
	"time"

	"pulseloop/pulse"
)

// bell is a waker that is rung by hand.
type bell struct {
	ring    chan struct{}
	stopped bool
}

func (b *bell) Wakes(pulse.Topic) (<-chan struct{}, func()) {
	return b.ring, func() { b.stopped = true }
}

// heard counts the hints of the next d.
func heard(in <-chan struct{}, d time.Duration) int {
	end := time.After(d)
	for n := 0; ; {
		select {
		case <-in:
			n++
		case <-end:
			return n
		}
	}
}

// At rest nothing is looked for but at the poll; after something happened,
// every second for a while, which is how changes that are held back and
// updates that are put off come to their turn.
func TestAWakeUpGlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bell{ring: make(chan struct{}, 1)}
		in, stop := glowing{b}.Wakes(pulse.TopicEvents)
		if n := heard(in, time.Millisecond); n != 1 {
			t.Errorf("%d hints at the start, want 1", n)
		}
		if n := heard(in, time.Hour); n != 0 {
			t.Errorf("%d hints in an hour of rest", n)
		}
		b.ring <- struct{}{}
		if n := heard(in, time.Millisecond); n != 1 {
			t.Errorf("%d hints right after a wake-up, want 1", n)
		}
		if n := heard(in, 5*time.Second); n != 5 {
			t.Errorf("%d hints in the 5 s after, want 5", n)
		}
		b.ring <- struct{}{} // prolongs it
		if n := heard(in, time.Hour); n < 10 || n > 12 {
			t.Errorf("%d hints after another wake-up, want one a second for 10 s", n)
		}
		b.ring <- struct{}{} // and begins anew
		if n := heard(in, 3500*time.Millisecond); n != 4 {
			t.Errorf("%d hints in the 3.5 s after a rest, want 4", n)
		}
		stop()
		stop()
		if !b.stopped {
			t.Error("the wake-ups underneath go on")
		}
	})
}
