package api

import "pulseloop/pulse"

// item is one thing to send: an event or a delta.
type item struct {
	event *pulse.Event
	delta *pulse.StreamDelta
}

// interleave puts a session's events and deltas, each in order among
// themselves, into one order. Events and deltas are numbered apart, so that
// the order comes from what they say: a turn's deltas lie between its start
// and its completion, and otherwise time decides.
func interleave(events []pulse.Event, deltas []pulse.StreamDelta) []item {
	out := make([]item, 0, len(events)+len(deltas))
	ahead := map[pulse.TurnID]bool{} // turns whose start is still to come
	for _, e := range events {
		if e.Type == pulse.EventTurnStarted {
			ahead[e.TurnID] = true
		}
	}
	next := 0
	take := func(n int) {
		for ; next < n; next++ {
			out = append(out, item{delta: &deltas[next]})
		}
	}
	for i := range events {
		e := &events[i]
		if e.Type == pulse.EventTurnCompleted {
			take(lastOf(deltas, e.TurnID))
		}
		for next < len(deltas) && deltas[next].At.Before(e.At) && !ahead[deltas[next].TurnID] {
			take(next + 1)
		}
		out = append(out, item{event: e})
		if e.Type == pulse.EventTurnStarted {
			delete(ahead, e.TurnID)
		}
	}
	take(len(deltas))
	return out
}

// lastOf is the number of deltas up to and including the turn's last one.
func lastOf(deltas []pulse.StreamDelta, id pulse.TurnID) int {
	for i := len(deltas); i > 0; i-- {
		if deltas[i-1].TurnID == id {
			return i
		}
	}
	return 0
}

// ofCompleted cuts late deltas before the first that belongs to a turn
// whose completion is not among the events: its start may not be read yet.
func ofCompleted(events []pulse.Event, late []pulse.StreamDelta) []pulse.StreamDelta {
	done := map[pulse.TurnID]bool{}
	for _, e := range events {
		if e.Type == pulse.EventTurnCompleted {
			done[e.TurnID] = true
		}
	}
	for i, d := range late {
		if !done[d.TurnID] {
			return late[:i]
		}
	}
	return late
}
