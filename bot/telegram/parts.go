package telegram

import (
	"strconv"
	"sync"
	"time"

	"pulseloop/notify"
	"pulseloop/pulse"
)

// part is how far a notice has been sent.
type part struct {
	to    pulse.Address
	next  int
	first string // id of the first message
	moved bool   // the group became a supergroup
	noted bool   // the text says that it is not in its topic
}

func (p *part) sent(id int) {
	if p.next == 0 {
		p.first = strconv.Itoa(id)
	}
	p.next++
}

func (p *part) delivery(n pulse.Notice, o notify.Outcome, wait time.Duration, err error) notify.Delivery {
	d := notify.Delivery{Outcome: o, ExternalID: p.first, RetryAfter: wait, Err: err}
	if p.to != n.Address {
		d.Moved = p.to
	}
	return d
}

type partKey struct {
	id  pulse.NoticeID
	rev int
}

// parts remembers notices that were sent in part, or are on their way to another place than they say.
type parts struct {
	mu  sync.Mutex
	all map[partKey]part
}

// maxParts bounds the memory of notices that were given up half way.
const maxParts = 500

func newParts() *parts { return &parts{all: map[partKey]part{}} }

func (p *parts) get(n pulse.Notice) part {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.all[partKey{n.ID, n.Revision}]; ok && n.ID != "" {
		return was
	}
	return part{to: n.Address}
}

func (p *parts) keep(n pulse.Notice, v part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.next == 0 && v.to == n.Address || n.ID == "" {
		return
	}
	if len(p.all) >= maxParts {
		clear(p.all)
	}
	p.all[partKey{n.ID, n.Revision}] = v
}

func (p *parts) drop(n pulse.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, partKey{n.ID, n.Revision})
}
