package dbtest

import (
	"time"

	"pulseloop/pulse"
)

// endedTurns: however a claim ends without its daemon, the turn of its agent
// is over, with what it had said, and the log says so once.
func endedTurns(f *fixture) {
	ways := map[string]func(pulse.Session, pulse.Iteration, pulse.Fence){
		"cancelled": func(s pulse.Session, it pulse.Iteration, fence pulse.Fence) {
			s = f.session(s.ID)
			s.Status, s.DueAt, it.Status = pulse.SessionAborted, time.Time{}, pulse.IterationFailed
			for range 2 {
				f.apply(pulse.Guard{SessionID: s.ID, Version: f.session(s.ID).Version},
					pulse.Change{Session: &s, Iterations: []pulse.Iteration{it}, Cancel: []pulse.TaskID{fence.TaskID}})
			}
		},
		"lost": func(s pulse.Session, _ pulse.Iteration, _ pulse.Fence) {
			f.clock.Advance(lease)
			n, _, err := f.Reap(f.ctx)
			mustBe(f.t, err, nil, "reap")
			equal(f.t, n, 1, "requeued")
			f.cancelQueued(s.ID)
		},
		"dead": func(s pulse.Session, _ pulse.Iteration, _ pulse.Fence) {
			for range 2 {
				f.clock.Advance(lease)
				_, _, err := f.Reap(f.ctx)
				mustBe(f.t, err, nil, "reap")
				f.claim()
			}
			f.clock.Advance(lease)
			_, dead, err := f.Reap(f.ctx)
			mustBe(f.t, err, nil, "reap")
			equal(f.t, dead, 1, "dead")
		},
		"handed back": func(s pulse.Session, _ pulse.Iteration, fence pulse.Fence) {
			mustBe(f.t, f.Release(f.ctx, fence), nil, "release")
			f.cancelQueued(s.ID)
		},
	}
	for name, end := range ways {
		s, it, fence := f.started()
		other := f.openTurn(fence, "x") // of the same session's earlier turn, complete
		other.Status, other.EndedAt = pulse.TurnCompleted, f.clock.Now()
		mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{other}}), nil, "append the end of an earlier turn")
		turn := f.openTurn(fence, "half an ans")
		before := f.session(s.ID).EventSeq
		end(s, it, fence)
		turns, err := f.Turns(f.ctx, s.ID)
		mustBe(f.t, err, nil, "turns")
		for _, d := range turns {
			if d.Turn.ID == other.ID {
				equal(f.t, d.Turn.Status, pulse.TurnCompleted, name+": a turn that was complete")
				continue
			}
			equal(f.t, d.Turn.ID, turn.ID, name+": turn")
			equal(f.t, d.Turn.Status, pulse.TurnFailed, name+": turn")
			equal(f.t, d.Turn.EndedAt.IsZero(), false, name+": turn without an end")
			equal(f.t, d.Turn.Text, "half an ans", name+": text")
			equal(f.t, d.Tools[0].Status, pulse.ToolFailed, name+": its open tool")
			equal(f.t, d.Tools[0].EndedAt.IsZero(), false, name+": tool without an end")
		}
		events, err := f.Events(f.ctx, s.ID, before, 0)
		mustBe(f.t, err, nil, "events")
		equal(f.t, len(events), 1, name+": events")
		e := events[0]
		equal(f.t, e.Seq, before+1, name+": event's number")
		equal(f.t, e.Type, pulse.EventTurnCompleted, name+": event")
		equal(f.t, e.TurnID, turn.ID, name+": event's turn")
		equal(f.t, e.Data["status"], any(string(pulse.TurnFailed)), name+": event's status")
		equal(f.t, e.Data["iterationId"], any(string(it.ID)), name+": event's iteration")
		late := turn
		late.Status = pulse.TurnCompleted
		mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{late}}), pulse.ErrFenced, name+": late end")
	}
}

// openTurn stores a turn under way, with a text and a tool that runs.
func (f *fixture) openTurn(fence pulse.Fence, text string) pulse.Turn {
	f.t.Helper()
	turn := pulse.Turn{ID: pulse.TurnID(f.id()), Role: pulse.TurnAssistant, Status: pulse.TurnStreaming, CreatedAt: f.clock.Now()}
	mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{turn},
		Messages: []pulse.TurnMessage{{TurnID: turn.ID, Seq: 1, Text: text, At: f.clock.Now()}},
		Tools:    []pulse.TurnTool{{TurnID: turn.ID, Seq: 2, CallID: "c1", Name: "shell", Status: pulse.ToolRunning, At: f.clock.Now()}}}), nil, "append")
	return turn
}

// cancelQueued takes a session's task out of the way of the next case.
func (f *fixture) cancelQueued(id pulse.SessionID) {
	f.t.Helper()
	_, task := f.task(id)
	f.apply(pulse.Guard{}, pulse.Change{Cancel: []pulse.TaskID{task.ID}})
}
