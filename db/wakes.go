package db

import (
	"sync"

	"pulseloop/pulse"
)

// hub tells waiters of this process that a commit may concern them. A wake-up
// is a hint: one that is not yet received swallows the next.
type hub struct {
	mu      sync.Mutex
	waiters map[pulse.Topic]map[chan struct{}]struct{}
}

func newHub() *hub { return &hub{waiters: map[pulse.Topic]map[chan struct{}]struct{}{}} }

func (h *hub) listen(topic pulse.Topic) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiters[topic] == nil {
		h.waiters[topic] = map[chan struct{}]struct{}{}
	}
	h.waiters[topic][ch] = struct{}{}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiters[topic], ch)
	}
}

func (h *hub) wake(topics topicSet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for topic := range topics {
		for ch := range h.waiters[topic] {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

type topicSet map[pulse.Topic]struct{}

func (s topicSet) addAll(from topicSet) {
	for t := range from {
		s[t] = struct{}{}
	}
}

// Wakes gives a channel that gets a value, never more than one at once, after
// a commit on the topic: of this process, and on PostgreSQL of any other. The
// stop function ends it; it does not close the channel.
func (s *Store) Wakes(topic pulse.Topic) (<-chan struct{}, func()) { return s.hub.listen(topic) }
