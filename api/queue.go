package api

import "sync"

// waiting is a frame on its way to one socket. The bytes are shared by all
// sockets and never written.
type waiting struct {
	bytes []byte
	delta bool
}

// queue is the bounded buffer before one socket. A reader that falls behind
// loses deltas; events are never dropped: when they do not fit either, the
// queue overflows and the connection has to end.
type queue struct {
	frames int
	bytes  int

	mu       sync.Mutex
	list     []waiting
	size     int
	overflow bool
	ready    chan struct{} // capacity 1: there is something to take
}

func newQueue(frames, bytes int) *queue {
	return &queue{frames: frames, bytes: bytes, ready: make(chan struct{}, 1)}
}

// put adds a frame and answers how many deltas were lost over it, and
// whether it made the queue overflow.
func (q *queue) put(w waiting) (lost int, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.overflow {
		return 0, false
	}
	if !q.fits(w) {
		if w.delta {
			return 1, false
		}
		lost = q.shed()
		// An empty queue takes one frame of any size: there is no other way for it.
		if !q.fits(w) && len(q.list) > 0 {
			q.overflow, q.list, q.size = true, nil, 0
			q.signal()
			return lost, true
		}
	}
	q.list = append(q.list, w)
	q.size += len(w.bytes)
	q.signal()
	return lost, false
}

// fits keeps half of the room for events alone.
func (q *queue) fits(w waiting) bool {
	frames, bytes := q.frames, q.bytes
	if w.delta {
		frames, bytes = frames/2, bytes/2
	}
	return len(q.list) < frames && q.size+len(w.bytes) <= bytes
}

// shed throws away the deltas that wait.
func (q *queue) shed() (lost int) {
	kept := q.list[:0]
	for _, w := range q.list {
		if w.delta {
			q.size -= len(w.bytes)
			lost++
			continue
		}
		kept = append(kept, w)
	}
	clear(q.list[len(kept):])
	q.list = kept
	return lost
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take empties the queue; over tells that it overflowed.
func (q *queue) take() (list []waiting, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list, q.list, q.size = q.list, nil, 0
	return list, q.overflow
}
