package telegram

import (
	"slices"
	"sync"

	"pulseloop/notify"
	"pulseloop/pulse"
)

// progress is how far one notice has been sent, and where to.
type progress struct {
	to    pulse.Address
	ids   []string // of its messages, in order
	of    int      // how many it takes
	moved bool     // the group became a supergroup
	noted bool     // the first message says that it is not in its topic
}

func begin(n pulse.Notice, sent []string) progress {
	return progress{to: n.Address, ids: slices.Clone(sent)}
}

// next is what to send: the part after those that are there.
func (p *progress) next(chunks []chunk) chunk {
	k := chunks[len(p.ids)]
	if p.noted && len(p.ids) == 0 {
		return withNote(k)
	}
	return k
}

func (p *progress) delivery(n pulse.Notice, f failure) notify.Delivery {
	d := notify.Delivery{Outcome: f.outcome, RetryAfter: f.wait, Err: f.err}
	if len(p.ids) > 0 {
		d.ExternalID = p.ids[0]
	}
	if p.of > 1 {
		d.Parts = p.ids
	}
	if p.to != n.Address {
		d.Moved = p.to
	}
	return d
}

// noticeSet is a set of bounded size; it is emptied when it is full.
type noticeSet struct {
	mu  sync.Mutex
	all map[pulse.NoticeID]bool
}

const maxNoticeSet = 500

func (s *noticeSet) has(id pulse.NoticeID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}

func (s *noticeSet) add(id pulse.NoticeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= maxNoticeSet {
		s.all = map[pulse.NoticeID]bool{}
	}
	s.all[id] = true
}

func (s *noticeSet) drop(id pulse.NoticeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}
