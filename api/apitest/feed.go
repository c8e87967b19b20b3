package apitest

import (
	"context"

	"pulseloop/pulse"
)

// Events implements api.Feed.
func (w *World) Events(ctx context.Context, id pulse.SessionID, after int64, limit int) ([]pulse.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if err := w.usable(ctx, limit); err != nil {
		return nil, err
	}
	var out []pulse.Event
	for _, e := range w.events[id] {
		if e.Seq > after && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, nil
}

// Deltas implements api.Feed.
func (w *World) Deltas(ctx context.Context, id pulse.SessionID, after pulse.DeltaPosition, limit int) ([]pulse.StreamDelta, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if err := w.usable(ctx, limit); err != nil {
		return nil, err
	}
	var out []pulse.StreamDelta
	for _, d := range w.deltas[id] {
		at := pulse.StreamDelta{TaskID: after.TaskID, Attempt: after.Attempt, N: after.N}
		if before(at, pulse.DeltaPosition{TaskID: d.TaskID, Attempt: d.Attempt, N: d.N}) && len(out) < limit {
			out = append(out, d)
		}
	}
	return out, nil
}

// Moving implements api.Feed.
func (w *World) Moving(ctx context.Context) (map[pulse.SessionID]int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if err := w.usable(ctx, 1); err != nil {
		return nil, err
	}
	out := map[pulse.SessionID]int64{}
	if w.hidden {
		return out, nil
	}
	for _, s := range w.sessions {
		if !w.still[s.ID] {
			out[s.ID] = s.EventSeq
		}
	}
	return out, nil
}

// Wakes implements api.Feed.
func (w *World) Wakes(topic pulse.Topic) (<-chan struct{}, func()) {
	if topic != pulse.TopicEvents {
		panic("apitest: the API waits for events alone")
	}
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters[c] = true
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiters, c)
	}
}

func (w *World) usable(ctx context.Context, limit int) error {
	if limit <= 0 {
		panic("apitest: a read without limit")
	}
	if w.broken != nil {
		return w.broken
	}
	return ctx.Err()
}
