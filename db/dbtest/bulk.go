package dbtest

import (
	"fmt"
	"slices"
	"sync"

	"pulseloop/db"
	"pulseloop/pulse"
)

func fenceOf(c pulse.Claim) pulse.Fence { return pulse.Fence{TaskID: c.Task.ID, Token: c.Token} }

// manyAtOnce claims several tasks in one call: the same ones in the same
// order as one after the other, each as good a claim as any.
func manyAtOnce(f *fixture) {
	var want []pulse.TaskID
	for i := range 6 {
		want = append(want, f.enqueue([]string{"a", "b"}[i%2], 0, 0))
		f.clock.Advance(1e6)
	}
	urgent := f.enqueue("b", 7, 0)
	f.enqueue("other", 9, 0)
	want = slices.Insert(want, 0, urgent)
	routes := []string{"b", "a", "b", broken}
	first, err := f.ClaimMany(f.ctx, "d", routes, 4, lease)
	mustBe(f.t, err, nil, "claim four")
	rest, err := f.ClaimMany(f.ctx, "d", routes, 50, lease)
	mustBe(f.t, err, nil, "claim the rest")
	equal(f.t, len(first), 4, "first")
	equal(f.t, len(rest), 3, "rest")
	tokens := map[pulse.ClaimToken]bool{}
	for i, c := range append(first, rest...) {
		equal(f.t, c.Task.ID, want[i], label(i))
		equal(f.t, c.Task.ClaimToken, c.Token, "token in the task")
		equal(f.t, c.Task.Status, pulse.TaskClaimed, "status")
		equal(f.t, c.Task.ClaimedBy, "d", "claimed by")
		equal(f.t, c.Task.Attempt, 1, "attempt")
		equal(f.t, c.Task.LeaseUntil.Equal(f.clock.Now().Add(lease)), true, "lease")
		tokens[c.Token] = true
		mustBe(f.t, f.Running(f.ctx, fenceOf(c)), nil, label(i))
	}
	equal(f.t, len(tokens), len(want), "tokens")
	mustBe(f.t, f.Finish(f.ctx, pulse.Fence{TaskID: first[0].Task.ID, Token: first[1].Token}, pulse.TaskResult{}), pulse.ErrFenced, "a neighbour's token")
	for _, n := range []int{-1, 0, 3} {
		_, err = f.ClaimMany(f.ctx, "d", routes, n, lease)
		mustBe(f.t, err, pulse.ErrNone, fmt.Sprintf("%d of none", n))
	}
	_, err = f.ClaimMany(f.ctx, "d", nil, 3, lease)
	mustBe(f.t, err, pulse.ErrNone, "no routes")
	f.clock.Advance(2 * lease)
	_, _, err = f.Reap(f.ctx)
	mustBe(f.t, err, nil, "reap")
	again, err := f.ClaimMany(f.ctx, "e", routes, 7, lease)
	mustBe(f.t, err, nil, "claim again")
	equal(f.t, len(again), 7, "again")
	equal(f.t, again[6].Task.Attempt, 2, "attempt")
}

// manyShareNothing has claimers of one and of many, and results one by one
// and together, all at the same time.
func manyShareNothing(f *fixture) {
	const tasks = 120
	for i := range tasks {
		f.enqueue([]string{"r", "s"}[i%2], i%3, 0)
	}
	var mu sync.Mutex
	seen := map[pulse.TaskID]bool{}
	noErrors(f.t, together(8, func(i int) error {
		for {
			claims, err := f.ClaimMany(f.ctx, pulse.DaemonID(label(i)), []string{"s", "r"}, 1+i%4*3, lease)
			if is(err, pulse.ErrNone) {
				return nil
			}
			if err != nil {
				return err
			}
			var all []db.Finished
			mu.Lock()
			for _, c := range claims {
				if seen[c.Task.ID] {
					f.t.Errorf("task %s was claimed twice", c.Task.ID)
				}
				seen[c.Task.ID] = true
				all = append(all, db.Finished{Fence: fenceOf(c), Result: pulse.TaskResult{FinalText: label(i)}})
			}
			mu.Unlock()
			if i%2 == 0 {
				noErrors(f.t, f.FinishMany(f.ctx, all))
				continue
			}
			noErrors(f.t, together(len(all), func(k int) error { return f.Finish(f.ctx, all[k].Fence, all[k].Result) }))
		}
	}))
	equal(f.t, len(seen), tasks, "tasks claimed")
	counts, err := f.Counts(f.ctx)
	mustBe(f.t, err, nil, "counts")
	equal(f.t, counts["tasks_complete"], tasks, "tasks complete")
}

// manyResults has results that count beside ones that do not.
func manyResults(f *fixture) {
	type one struct {
		session pulse.Session
		fence   pulse.Fence
	}
	var all []one
	for range 5 {
		s, _, fence := f.started()
		all = append(all, one{s, fence})
	}
	free := f.enqueue("free", 0, 0) // of no session
	c, err := f.Claim(f.ctx, "d", []string{"free"}, lease)
	mustBe(f.t, err, nil, "claim")
	equal(f.t, c.Task.ID, free, "task of no session")
	mustBe(f.t, f.Finish(f.ctx, all[1].fence, pulse.TaskResult{FinalText: "before"}), nil, "finish before")
	f.cancelQueued(all[2].session.ID)
	before := map[pulse.SessionID]int64{}
	for _, o := range all {
		before[o.session.ID] = f.session(o.session.ID).Version
	}
	wakes, stop := f.Wakes(pulse.TopicSessions)
	defer stop()
	stale := all[4].fence
	stale.Token = all[3].fence.Token
	many := []db.Finished{
		{Fence: all[0].fence, Result: pulse.TaskResult{FinalText: "done"}},
		{Fence: all[1].fence, Result: pulse.TaskResult{FinalText: "again"}},
		{Fence: all[2].fence, Result: pulse.TaskResult{FinalText: "cancelled"}},
		{Fence: stale, Result: pulse.TaskResult{FinalText: "stale"}},
		{Fence: pulse.Fence{TaskID: "nonsense", Token: "x"}},
		{Fence: all[3].fence, Result: pulse.TaskResult{Error: "it broke"}},
		{Fence: fenceOf(c), Result: pulse.TaskResult{FinalText: "free"}},
		{Fence: all[3].fence, Result: pulse.TaskResult{Error: "it broke"}},
	}
	for i, err := range f.FinishMany(f.ctx, many) {
		want := error(nil)
		if i >= 2 && i <= 4 {
			want = pulse.ErrFenced
		}
		mustBe(f.t, err, want, label(i))
	}
	await(f.t, wakes, "sessions")
	for i, want := range []struct {
		stirred int64
		status  pulse.TaskStatus
		text    string
	}{{1, pulse.TaskComplete, "done"}, {0, pulse.TaskComplete, "before"}, {0, pulse.TaskCancelled, ""}, {1, pulse.TaskFailed, ""}, {0, pulse.TaskRunning, ""}} {
		id := all[i].session.ID
		_, task := f.task(id)
		equal(f.t, f.session(id).Version-before[id], want.stirred, label(i)+": stirred")
		equal(f.t, task.Status, want.status, label(i)+": status")
		if task.Result != nil {
			equal(f.t, task.Result.FinalText, want.text, label(i)+": result")
		}
	}
	equal(f.t, len(f.FinishMany(f.ctx, nil)), 0, "nothing")
}
