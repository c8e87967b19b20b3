package dbtest

import (
	"errors"
	"testing"
	"time"

	"pulseloop/pulse"
)

func is(err, want error) bool { return errors.Is(err, want) }

// Run runs the whole suite; open gives an empty place a call.
func Run(t *testing.T, open func(testing.TB) Place) {
	groups := []struct {
		name string
		test func(*testing.T, func(testing.TB) Place)
	}{
		{"life", testLife},
		{"guards", testGuards},
		{"queue", testQueue},
		{"outbox", testOutbox},
		{"words", testWords},
		{"migrations", testMigrations},
		{"together", testTogether},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) { g.test(t, open) })
	}
}

// cases runs each test on a fixture of its own.
func cases(t *testing.T, open func(testing.TB) Place, tests map[string]func(*fixture)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newFixture(t, open(t)))
		})
	}
}

func testLife(t *testing.T, open func(testing.TB) Place) {
	cases(t, open, map[string]func(*fixture){
		"from goal to result": lifeOfASession,
	})
}

// lifeOfASession goes the whole way: start, take, dispatch, claim, run,
// stream, finish, take, record, tell.
func lifeOfASession(f *fixture) {
	t := f.t
	s := f.newSession()
	f.apply(pulse.Guard{}, pulse.Change{NewSession: &s, Events: []pulse.Event{{SessionID: s.ID, Type: pulse.EventSessionStarted}}})
	taken, _, err := f.Take(f.ctx, "step-1", lease)
	mustBe(t, err, nil, "take")
	equal(t, taken.ID, s.ID, "taken session")
	equal(t, taken.StepToken, "step-1", "step token")
	equal(t, taken.DueAt, f.clock.Now().Add(lease), "due after take")
	equal(t, taken.EventSeq, 1, "events so far")

	running, _, task := f.dispatch(taken)
	equal(t, running.StepToken, "", "step token after dispatch")
	equal(t, running.Version, taken.Version+1, "version")
	equal(t, running.EventSeq, 2, "events so far")

	claim, fence := f.claim()
	equal(t, claim.Task.ID, task.ID, "claimed task")
	equal(t, claim.Task.Attempt, 1, "attempt")
	equal(t, claim.Task.MediaContext, task.MediaContext, "media context")
	equal(t, claim.Task.Spec, task.Spec, "spec")
	equal(t, claim.Task.LeaseUntil, f.clock.Now().Add(lease), "lease")
	mustBe(t, f.Running(f.ctx, fence), nil, "running")

	turn := pulse.Turn{ID: pulse.TurnID(f.id()), Role: pulse.TurnAssistant, Status: pulse.TurnStreaming, CreatedAt: f.clock.Now()}
	mustBe(t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{turn}, Sign: f.clock.Now(), Phase: pulse.PhaseTool,
		Messages: []pulse.TurnMessage{{TurnID: turn.ID, Seq: 1, Text: "built the endpoint", At: f.clock.Now()}},
		Tools:    []pulse.TurnTool{{TurnID: turn.ID, Seq: 2, CallID: "c1", Name: "write", Summary: "health.go", Status: pulse.ToolRunning, At: f.clock.Now()}},
		Thoughts: []pulse.TurnThought{{TurnID: turn.ID, Seq: 3, Text: "hm", At: f.clock.Now()}},
		Events:   []pulse.Event{{Type: pulse.EventTurnStarted, TurnID: turn.ID}},
		Deltas:   []pulse.StreamDelta{{N: 1, TurnID: turn.ID, Type: pulse.EventMessageDelta, Text: "built"}}}), nil, "append")
	turn.Status, turn.EndedAt = pulse.TurnCompleted, f.clock.Now()
	mustBe(t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{turn},
		Tools: []pulse.TurnTool{{TurnID: turn.ID, Seq: 2, CallID: "c1", Output: "ok", Status: pulse.ToolCompleted, EndedAt: f.clock.Now()}}}), nil, "append the end")
	mustBe(t, f.Finish(f.ctx, fence, pulse.TaskResult{FinalText: "done", TurnID: turn.ID, Commit: "abc", Commits: 1, FilesChanged: []string{"health.go"},
		Usage: pulse.Usage{InputTokens: 10, OutputTokens: 5, CostMicros: 7}}), nil, "finish")

	due, _, err := f.Take(f.ctx, "step-2", lease)
	mustBe(t, err, nil, "take after finish")
	gotIt, gotTask := f.task(s.ID)
	equal(t, gotIt.Status, pulse.IterationRunning, "iteration")
	equal(t, gotTask.Status, pulse.TaskComplete, "task")
	equal(t, gotTask.ReadAt, f.clock.Now(), "when it was read")
	equal(t, gotTask.LastSign, f.clock.Now(), "last sign")
	equal(t, gotTask.Phase, pulse.PhaseTool, "phase, which a batch without a sign leaves as it is")
	equal(t, gotTask.Result.FinalText, "done", "result")
	equal(t, gotTask.Result.FilesChanged[0], "health.go", "files of the result")
	record(f, due, gotIt, turn.ID)
	checkRecorded(f, s.ID, turn.ID)
}

func record(f *fixture, s pulse.Session, it pulse.Iteration, turn pulse.TurnID) {
	f.t.Helper()
	now := f.clock.Now()
	s.Status, s.LastSignal, s.StepToken, s.DueAt, s.EndedAt = pulse.SessionComplete, pulse.SignalComplete, "", time.Time{}, now
	s.TotalCommits, s.TotalTokens, s.TotalCostMicros, s.LastTurnID = 1, 15, 7, turn
	s.ProgressLog = append(s.ProgressLog, pulse.ProgressEntry{Iteration: 1, Signal: pulse.SignalComplete, Summary: "built", Commit: "abc", At: now})
	it.Status, it.Signal, it.SignalClaimed, it.OutputSummary, it.OutputFull = pulse.IterationComplete, pulse.SignalComplete, pulse.SignalComplete, "built", "done"
	it.CommitHash, it.Commits, it.FilesChanged, it.TurnID, it.EndedAt = "abc", 1, []string{`a "quoted", \ name.go`, "health.go", ""}, turn, now
	it.Anchor = pulse.Anchor{TurnID: turn, Strategy: pulse.AnchorTemporal, Milliseconds: 1.5, Salience: 0.25, Depth: 3, Note: "no hint", Found: true}
	it.AnchorHintNext, it.AnchorHintWhy, it.SliceID, it.ContextTokens = turn, "because", "slice-1", 1200
	it.Usage = pulse.Usage{InputTokens: 10, OutputTokens: 5, CacheReadTokens: 1 << 40, CostMicros: 7}
	f.apply(pulse.Guard{SessionID: s.ID, Version: s.Version, StepToken: "step-2"}, pulse.Change{Session: &s, Iterations: []pulse.Iteration{it},
		Slice:   &pulse.Slice{ID: "slice-1", TurnIDs: []pulse.TurnID{turn}, NodeCount: 1, Tokens: 9},
		Events:  []pulse.Event{{SessionID: s.ID, Type: pulse.EventIterationEnded}, {SessionID: s.ID, Type: pulse.EventSessionCompleted}},
		Notices: []pulse.Notice{{Address: pulse.Address{Platform: pulse.PlatformTelegram, Chat: "42"}, Slot: "end", Kind: pulse.NoticeFinal, SessionID: s.ID, Message: pulse.Text("done")}}})
}

func checkRecorded(f *fixture, id pulse.SessionID, turn pulse.TurnID) {
	f.t.Helper()
	t := f.t
	s := f.session(id)
	equal(t, s.Status, pulse.SessionComplete, "status")
	equal(t, s.DueAt.IsZero(), true, "nothing due")
	equal(t, s.ProgressLog[0].Summary, "built", "progress")
	equal(t, s.TotalTokens, 15, "tokens")
	its, err := f.Iterations(f.ctx, id)
	mustBe(t, err, nil, "iterations")
	equal(t, len(its), 1, "iterations")
	it := its[0]
	equal(t, len(it.FilesChanged), 3, "files")
	equal(t, it.FilesChanged[0], `a "quoted", \ name.go`, "first file")
	equal(t, it.Anchor, pulse.Anchor{TurnID: turn, Strategy: pulse.AnchorTemporal, Milliseconds: 1.5, Salience: 0.25, Depth: 3, Note: "no hint", Found: true}, "anchor")
	equal(t, it.AnchorHintNext, turn, "hint")
	equal(t, it.Usage.CacheReadTokens, 1<<40, "tokens beyond 32 bits")
	equal(t, it.StartedAt.IsZero(), false, "iteration's start")
	turns, err := f.Turns(f.ctx, id)
	mustBe(t, err, nil, "turns")
	equal(t, len(turns), 1, "turns")
	equal(t, turns[0].Turn.Text, "built the endpoint", "text")
	equal(t, turns[0].Turn.ProjectID, f.project.ID, "turn's project")
	equal(t, turns[0].Tools[0].Name, "write", "tool's name survives its end")
	equal(t, turns[0].Tools[0].Output, "ok", "tool's output")
	equal(t, turns[0].Thoughts[0].Text, "hm", "thought")
	events, err := f.Events(f.ctx, id, 0, 0)
	mustBe(t, err, nil, "events")
	equal(t, len(events), 5, "events")
	for i, e := range events {
		equal(t, e.Seq, int64(i+1), "event number")
	}
	prompt, err := f.Prompt(f.ctx, id, 1)
	mustBe(t, err, nil, "prompt")
	equal(t, prompt, "do it", "prompt")
	hits, err := f.SearchTurns(f.ctx, f.project.ID, "endpoints", 5)
	mustBe(t, err, nil, "search")
	equal(t, len(hits), 1, "hits")
	equal(t, hits[0].Turn.ID, turn, "hit")
	equal(t, hits[0].Similarity, 1.0, "similarity of the only and full match")
	got, _, err := f.ClaimNotices(f.ctx, []pulse.Platform{pulse.PlatformTelegram}, nil, 10, lease)
	mustBe(t, err, nil, "claim notices")
	equal(t, len(got), 1, "notices")
	equal(t, got[0].Message.Plain(), "done", "notice")
}
