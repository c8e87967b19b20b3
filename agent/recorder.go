package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/internal/secret"
	"pulseloop/pulse"
)

// What waits to be stored is bounded; a flood beyond it holds up the reading
// of the agent's output instead of filling the memory.
const (
	maxPending      = 512
	maxPendingBytes = 256 << 10
	maxOpenTools    = 128
	maxPiece        = 4 << 10 // of a delta that is put together from pieces
)

// recorder turns the events of a run into turns, messages, tools, thoughts,
// events and deltas, and stores them in batches.
type recorder struct {
	r       *run
	turn    pulse.TurnID
	began   time.Time
	storing sync.Mutex // one write at a time, in order

	quit   chan struct{} // ends the flushing; nil while the turn was not opened
	stored chan struct{} // the flushing has ended

	mu       sync.Mutex
	room     *sync.Cond    // there is room in the batch again
	full     chan struct{} // a hint that the batch should be stored at once
	batch    pulse.StreamBatch
	size     int  // events that wait, those being written included
	bytes    int  // about what they weigh
	shut     bool // no more is taken
	fenced   bool // the claim is gone: nothing is written any more
	failing  time.Time
	seq      int
	deltaN   int64
	notes    int   // so far
	kept     int64 // bytes that were said and stored
	streamed int64 // bytes of deltas
	lastNote string
	tools    map[string]pulse.TurnTool // that have not ended yet
	pieces   *secret.Stream            // of the block that comes in pieces, nil between blocks
	growing  bool                      // the batch's last delta is of that block
	vital    vitals
}

func newRecorder(r *run) *recorder {
	now := r.d.cfg.Clock().UTC()
	rec := &recorder{r: r, began: now, vital: vitals{last: now}, stored: make(chan struct{}), full: make(chan struct{}, 1), tools: map[string]pulse.TurnTool{}}
	rec.room = sync.NewCond(&rec.mu)
	return rec
}

func (r *recorder) row(status pulse.TurnStatus, end time.Time) pulse.Turn {
	t := r.r.task
	return pulse.Turn{ID: r.turn, SessionID: t.SessionID, ProjectID: t.MediaContext.ProjectID, IterationID: t.IterationID,
		ParentID: t.Spec.ParentTurn, Role: pulse.TurnAssistant, Status: status, CreatedAt: r.began, EndedAt: end}
}

// open stores the beginning of the turn, and from then on what gathers.
func (r *recorder) open(ctx context.Context) {
	r.began = r.r.d.cfg.Clock().UTC()
	r.turn = pulse.TurnID(pulse.NewUUID(r.began))
	r.quit = make(chan struct{})
	r.mu.Lock()
	r.vital.sign(r.began)
	r.vital.phase = pulse.PhaseStarting
	r.batch.Turns = []pulse.Turn{r.row(pulse.TurnStreaming, time.Time{})}
	r.event(pulse.EventTurnStarted, map[string]any{"role": string(pulse.TurnAssistant), "agent": r.r.task.Spec.Agent,
		"iteration": r.r.task.MediaContext.IterationNumber, "iterationId": string(r.r.task.IterationID)})
	r.mu.Unlock()
	r.hint()
	go func() {
		defer close(r.stored)
		r.flushing(ctx)
	}()
}

// close stores the end of the turn and answers its id; "" if none was opened.
// Tools that never ended are failed. Of a claim that is gone nothing is
// stored.
func (r *recorder) close(ctx context.Context, status pulse.TurnStatus) pulse.TurnID {
	if r.quit == nil {
		return ""
	}
	close(r.quit)
	<-r.stored
	r.mu.Lock()
	now := r.r.d.cfg.Clock().UTC()
	r.shut = true
	if ctx.Err() == nil { // else it counts how the agent was found
		r.vital.sign(now)
		r.vital.phase = pulse.PhaseEnding
	}
	r.endBlock(now)
	for _, t := range r.tools {
		if t.TurnID == "" {
			continue // it was not kept
		}
		t.Status, t.EndedAt = pulse.ToolFailed, now
		r.batch.Tools = append(r.batch.Tools, t)
	}
	clear(r.tools)
	r.batch.Turns = []pulse.Turn{r.row(status, now)}
	r.event(pulse.EventTurnCompleted, map[string]any{"role": string(pulse.TurnAssistant), "status": string(status),
		"iterationId": string(r.r.task.IterationID)})
	r.mu.Unlock()
	last, cancel := outliving(ctx, lastMoment)
	defer cancel()
	last, cancelTimeout := context.WithTimeout(last, 3*r.r.d.cfg.Lease)
	defer cancelTimeout()
	_ = r.r.insist(last, "store the end of the turn", func(c context.Context) error { // logged as it happens
		if gone(ctx) {
			return pulse.ErrFenced
		}
		return r.store(c)
	})
	return r.turn
}

// abandon lets go of whoever waits for room: the run is over, and what its
// agent still says is not stored.
func (r *recorder) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = true
	r.room.Broadcast()
}

// take records one event of the agent.
func (r *recorder) take(e cli.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for (r.size >= maxPending || r.bytes >= maxPendingBytes) && !r.shut {
		r.hint()
		r.room.Wait()
	}
	if r.shut {
		return
	}
	r.size++
	r.bytes += weight(e)
	now := e.At
	if now.IsZero() {
		now = r.r.d.cfg.Clock()
	}
	r.record(e, now.UTC())
	if r.size >= maxPending/2 || r.bytes >= maxPendingBytes/2 {
		r.hint()
	}
}

// weight is about what an event takes while it waits; texts wait twice, as a
// block and as a delta.
func weight(e cli.Event) int {
	n := 512 + 2*len(e.Text)
	if e.Tool != nil {
		n += len(e.Tool.Input) + len(e.Tool.Output) + 2*len(e.Tool.Summary)
	}
	return n
}

func (r *recorder) hint() {
	select {
	case r.full <- struct{}{}:
	default:
	}
}

func (r *recorder) record(e cli.Event, now time.Time) {
	if r.tooMuch(e) {
		r.follow(e, now)
		return
	}
	clean := r.r.d.cfg.Redactor
	switch e.Kind {
	case cli.EventTextDelta:
		if r.pieces == nil {
			r.pieces = clean.Stream()
		}
		r.piece(r.pieces.Next(e.Text), now)
	case cli.EventText:
		text := clean.String(e.Text)
		if r.pieces == nil {
			r.delta(pulse.EventMessageDelta, text, now)
		} else {
			r.endBlock(now)
		}
		r.seq++
		r.batch.Messages = append(r.batch.Messages, pulse.TurnMessage{TurnID: r.turn, Seq: r.seq, Text: text, At: now})
	case cli.EventThought:
		text := clean.String(e.Text)
		r.delta(pulse.EventThoughtDelta, text, now)
		r.seq++
		r.batch.Thoughts = append(r.batch.Thoughts, pulse.TurnThought{TurnID: r.turn, Seq: r.seq, Text: text, At: now})
	case cli.EventNote:
		r.note(clean.String(e.Text))
	case cli.EventToolStart:
		r.toolStart(e.Tool, now)
	case cli.EventToolEnd:
		r.toolEnd(e.Tool, now)
	}
	r.vital.said(e.Kind, len(r.tools))
}

// tooMuch reports that nothing more of this kind is kept: an agent that talks
// without end must not fill the disk. Its result is another matter, and what
// it does is still followed.
func (r *recorder) tooMuch(e cli.Event) bool {
	switch e.Kind {
	case cli.EventText, cli.EventThought, cli.EventToolStart, cli.EventToolEnd:
	default:
		return false
	}
	limit, before := r.r.d.cfg.MaxKept, r.kept
	if before <= limit {
		r.kept += int64(weight(e))
		return false
	}
	if before != math.MaxInt64 {
		r.kept = math.MaxInt64
		r.note(fmt.Sprintf("the agent has said more than %d MB; what follows is not kept", limit>>20))
	}
	return true
}

// follow keeps track of the calls of which nothing more is kept. One whose
// beginning was kept gets its end.
func (r *recorder) follow(e cli.Event, now time.Time) {
	if t := e.Tool; t != nil {
		row := r.tools[toolKey(t)]
		switch {
		case e.Kind == cli.EventToolStart && row.TurnID == "" && len(r.tools) < maxOpenTools:
			r.tools[toolKey(t)] = pulse.TurnTool{}
		case e.Kind == cli.EventToolEnd && row.TurnID != "":
			r.toolEnd(&cli.Tool{ID: t.ID, Name: t.Name, Failed: t.Failed}, now)
		case e.Kind == cli.EventToolEnd:
			delete(r.tools, toolKey(t))
		}
	}
	r.vital.said(e.Kind, len(r.tools))
}

// Notes are for people: a flood of them tells nobody anything.
const (
	maxNote  = 1000 // bytes of one
	maxNotes = 200  // of one run
)

// note tells what the CLI says of itself: that it tries again, is limited,
// makes room. One that repeats the last is told once.
func (r *recorder) note(text string) {
	text = cli.CutMiddle(strings.TrimSpace(text), maxNote)
	if text == "" || text == r.lastNote || r.notes > maxNotes {
		return
	}
	if r.notes++; r.notes > maxNotes {
		text = "the agent's program says more of this kind, which is left out"
	}
	r.lastNote = text
	r.event(pulse.EventTurnNote, map[string]any{"text": text, "iterationId": string(r.r.task.IterationID)})
}

// piece adds to the delta of the block that comes, as long as nobody has seen
// it: a word a row would be many rows.
func (r *recorder) piece(text string, now time.Time) {
	if n := len(r.batch.Deltas) - 1; r.growing && n >= 0 && len(r.batch.Deltas[n].Text) < maxPiece {
		r.batch.Deltas[n].Text += text
		r.streamed += int64(len(text))
		return
	}
	before := r.deltaN
	r.delta(pulse.EventMessageDelta, text, now)
	r.growing = r.deltaN > before
}

// endBlock gives what was held back of a block that came in pieces.
func (r *recorder) endBlock(now time.Time) {
	if r.pieces != nil {
		r.piece(r.pieces.Rest(), now)
	}
	r.pieces, r.growing = nil, false
}

func (r *recorder) delta(t pulse.EventType, text string, now time.Time) {
	r.growing = false
	if text == "" || r.streamed > r.r.d.cfg.MaxKept/4 {
		return
	}
	r.streamed += int64(len(text))
	r.deltaN++
	task := r.r.task
	r.batch.Deltas = append(r.batch.Deltas, pulse.StreamDelta{TaskID: task.ID, Attempt: task.Attempt, N: r.deltaN,
		SessionID: task.SessionID, TurnID: r.turn, Type: t, Text: text, At: now})
}

// toolKey finds a call again; a CLI that gives no ids has one call of a name
// at a time.
func toolKey(t *cli.Tool) string { return cmp.Or(t.ID, "\x00"+t.Name) }

func (r *recorder) toolStart(t *cli.Tool, now time.Time) pulse.TurnTool {
	if t == nil {
		return pulse.TurnTool{}
	}
	r.seq++
	r.lastNote = "" // said again after a step, it is news again
	row := pulse.TurnTool{TurnID: r.turn, Seq: r.seq, CallID: cmp.Or(t.ID, fmt.Sprintf("call-%d", r.seq)), Name: t.Name,
		Summary: t.Summary, Input: string(t.Input), Status: pulse.ToolRunning, At: now}
	if len(r.tools) < maxOpenTools {
		r.tools[toolKey(t)] = row
	}
	r.batch.Tools = append(r.batch.Tools, row)
	r.event(pulse.EventToolStarted, map[string]any{"callId": row.CallID, "name": row.Name, "summary": row.Summary,
		"iterationId": string(r.r.task.IterationID)})
	return row
}

func (r *recorder) toolEnd(t *cli.Tool, now time.Time) {
	if t == nil {
		return
	}
	row, ok := r.tools[toolKey(t)]
	if !ok {
		row = r.toolStart(t, now) // an end without a start is a call all the same
	}
	delete(r.tools, toolKey(t))
	row.Output, row.Status, row.EndedAt = t.Output, pulse.ToolCompleted, now
	if t.Failed {
		row.Status = pulse.ToolFailed
	}
	r.batch.Tools = append(r.batch.Tools, row)
	r.event(pulse.EventToolCompleted, map[string]any{"callId": row.CallID, "name": row.Name, "status": string(row.Status),
		"durationMs": row.EndedAt.Sub(row.At).Milliseconds(), "iterationId": string(r.r.task.IterationID)})
}

func (r *recorder) event(t pulse.EventType, data map[string]any) {
	r.batch.Events = append(r.batch.Events, pulse.Event{SessionID: r.r.task.SessionID, Type: t, TurnID: r.turn,
		At: r.r.d.cfg.Clock().UTC(), Data: data})
}

// flushing stores what has gathered, at every tick and when there is much.
func (r *recorder) flushing(ctx context.Context) {
	unhook := context.AfterFunc(ctx, r.abandon)
	defer unhook()
	// A write under way when ctx ends may still be answered: one that is made
	// and not heard of would be made twice.
	last, cancel := outliving(ctx, lastMoment)
	defer cancel()
	tick := time.NewTicker(r.r.d.cfg.Flush)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.quit:
			return
		case <-tick.C:
		case <-r.full:
		}
		if err := r.store(last); err != nil && ctx.Err() == nil {
			r.r.log.Warn("store what the agent does", "err", err)
			<-tick.C // not at every event while the database is away
		}
	}
}

// store writes the gathered batch. While the database is away the batch is
// kept; take then holds the agent's output up when it is full.
func (r *recorder) store(ctx context.Context) error {
	r.storing.Lock()
	defer r.storing.Unlock()
	r.mu.Lock()
	if r.fenced {
		r.mu.Unlock()
		return pulse.ErrFenced
	}
	b, n, bytes := r.batch, r.size, r.bytes
	b.Sign = r.vital.unsaved
	if !b.Sign.IsZero() {
		b.Phase = r.vital.phase
	}
	r.batch, r.vital.unsaved, r.growing = pulse.StreamBatch{}, time.Time{}, false
	r.mu.Unlock()
	if b.Empty() {
		return nil
	}
	err := r.r.d.cfg.Queue.Append(ctx, r.r.fence, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.room.Broadcast()
	switch {
	case errors.Is(err, pulse.ErrFenced):
		r.fenced, r.shut = true, true
		r.r.giveUp()
		return err
	case err != nil && !r.hopeless(err):
		r.keep(b)
		return err
	case err != nil:
		r.r.log.Error("a part of what the agent did cannot be stored and is left out", "events", n, "err", err)
		if len(b.Turns) == 0 {
			b.Turns = []pulse.Turn{r.row(pulse.TurnStreaming, time.Time{})} // what follows hangs on it
		}
		r.keep(pulse.StreamBatch{Turns: b.Turns, Sign: b.Sign})
		err = errLeftOut
	}
	r.size, r.bytes, r.failing = r.size-n, r.bytes-bytes, time.Time{}
	return err
}

var errLeftOut = errors.New("a part was left out")

// hopeless reports whether the batch itself is at fault. If the database were
// away for so long, the lease could not have been renewed either.
func (r *recorder) hopeless(err error) bool {
	now := r.r.d.cfg.Clock()
	if r.failing.IsZero() {
		r.failing = now
	}
	return refused(err) || now.Sub(r.failing) > 2*r.r.d.cfg.Lease
}

// keep puts a batch that was not stored before what has gathered since.
func (r *recorder) keep(b pulse.StreamBatch) {
	n := r.batch
	if len(n.Turns) > 0 {
		b.Turns = n.Turns // the same row, newer
	}
	r.batch = pulse.StreamBatch{Turns: b.Turns, Messages: append(b.Messages, n.Messages...), Tools: append(b.Tools, n.Tools...),
		Thoughts: append(b.Thoughts, n.Thoughts...), Events: append(b.Events, n.Events...), Deltas: append(b.Deltas, n.Deltas...)}
	if r.vital.unsaved.IsZero() {
		r.vital.unsaved = b.Sign
	}
}
