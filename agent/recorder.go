package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/internal/secret"
	"pulseloop/pulse"
)

// maxPending bounds what waits to be stored; a flood beyond it holds up the
// reading of the agent's output instead of filling the memory.
const maxPending = 512

// recorder turns the events of a run into turns, messages, tools, thoughts,
// events and deltas, and stores them in batches.
type recorder struct {
	d     *Daemon
	fence pulse.Fence
	task  pulse.Task
	turn  pulse.TurnID
	began time.Time

	mu      sync.Mutex
	batch   pulse.StreamBatch
	size    int
	full    chan struct{} // a hint that the batch should be stored at once
	room    *sync.Cond    // there is room in the batch again
	seq     int
	deltaN  int64
	tools   map[string]*openTool
	signAt  time.Time
	lost    bool           // the claim is gone: nothing is stored any more
	pieces  *secret.Stream // of the block that comes in pieces, nil between blocks
	storing sync.Mutex
}

// openTool is a tool call that has not ended yet.
type openTool struct{ tool pulse.TurnTool }

func newRecorder(d *Daemon, f pulse.Fence, t pulse.Task) *recorder {
	now := d.cfg.Clock().UTC()
	r := &recorder{d: d, fence: f, task: t, turn: pulse.TurnID(pulse.NewUUID(now)), began: now,
		full: make(chan struct{}, 1), tools: map[string]*openTool{}}
	r.room = sync.NewCond(&r.mu)
	return r
}

func (r *recorder) row(status pulse.TurnStatus, end time.Time) pulse.Turn {
	return pulse.Turn{ID: r.turn, SessionID: r.task.SessionID, ProjectID: r.task.MediaContext.ProjectID,
		IterationID: r.task.IterationID, ParentID: r.task.Spec.ParentTurn, Role: pulse.TurnAssistant,
		Status: status, CreatedAt: r.began, EndedAt: end}
}

// open stores the beginning of the turn.
func (r *recorder) open(ctx context.Context) {
	r.mu.Lock()
	r.batch.Turns = append(r.batch.Turns, r.row(pulse.TurnStreaming, time.Time{}))
	r.event(pulse.EventTurnStarted, map[string]any{"role": string(pulse.TurnAssistant), "agent": r.task.Spec.Agent,
		"iteration": r.task.MediaContext.IterationNumber, "iterationId": string(r.task.IterationID)})
	r.mu.Unlock()
	r.store(ctx)
}

// close stores the end of the turn. Tools that never ended are failed.
func (r *recorder) close(ctx context.Context, status pulse.TurnStatus) {
	r.mu.Lock()
	now := r.d.cfg.Clock().UTC()
	for _, t := range r.tools {
		t.tool.Status, t.tool.EndedAt = pulse.ToolFailed, now
		r.batch.Tools = append(r.batch.Tools, t.tool)
	}
	clear(r.tools)
	r.batch.Turns = append(r.batch.Turns, r.row(status, now))
	r.event(pulse.EventTurnCompleted, map[string]any{"role": string(pulse.TurnAssistant), "status": string(status),
		"iterationId": string(r.task.IterationID)})
	r.mu.Unlock()
	r.store(ctx)
}

// sign notes a sign of life.
func (r *recorder) sign() {
	r.mu.Lock()
	r.signAt = r.d.cfg.Clock().UTC()
	r.mu.Unlock()
}

// abandon lets go of whoever waits for room: the run is over, and what its
// agent still says is not stored.
func (r *recorder) abandon() {
	r.mu.Lock()
	r.lost = true
	r.mu.Unlock()
	r.room.Broadcast()
}

// take records one event of the agent.
func (r *recorder) take(e cli.Event) {
	r.mu.Lock()
	for r.size >= maxPending && !r.lost {
		r.hint()
		r.room.Wait()
	}
	if r.lost {
		r.mu.Unlock()
		return
	}
	r.size++
	now := e.At
	if now.IsZero() {
		now = r.d.cfg.Clock()
	}
	r.record(e, now.UTC())
	hurry := r.size >= maxPending/2
	r.mu.Unlock()
	if hurry {
		r.hint()
	}
}

func (r *recorder) hint() {
	select {
	case r.full <- struct{}{}:
	default:
	}
}

func (r *recorder) record(e cli.Event, now time.Time) {
	switch e.Kind {
	case cli.EventTextDelta:
		if r.pieces == nil {
			r.pieces = r.d.cfg.Redactor.Stream()
		}
		r.delta(pulse.EventMessageDelta, r.pieces.Next(e.Text), now)
	case cli.EventText:
		text := r.d.cfg.Redactor.String(e.Text)
		if r.pieces == nil {
			r.delta(pulse.EventMessageDelta, text, now)
		} else {
			r.delta(pulse.EventMessageDelta, r.pieces.Rest(), now)
			r.pieces = nil
		}
		r.seq++
		r.batch.Messages = append(r.batch.Messages, pulse.TurnMessage{TurnID: r.turn, Seq: r.seq, Text: text, At: now})
	case cli.EventThought:
		text := r.d.cfg.Redactor.String(e.Text)
		r.delta(pulse.EventThoughtDelta, text, now)
		r.seq++
		r.batch.Thoughts = append(r.batch.Thoughts, pulse.TurnThought{TurnID: r.turn, Seq: r.seq, Text: text, At: now})
	case cli.EventToolStart:
		r.toolStart(e.Tool, now)
	case cli.EventToolEnd:
		r.toolEnd(e.Tool, now)
	}
}

func (r *recorder) delta(t pulse.EventType, text string, now time.Time) {
	if text == "" {
		return
	}
	r.deltaN++
	r.batch.Deltas = append(r.batch.Deltas, pulse.StreamDelta{TaskID: r.task.ID, Attempt: r.task.Attempt, N: r.deltaN,
		SessionID: r.task.SessionID, TurnID: r.turn, Type: t, Text: text, At: now})
}

func (r *recorder) toolStart(t *cli.Tool, now time.Time) {
	if t == nil {
		return
	}
	r.seq++
	row := pulse.TurnTool{TurnID: r.turn, Seq: r.seq, CallID: t.ID, Name: t.Name, Summary: r.d.cfg.Redactor.String(t.Summary),
		Input: r.d.cfg.Redactor.String(string(t.Input)), Status: pulse.ToolRunning, At: now}
	r.tools[t.ID] = &openTool{tool: row}
	r.batch.Tools = append(r.batch.Tools, row)
	r.event(pulse.EventToolStarted, map[string]any{"callId": row.CallID, "name": row.Name, "summary": row.Summary,
		"iterationId": string(r.task.IterationID)})
}

func (r *recorder) toolEnd(t *cli.Tool, now time.Time) {
	if t == nil {
		return
	}
	open, ok := r.tools[t.ID]
	if !ok {
		r.toolStart(t, now) // an end without a start is a call all the same
		open = r.tools[t.ID]
	}
	delete(r.tools, t.ID)
	row := open.tool
	row.Output, row.Status, row.EndedAt = r.d.cfg.Redactor.String(t.Output), pulse.ToolCompleted, now
	if t.Failed {
		row.Status = pulse.ToolFailed
	}
	r.batch.Tools = append(r.batch.Tools, row)
	r.event(pulse.EventToolCompleted, map[string]any{"callId": row.CallID, "name": row.Name, "status": string(row.Status),
		"durationMs": row.EndedAt.Sub(row.At).Milliseconds(), "iterationId": string(r.task.IterationID)})
}

func (r *recorder) event(t pulse.EventType, data map[string]any) {
	r.batch.Events = append(r.batch.Events, pulse.Event{SessionID: r.task.SessionID, Type: t, TurnID: r.turn,
		At: r.d.cfg.Clock().UTC(), Data: data})
}

// flushing stores what has gathered, at every tick and when there is much.
func (r *recorder) flushing(ctx context.Context) {
	tick := time.NewTicker(r.d.cfg.Flush)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.full:
		}
		r.store(ctx)
	}
}

// store writes the gathered batch. While the database is away the batch is
// kept; take then holds the agent's output up when it is full.
func (r *recorder) store(ctx context.Context) {
	r.storing.Lock()
	defer r.storing.Unlock()
	r.mu.Lock()
	b := r.batch
	b.Sign = r.signAt
	n := r.size
	r.batch, r.size, r.signAt = pulse.StreamBatch{}, 0, time.Time{}
	r.mu.Unlock()
	if b.Empty() {
		return
	}
	err := r.d.cfg.Queue.Append(ctx, r.fence, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
	case errors.Is(err, pulse.ErrFenced):
		r.lost = true
	default:
		r.batch, r.size = join(b, r.batch), n+r.size
		if r.signAt.IsZero() {
			r.signAt = b.Sign
		}
	}
	r.room.Broadcast()
}

// join puts two batches together, the earlier first.
func join(a, b pulse.StreamBatch) pulse.StreamBatch {
	a.Turns = append(a.Turns, b.Turns...)
	a.Messages = append(a.Messages, b.Messages...)
	a.Tools = append(a.Tools, b.Tools...)
	a.Thoughts = append(a.Thoughts, b.Thoughts...)
	a.Events = append(a.Events, b.Events...)
	a.Deltas = append(a.Deltas, b.Deltas...)
	a.Sign = time.Time{}
	return a
}
