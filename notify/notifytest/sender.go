package notifytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"pulseloop/notify"
	"pulseloop/pulse"
)

// Shown is a message as a platform shows it.
type Shown struct {
	ID      string
	Address pulse.Address
	Slot    string
	Text    string
	Edits   int
	Silent  bool
	Buttons [][]pulse.Button
	At      time.Time
}

// Sender is a platform in memory. Unless told otherwise it delivers.
type Sender struct {
	t        T
	platform pulse.Platform

	mu     sync.Mutex
	shown  []*Shown
	busy   map[pulse.Address]bool
	script map[pulse.Address][]Behaviour
	ready  func(a pulse.Address, edit bool) time.Time
	calls  int
}

// Behaviour is how one Send goes. Show says whether the message gets through
// all the same; Hold, if not nil, keeps the call until it is closed or the
// call's context ends (then the delivery is ambiguous). Of is how many parts
// the message has, if several.
type Behaviour struct {
	Of       int
	Delivery notify.Delivery
	Show     bool
	Hold     <-chan struct{}
	Panic    bool
}

var _ notify.Sender = (*Sender)(nil)

// NewSender returns a platform that reports misuse to t.
func NewSender(t T, p pulse.Platform) *Sender {
	return &Sender{t: t, platform: p, busy: map[pulse.Address]bool{}, script: map[pulse.Address][]Behaviour{}}
}

// Next queues how the next sends to the address go.
func (s *Sender) Next(a pulse.Address, b ...Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script[a] = append(s.script[a], b...)
}

// ReadyWhen sets the platform's limits.
func (s *Sender) ReadyWhen(f func(a pulse.Address, edit bool) time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = f
}

// Shown lists what people see, in the order it appeared.
func (s *Sender) Shown() []Shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Shown
	for _, m := range s.shown {
		out = append(out, *m)
	}
	return out
}

// Calls is how often Send was called.
func (s *Sender) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Delete takes a message away, as a person can.
func (s *Sender) Delete(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.shown {
		if m.ID == id {
			s.shown = append(s.shown[:i], s.shown[i+1:]...)
			return
		}
	}
	s.t.Errorf("no message %s to delete", id)
}

// Platform implements notify.Sender.
func (s *Sender) Platform() pulse.Platform { return s.platform }

// Ready implements notify.Sender.
func (s *Sender) Ready(a pulse.Address, edit bool) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready == nil {
		return time.Time{}
	}
	return s.ready(a, edit)
}

// Send implements notify.Sender.
func (s *Sender) Send(ctx context.Context, n pulse.Notice, sent []string) notify.Delivery {
	b := s.begin(n)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, n.Address)
	}()
	if b.Panic {
		panic("a sender that panics")
	}
	if b.Hold != nil {
		select {
		case <-b.Hold:
		case <-ctx.Done():
			return notify.Delivery{Outcome: notify.Ambiguous, Err: ctx.Err()}
		}
	}
	if b.Delivery.Outcome != "" && b.Delivery.Outcome != notify.Sent {
		if b.Show {
			s.show(n)
		}
		return b.Delivery
	}
	if b.Of > 1 {
		return s.part(n, sent, b.Of)
	}
	id, ok := s.show(n)
	if !ok {
		return notify.Delivery{Outcome: notify.LostEdit, Err: fmt.Errorf("message %s is gone", n.ExternalID)}
	}
	return notify.Delivery{Outcome: notify.Sent, ExternalID: id, Moved: b.Delivery.Moved}
}

// part shows the next part of a message of several.
func (s *Sender) part(n pulse.Notice, sent []string, of int) notify.Delivery {
	n.Message = pulse.Text(fmt.Sprintf("%s %d/%d", n.Message.Plain(), len(sent)+1, of))
	id, _ := s.show(n)
	d := notify.Delivery{Outcome: notify.Pending, Parts: append(slices.Clone(sent), id), RetryAfter: time.Second}
	d.ExternalID = d.Parts[0]
	if len(d.Parts) == of {
		d.Outcome = notify.Sent
	}
	return d
}

func (s *Sender) begin(n pulse.Notice) Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if n.Address.Platform != s.platform {
		s.t.Errorf("a message for %s was given to %s", n.Address.Platform, s.platform)
	}
	if s.busy[n.Address] {
		s.t.Errorf("two messages for %v at once", n.Address)
	}
	s.busy[n.Address] = true
	if q := s.script[n.Address]; len(q) > 0 {
		s.script[n.Address] = q[1:]
		return q[0]
	}
	return Behaviour{}
}

// show makes the message appear, or changes it; not ok if the one to change is gone.
func (s *Sender) show(n pulse.Notice) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.Editable && n.ExternalID != "" {
		for _, m := range s.shown {
			if m.ID == n.ExternalID {
				m.Text, m.Buttons = n.Message.Plain(), n.Message.Buttons
				m.Edits++
				return m.ID, true
			}
		}
		return "", false
	}
	id := fmt.Sprintf("m%d", s.calls)
	s.shown = append(s.shown, &Shown{ID: id, Address: n.Address, Slot: n.Slot, Text: n.Message.Plain(), Silent: n.Silent,
		Buttons: n.Message.Buttons, At: time.Now()})
	return id, true
}
