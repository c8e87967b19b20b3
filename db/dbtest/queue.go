package dbtest

import (
	"sync"
	"testing"
	"time"

	"pulseloop/pulse"
)

func testQueue(t *testing.T, open func(testing.TB) Place) {
	cases(t, open, map[string]func(*fixture){
		"most urgent, then oldest, of its routes": claimOrder,
		"claimers never share a task":             claimersShareNothing,
		"many claims at once":                     manyAtOnce,
		"claimers of many never share a task":     manyShareNothing,
		"many results at once":                    manyResults,
		"takers never share a session":            takersShareNothing,
		"a lost lease fences every write":         fences,
		"finishing twice is harmless":             finishTwice,
		"finishing wakes and makes stale":         finishStirs,
		"a cancelled task":                        cancelled,
		"reaped, and dead in the end":             reaped,
		"no turn stays open":                      endedTurns,
		"handed back without counting":            released,
		"a failed run":                            failedRun,
		"enlisted daemons":                        enlisted,
		"a batch stays in its session":            foreignTurn,
		"nothing due":                             nothingDue,
	})
}

func (f *fixture) enqueue(route string, priority int, age time.Duration) pulse.TaskID {
	f.t.Helper()
	id := pulse.TaskID(f.id())
	f.apply(pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{{ID: id, Kind: pulse.TaskIterate, Route: route, Priority: priority, MaxAttempts: 3, CreatedAt: f.clock.Now().Add(-age)}}})
	return id
}

func claimOrder(f *fixture) {
	late := f.enqueue("a", 0, time.Second)
	early := f.enqueue("b", 0, time.Minute)
	urgent := f.enqueue("a", 5, 0)
	f.enqueue("other", 9, time.Hour)
	for i, want := range []pulse.TaskID{urgent, early, late} {
		c, err := f.Claim(f.ctx, "d", []string{"a", "b", "a"}, lease)
		mustBe(f.t, err, nil, label(i))
		equal(f.t, c.Task.ID, want, label(i))
		equal(f.t, c.Task.ClaimedBy, "d", "claimed by")
	}
	_, err := f.Claim(f.ctx, "d", []string{"a", "b"}, lease)
	mustBe(f.t, err, pulse.ErrNone, "another route's task")
	_, err = f.Claim(f.ctx, "d", nil, lease)
	mustBe(f.t, err, pulse.ErrNone, "no routes")
	_, err = f.Claim(f.ctx, "d", []string{`"; DROP TABLE inbox_tasks; --`}, lease)
	mustBe(f.t, err, pulse.ErrNone, "a hostile route")
	_, err = f.Claim(f.ctx, broken, []string{broken}, lease)
	mustBe(f.t, err, pulse.ErrNone, "a broken route")
	mustBe(f.t, f.Release(f.ctx, pulse.Fence{TaskID: late, Token: broken}), pulse.ErrFenced, "a broken token")
}

func claimersShareNothing(f *fixture) {
	const tasks, claimers = 60, 8
	for range tasks {
		f.enqueue("r", 0, 0)
	}
	var mu sync.Mutex
	seen := map[pulse.TaskID]pulse.ClaimToken{}
	errs := together(claimers, func(i int) error {
		for {
			c, err := f.Claim(f.ctx, pulse.DaemonID(label(i)), []string{"x", "r"}, lease)
			if is(err, pulse.ErrNone) {
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			if other, ok := seen[c.Task.ID]; ok {
				f.t.Errorf("task %s claimed as %s and %s", c.Task.ID, other, c.Token)
			}
			seen[c.Task.ID] = c.Token
			mu.Unlock()
			if err := f.Finish(f.ctx, pulse.Fence{TaskID: c.Task.ID, Token: c.Token}, pulse.TaskResult{}); err != nil {
				return err
			}
		}
	})
	noErrors(f.t, errs)
	equal(f.t, len(seen), tasks, "tasks claimed")
	counts, err := f.Counts(f.ctx)
	mustBe(f.t, err, nil, "counts")
	equal(f.t, counts["tasks_complete"], tasks, "tasks complete")
}

func takersShareNothing(f *fixture) {
	const sessions, takers = 30, 4
	for range sessions {
		f.addSession()
	}
	var mu sync.Mutex
	seen := map[pulse.SessionID]bool{}
	errs := together(takers, func(i int) error {
		for {
			s, _, err := f.Take(f.ctx, label(i), lease)
			if is(err, pulse.ErrNone) {
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			if seen[s.ID] {
				f.t.Errorf("session %s taken twice", s.ID)
			}
			seen[s.ID] = true
			mu.Unlock()
		}
	})
	noErrors(f.t, errs)
	equal(f.t, len(seen), sessions, "sessions taken")
}

// fences tries every write of a daemon whose lease has ended, before and
// after the task went to another one.
func fences(f *fixture) {
	s, _, old := f.started()
	turn := pulse.Turn{ID: pulse.TurnID(f.id()), Role: pulse.TurnAssistant, Status: pulse.TurnStreaming}
	late := func(what string) {
		f.t.Helper()
		_, err := f.Heartbeat(f.ctx, old, lease)
		mustBe(f.t, err, pulse.ErrFenced, what+": heartbeat")
		mustBe(f.t, f.Running(f.ctx, old), pulse.ErrFenced, what+": running")
		mustBe(f.t, f.Append(f.ctx, old, pulse.StreamBatch{Turns: []pulse.Turn{turn}, Events: []pulse.Event{{Type: pulse.EventTurnStarted}}}), pulse.ErrFenced, what+": append")
		mustBe(f.t, f.Finish(f.ctx, old, pulse.TaskResult{FinalText: "late"}), pulse.ErrFenced, what+": finish")
		mustBe(f.t, f.Release(f.ctx, old), pulse.ErrFenced, what+": release")
	}
	f.clock.Advance(lease / 2)
	cancelled, err := f.Heartbeat(f.ctx, old, lease)
	mustBe(f.t, err, nil, "heartbeat in time")
	equal(f.t, cancelled, false, "cancelled")
	f.clock.Advance(lease)
	before := f.session(s.ID)
	late("lease over")
	n, dead, err := f.Reap(f.ctx)
	mustBe(f.t, err, nil, "reap")
	equal(f.t, n+dead*100, 1, "reaped")
	late("reaped")
	claim, fresh := f.claim()
	equal(f.t, claim.Task.Attempt, 2, "attempt")
	late("claimed by another")
	after := f.session(s.ID)
	equal(f.t, after.EventSeq, before.EventSeq, "events of late writes")
	turns, err := f.Turns(f.ctx, s.ID)
	mustBe(f.t, err, nil, "turns")
	equal(f.t, len(turns), 0, "turns of late writes")
	mustBe(f.t, f.Finish(f.ctx, fresh, pulse.TaskResult{FinalText: "in time"}), nil, "successor's finish")
	late("finished by another")
	_, task := f.task(s.ID)
	equal(f.t, task.Result.FinalText, "in time", "result")
	mustBe(f.t, f.Running(f.ctx, pulse.Fence{TaskID: "nonsense", Token: "x"}), pulse.ErrFenced, "a fence of nonsense")
}

func finishTwice(f *fixture) {
	s, _, fence := f.started()
	noErrors(f.t, together(6, func(i int) error { return f.Finish(f.ctx, fence, pulse.TaskResult{FinalText: label(i)}) }))
	_, first := f.task(s.ID)
	version := f.session(s.ID).Version
	mustBe(f.t, f.Finish(f.ctx, fence, pulse.TaskResult{FinalText: "again"}), nil, "again")
	f.clock.Advance(2 * lease)
	mustBe(f.t, f.Finish(f.ctx, fence, pulse.TaskResult{FinalText: "much later"}), nil, "after the lease")
	_, task := f.task(s.ID)
	equal(f.t, task.Result.FinalText, first.Result.FinalText, "the first result stands")
	equal(f.t, f.session(s.ID).Version, version, "repeats stir nothing")
	_, err := f.Heartbeat(f.ctx, fence, lease)
	mustBe(f.t, err, pulse.ErrFenced, "heartbeat of a finished task")
}

func finishStirs(f *fixture) {
	s, _, fence := f.started()
	wakes, stop := f.Wakes(pulse.TopicSessions)
	defer stop()
	f.clock.Advance(time.Second)
	mustBe(f.t, f.Finish(f.ctx, fence, pulse.TaskResult{}), nil, "finish")
	await(f.t, wakes, "a wake-up of the session")
	equal(f.t, f.session(s.ID).DueAt, f.clock.Now(), "due")
	err := f.Apply(f.ctx, pulse.Guard{SessionID: s.ID, Version: s.Version}, pulse.Change{Session: &s})
	mustBe(f.t, err, pulse.ErrStale, "a decision from before the result")
}

func cancelled(f *fixture) {
	s, it, fence := f.started()
	wakes, stop := f.Wakes(pulse.TopicTasks)
	defer stop()
	s.Status, s.DueAt = pulse.SessionAborted, time.Time{}
	it.Status = pulse.IterationFailed
	f.apply(pulse.Guard{SessionID: s.ID, Version: s.Version}, pulse.Change{Session: &s, Iterations: []pulse.Iteration{it}, Cancel: []pulse.TaskID{fence.TaskID}})
	await(f.t, wakes, "a wake-up of the daemon")
	for range 2 {
		cancelled, err := f.Heartbeat(f.ctx, fence, lease)
		mustBe(f.t, err, nil, "heartbeat")
		equal(f.t, cancelled, true, "cancelled")
	}
	_, err := f.Heartbeat(f.ctx, pulse.Fence{TaskID: fence.TaskID, Token: "another"}, lease)
	mustBe(f.t, err, pulse.ErrFenced, "heartbeat of somebody else")
	mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Sign: f.clock.Now()}), pulse.ErrFenced, "append")
	mustBe(f.t, f.Finish(f.ctx, fence, pulse.TaskResult{}), pulse.ErrFenced, "finish")
	mustBe(f.t, f.Release(f.ctx, fence), pulse.ErrFenced, "release")
	f.clock.Advance(2 * lease)
	n, dead, err := f.Reap(f.ctx)
	mustBe(f.t, err, nil, "reap")
	equal(f.t, n+dead, 0, "a cancelled task is not reaped")
	_, task := f.task(s.ID)
	equal(f.t, task.Status, pulse.TaskCancelled, "status")
	f.apply(pulse.Guard{}, pulse.Change{Cancel: []pulse.TaskID{fence.TaskID}}) // again: changes nothing

	other, _, done := f.started()
	mustBe(f.t, f.Finish(f.ctx, done, pulse.TaskResult{}), nil, "finish")
	f.apply(pulse.Guard{}, pulse.Change{Cancel: []pulse.TaskID{done.TaskID}})
	_, task = f.task(other.ID)
	equal(f.t, task.Status, pulse.TaskComplete, "a finished task stays finished")
}

func reaped(f *fixture) {
	s, _, _ := f.started()
	for attempt := 1; attempt <= 3; attempt++ {
		n, dead, err := f.Reap(f.ctx)
		mustBe(f.t, err, nil, "reap early")
		equal(f.t, n+dead, 0, "reaped while the lease holds")
		before := f.session(s.ID)
		f.clock.Advance(lease)
		n, dead, err = f.Reap(f.ctx)
		mustBe(f.t, err, nil, "reap")
		after := f.session(s.ID)
		equal(f.t, after.Version > before.Version, true, "version grew")
		equal(f.t, after.DueAt, f.clock.Now(), "due")
		it, task := f.task(s.ID)
		if attempt == 3 {
			equal(f.t, dead, 1, "dead")
			equal(f.t, n, 0, "requeued")
			equal(f.t, task.Status, pulse.TaskDead, "task")
			equal(f.t, task.EndedAt.IsZero(), false, "end")
			break
		}
		equal(f.t, n, 1, "requeued")
		equal(f.t, task.Status, pulse.TaskQueued, "task")
		equal(f.t, task.ClaimToken, "", "token")
		equal(f.t, it.Status, pulse.IterationDispatched, "iteration")
		_, fence := f.claim()
		mustBe(f.t, f.Running(f.ctx, fence), nil, "running")
	}
	_, err := f.Claim(f.ctx, "d1", []string{pulse.ProjectRoute(f.project.ID)}, lease)
	mustBe(f.t, err, pulse.ErrNone, "a dead task is not claimed")
	noErrors(f.t, together(4, func(int) error { _, _, err := f.Reap(f.ctx); return err }))
}

func released(f *fixture) {
	s, _, fence := f.started()
	turn := pulse.Turn{ID: pulse.TurnID(f.id()), Role: pulse.TurnAssistant, Status: pulse.TurnStreaming}
	delta := func(text string) pulse.StreamBatch {
		return pulse.StreamBatch{Turns: []pulse.Turn{turn}, Sign: f.clock.Now(), Phase: pulse.PhaseThinking, Deltas: []pulse.StreamDelta{{N: 1, TurnID: turn.ID, Type: pulse.EventMessageDelta, Text: text}}}
	}
	mustBe(f.t, f.Append(f.ctx, fence, delta("first life")), nil, "append")
	mustBe(f.t, f.Release(f.ctx, fence), nil, "release")
	it, task := f.task(s.ID)
	equal(f.t, task.Status, pulse.TaskQueued, "task")
	equal(f.t, task.Attempt, 0, "attempt")
	equal(f.t, task.Phase, pulse.PhasePreparing, "phase of a task that nobody runs")
	equal(f.t, it.Status, pulse.IterationDispatched, "iteration")
	mustBe(f.t, f.Release(f.ctx, fence), pulse.ErrFenced, "release again")
	claim, fresh := f.claim()
	equal(f.t, claim.Task.Attempt, 1, "attempt of the next claim")
	mustBe(f.t, f.Append(f.ctx, fresh, delta("second life")), nil, "append")
	deltas, err := f.Deltas(f.ctx, s.ID, pulse.DeltaPosition{}, 10)
	mustBe(f.t, err, nil, "deltas")
	equal(f.t, len(deltas), 2, "the numbers of two claims do not collide")
}

func failedRun(f *fixture) {
	s, _, fence := f.started()
	mustBe(f.t, f.Finish(f.ctx, fence, pulse.TaskResult{Error: "not logged in", Hint: "log in"}), nil, "finish")
	_, task := f.task(s.ID)
	equal(f.t, task.Status, pulse.TaskFailed, "status")
	equal(f.t, task.Result.Hint, "log in", "hint")
}

func enlisted(f *fixture) {
	other := f.addProject("zebra")
	routes, err := f.Enlist(f.ctx, pulse.Daemon{ID: "d9", Host: "here", Slots: 2, Agents: []string{"claude"}, SeenAt: f.clock.Now()})
	mustBe(f.t, err, nil, "enlist")
	equal(f.t, len(routes), 3, "routes")
	equal(f.t, routes[0], "daemon:d9", "own route")
	equal(f.t, routes[2], pulse.ProjectRoute(other.ID), "project's route")
	f.clock.Advance(time.Minute)
	_, err = f.Enlist(f.ctx, pulse.Daemon{ID: "d9", Host: "there", SeenAt: f.clock.Now()})
	mustBe(f.t, err, nil, "enlist again")
	daemons, err := f.Daemons(f.ctx)
	mustBe(f.t, err, nil, "daemons")
	equal(f.t, len(daemons), 1, "daemons")
	equal(f.t, daemons[0].Host, "there", "host")
	equal(f.t, daemons[0].SeenAt, f.clock.Now(), "seen")
	f.clock.Advance(time.Second)
	late := f.addProject("zulu")
	routes, err = f.Enlist(f.ctx, pulse.Daemon{ID: "d9", Host: "there", SeenAt: f.clock.Now()})
	mustBe(f.t, err, nil, "enlist a moment later")
	equal(f.t, routes[3], pulse.ProjectRoute(late.ID), "a project that came meanwhile")
	f.clock.Advance(5 * time.Second)
	_, err = f.Enlist(f.ctx, pulse.Daemon{ID: "d9", Host: "there", SeenAt: f.clock.Now()})
	mustBe(f.t, err, nil, "enlist in time")
	daemons, err = f.Daemons(f.ctx)
	mustBe(f.t, err, nil, "daemons")
	equal(f.t, daemons[0].SeenAt, f.clock.Now(), "seen again")
	_, err = f.Enlist(f.ctx, pulse.Daemon{})
	mustCode(f.t, err, pulse.CodeInvalid, "a daemon without a name")
}

func foreignTurn(f *fixture) {
	_, _, first := f.started()
	turn := pulse.Turn{ID: pulse.TurnID(f.id()), SessionID: "ignored", Role: pulse.TurnAssistant, Status: pulse.TurnStreaming}
	mustBe(f.t, f.Append(f.ctx, first, pulse.StreamBatch{Turns: []pulse.Turn{turn}}), nil, "append")
	_, _, second := f.started()
	err := f.Append(f.ctx, second, pulse.StreamBatch{Messages: []pulse.TurnMessage{{TurnID: turn.ID, Seq: 1, Text: "forged"}}})
	mustCode(f.t, err, pulse.CodeInvalid, "a block in another session's turn")
	turn.Status = pulse.TurnFailed
	err = f.Append(f.ctx, second, pulse.StreamBatch{Turns: []pulse.Turn{turn}})
	mustCode(f.t, err, pulse.CodeInvalid, "another session's turn")
	got, err := f.Turn(f.ctx, turn.ID)
	mustBe(f.t, err, nil, "read turn")
	equal(f.t, got.Status, pulse.TurnStreaming, "status")
	equal(f.t, got.Text, "", "text")
}

func nothingDue(f *fixture) {
	_, next, err := f.Take(f.ctx, "x", lease)
	mustBe(f.t, err, pulse.ErrNone, "take from nothing")
	equal(f.t, next.IsZero(), true, "next")
	s := f.newSession()
	s.DueAt = f.clock.Now().Add(time.Hour)
	f.apply(pulse.Guard{}, pulse.Change{NewSession: &s})
	_, next, err = f.Take(f.ctx, "x", lease)
	mustBe(f.t, err, pulse.ErrNone, "take too early")
	equal(f.t, next, s.DueAt, "next")
	f.clock.Advance(time.Hour)
	_, _, err = f.Take(f.ctx, "x", lease)
	mustBe(f.t, err, nil, "take in time")
}

func await(t testing.TB, wakes <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-wakes:
	case <-time.After(10 * time.Second):
		t.Fatalf("no wake-up: %s", what)
	}
}
