package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pulseloop/loop"
	"pulseloop/loop/looptest"
	"pulseloop/loop/recall"
	"pulseloop/pulse"
)

// world is a loop over a store in memory, with a clock of its own.
type world struct {
	*testing.T
	now     time.Time
	store   *looptest.Store
	actions *loop.Actions
	runner  *loop.Runner
	project pulse.Project
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return w.now }
	w.store = looptest.New(t, clock)
	cfg := loop.Config{Clock: clock, MaxIterations: 3, DefaultAgent: "scripted", Agents: []string{"claude", "scripted"}}
	w.actions = loop.NewActions(w.store, looptest.Words{}, cfg)
	w.runner = loop.NewRunner(loop.RunnerConfig{Config: cfg, Store: w.store, Reaper: w.store, Words: looptest.Words{},
		Prompts: recall.New(w.store, recall.Config{Clock: clock})})
	w.project = pulse.Project{ID: "p1", Name: "my-app", Path: "/src/my-app", BaseBranch: "main"}
	w.must(w.store.Apply(t.Context(), pulse.Guard{}, pulse.Change{Project: &w.project}))
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

var ann = loop.Actor{Operator: "op1", Name: "Ann", Origin: pulse.OriginTelegram}

func (w *world) start(change ...func(*loop.StartRequest)) pulse.SessionID {
	w.Helper()
	r := loop.StartRequest{Actor: ann, Project: w.project, Goal: "Add a health endpoint", ChatID: "42", ChatThreadID: "7"}
	for _, f := range change {
		f(&r)
	}
	s, err := w.actions.Start(w.Context(), r)
	w.must(err)
	return s.ID
}

// step lets the runner do all that is due.
func (w *world) step() {
	w.Helper()
	for range 20 {
		did, err := w.runner.RunOnce(w.Context())
		w.must(err)
		if !did {
			return
		}
	}
	w.Fatal("the runner does not come to rest")
}

// finish dispatches, lets a daemon work, and records the result.
func (w *world) finish(id pulse.SessionID, text string, commits int) {
	w.Helper()
	w.step()
	w.store.Begin(id)
	w.store.Finish(id, pulse.TaskResult{FinalText: text, Commits: commits, Commit: "c0ffee", FilesChanged: []string{"a.go"},
		TurnID: pulse.TurnID(pulse.NewUUID(w.now)), Daemon: "d1", Usage: pulse.Usage{InputTokens: 10, OutputTokens: 5, CostMicros: 7}})
	w.step()
}

func (w *world) session(id pulse.SessionID) pulse.Session {
	w.Helper()
	s, err := w.store.Session(w.Context(), id)
	w.must(err)
	return s
}

func (w *world) is(id pulse.SessionID, status pulse.SessionStatus) pulse.Session {
	w.Helper()
	s := w.session(id)
	if s.Status != status {
		w.Fatalf("session is %s (%s), want %s", s.Status, s.StatusReason, status)
	}
	return s
}

// told gives the texts of all notices.
func (w *world) told() []string {
	var out []string
	for _, n := range w.store.Notices() {
		out = append(out, n.Message.Plain())
	}
	return out
}

func (w *world) saw(want ...string) {
	w.Helper()
	got := w.told()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.Fatalf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestContinueThenComplete(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.is(id, pulse.SessionPending)
	w.finish(id, "Built the handler.\n<signal>CONTINUE</signal>", 1)
	w.is(id, pulse.SessionRunning)
	w.finish(id, "Tested.\n<signal>COMPLETE</signal>", 2)
	s := w.is(id, pulse.SessionComplete)
	w.saw("continue 1/3: Built the handler.", "complete (2, 3)")
	if s.TotalCommits != 3 || s.TotalTokens != 30 || s.TotalCostMicros != 14 || s.HeadCommit != "c0ffee" || s.LastSignal != pulse.SignalComplete || s.Daemon != "d1" {
		t.Errorf("totals: %+v", s)
	}
	if len(s.ProgressLog) != 2 || s.ProgressLog[0].Summary != "Built the handler." || !s.DueAt.IsZero() || s.EndedAt.IsZero() {
		t.Errorf("log: %+v", s.ProgressLog)
	}
	n := w.store.Notices()
	if n[0].Address != (pulse.Address{Platform: pulse.PlatformTelegram, Chat: "42", Thread: "7"}) || !n[0].Silent || n[1].Silent || n[1].Kind != pulse.NoticeFinal {
		t.Errorf("notices: %+v", n)
	}
}

func TestDispatchedTask(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	s, task := w.is(id, pulse.SessionRunning), w.store.Task(id)
	it := w.store.Iterations(id)[0]
	want := pulse.MediaContext{PulseSessionID: id, IterationNumber: 1, ProjectID: "p1", BranchName: s.BranchName, SliceID: it.SliceID}
	if task.Source != "pulse" || task.MediaContext != want || task.Route != "project:p1" || task.Status != pulse.TaskQueued || task.Spec.Agent != "scripted" {
		t.Errorf("task: %+v", task)
	}
	if task.Spec.Goal != "Add a health endpoint" {
		t.Errorf("the task's goal is %q", task.Spec.Goal)
	}
	if !strings.HasPrefix(s.BranchName, "pulse/add-a-health-endpoint-") {
		t.Errorf("branch %s", s.BranchName)
	}
	if it.Status != pulse.IterationDispatched || it.TaskContent != task.Content || it.TaskContent == "" || it.TaskID != task.ID {
		t.Errorf("iteration: %+v", it)
	}
	for _, part := range []string{"Add a health endpoint", "<signal>COMPLETE</signal>", "iteration 1 of at most 3", "<anchor_hint>"} {
		if !strings.Contains(task.Content, part) {
			t.Errorf("the prompt lacks %q", part)
		}
	}
	// The worktree is where the first iteration ran: the next goes there.
	w.store.Begin(id)
	w.store.Finish(id, pulse.TaskResult{FinalText: "<signal>CONTINUE</signal>", Daemon: "d1"})
	w.step()
	if got := w.store.Task(id); got.Route != "daemon:d1" || got.MediaContext.IterationNumber != 2 {
		t.Errorf("second task: %+v", got)
	}
}

func TestBlockedThenAnswered(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.finish(id, "<signal>BLOCKED: Which port?</signal>", 0)
	s := w.is(id, pulse.SessionBlocked)
	w.saw("blocked: Which port?")
	if s.StatusReason != "Which port?" || s.LastSignal != pulse.SignalBlocked || w.store.Notices()[0].GateID == "" {
		t.Errorf("blocked: %+v", s)
	}
	g, err := w.store.OpenGate(t.Context(), id)
	w.must(err)
	_, err = w.actions.Answer(t.Context(), ann, id, g.ID, "", "8080")
	w.must(err)
	w.is(id, pulse.SessionRunning)
	// Whoever comes second is told.
	if _, err := w.actions.Answer(t.Context(), ann, id, g.ID, "", "9090"); pulse.CodeOf(err) != pulse.CodeConflict {
		t.Errorf("second answer: %v", err)
	}
	w.step()
	if p := w.store.Task(id).Content; !strings.Contains(p, "Answer to your question: 8080") || strings.Contains(p, "9090") {
		t.Errorf("the prompt:\n%s", p)
	}
	if in := w.session(id).Inputs; len(in) != 0 {
		t.Errorf("inputs are carried twice: %v", in)
	}
	w.finish(id, "<signal>COMPLETE</signal>", 1)
	w.is(id, pulse.SessionComplete)
}

func TestPauseEndsAfterTheIteration(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	w.store.Begin(id)
	if s, err := w.actions.Pause(t.Context(), ann, id); err != nil || s.Status != pulse.SessionRunning || !s.PauseRequested {
		t.Fatalf("pause while busy: %+v %v", s, err)
	}
	w.store.Finish(id, pulse.TaskResult{FinalText: "Half.\n<signal>CONTINUE</signal>"})
	w.step()
	w.is(id, pulse.SessionPaused)
	w.saw("continue 1/3: Half.", "paused")
	_, err := w.actions.Resume(t.Context(), ann, id, "mind the tests")
	w.must(err)
	w.step()
	if p := w.store.Task(id).Content; !strings.Contains(p, "Guidance: mind the tests") {
		t.Errorf("the prompt:\n%s", p)
	}
}

func TestPauseBeforeTheFirstIteration(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	_, err := w.actions.Pause(t.Context(), ann, id)
	w.must(err)
	w.step()
	w.is(id, pulse.SessionPaused)
	if len(w.store.Iterations(id)) != 0 {
		t.Error("a paused session was dispatched")
	}
	_, err = w.actions.Resume(t.Context(), ann, id, "")
	w.must(err)
	w.step()
	w.is(id, pulse.SessionRunning)
}

func TestPauseTakenBack(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	_, err := w.actions.Pause(t.Context(), ann, id)
	w.must(err)
	_, err = w.actions.Resume(t.Context(), ann, id, "")
	w.must(err)
	w.finish2(id)
	w.is(id, pulse.SessionRunning)
}

func (w *world) finish2(id pulse.SessionID) {
	w.store.Begin(id)
	w.store.Finish(id, pulse.TaskResult{FinalText: "<signal>CONTINUE</signal>"})
	w.step()
}

func TestAbortCancelsTheTask(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	w.store.Begin(id)
	_, err := w.actions.Abort(t.Context(), ann, id)
	w.must(err)
	s := w.is(id, pulse.SessionAborted)
	if w.store.Task(id).Status != pulse.TaskCancelled || w.store.Iterations(id)[0].Status != pulse.IterationFailed || s.StatusReason != "aborted by Ann" {
		t.Errorf("task %s, iteration %+v", w.store.Task(id).Status, w.store.Iterations(id)[0])
	}
	if _, err := w.actions.Abort(t.Context(), ann, id); err != nil {
		t.Errorf("aborting twice: %v", err)
	}
	for name, again := range map[string]error{
		"resume": second(w.actions.Resume(t.Context(), ann, id, "")),
		"say":    errOf(w.actions.Say(t.Context(), ann, id, "hello")),
		"answer": second(w.actions.Answer(t.Context(), ann, id, "", "", "x")),
	} {
		if pulse.CodeOf(again) != pulse.CodeConflict {
			t.Errorf("%s after abort: %v", name, again)
		}
	}
	w.saw("aborted by Ann")
}

func second(_ pulse.Session, err error) error { return err }
func errOf(_ loop.Said, err error) error      { return err }

func TestIterationLimitAsks(t *testing.T) {
	for _, choice := range []string{loop.ChoiceMore, loop.ChoiceStop} {
		w := newWorld(t)
		id := w.start(func(r *loop.StartRequest) { r.MaxIterations = 1 })
		w.finish(id, "<signal>CONTINUE</signal>", 1)
		w.is(id, pulse.SessionBlocked)
		step, gate := w.store.Notices()[0], w.store.Notices()[1]
		if step.Kind.Priority() != gate.Kind.Priority() || !step.CreatedAt.Before(gate.CreatedAt) || !step.Silent || gate.Kind != pulse.NoticeGate {
			t.Errorf("the gate would be told before the iteration: %+v, %+v", step, gate)
		}
		g, err := w.store.OpenGate(t.Context(), id)
		w.must(err)
		if g.Kind != pulse.GateLimit || len(g.Options) != 2 {
			t.Fatalf("gate: %+v", g)
		}
		if _, err := w.actions.Answer(t.Context(), ann, id, g.ID, "perhaps", ""); pulse.CodeOf(err) != pulse.CodeInvalid {
			t.Errorf("an unknown choice: %v", err)
		}
		s, err := w.actions.Answer(t.Context(), ann, id, g.ID, choice, "")
		w.must(err)
		if choice == loop.ChoiceStop {
			w.is(id, pulse.SessionAborted)
			continue
		}
		if s.MaxIterations != 4 {
			t.Errorf("max is %d", s.MaxIterations)
		}
		w.finish(id, "<signal>COMPLETE</signal>", 0)
		w.is(id, pulse.SessionComplete)
	}
}

func TestSilenceTimesOutOnceThenAsks(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	w.store.Begin(id)
	w.now = w.now.Add(4 * time.Minute)
	w.store.Sign(id, pulse.PhaseThinking)
	w.now = w.now.Add(4 * time.Minute)
	w.step()
	if it := w.store.Iterations(id)[0]; it.Status != pulse.IterationRunning {
		t.Fatalf("a task that gave a sign 4 minutes ago is %s", it.Status)
	}
	first := w.store.Task(id).ID
	w.now = w.now.Add(time.Minute)
	w.step()
	its := w.store.Iterations(id)
	if len(its) != 2 || its[0].Status != pulse.IterationTimeout || its[1].Number != 1 || its[1].Attempt != 2 || its[1].TaskID == first {
		t.Fatalf("after the first silence: %+v", its)
	}
	w.store.Begin(id)
	w.now = w.now.Add(5 * time.Minute)
	w.step()
	w.is(id, pulse.SessionBlocked)
	if w.store.Task(id).Status != pulse.TaskCancelled {
		t.Error("the silent task was not cancelled")
	}
	s, err := w.actions.Resume(t.Context(), ann, id, "") // a plain resume means the first choice: again
	w.must(err)
	if s.Status != pulse.SessionRunning {
		t.Errorf("resumed: %s", s.Status)
	}
	w.finish(id, "<signal>COMPLETE</signal>", 0)
	w.is(id, pulse.SessionComplete)
}

func TestQueuedTaskDoesNotTimeOutButIsTold(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	w.now = w.now.Add(9 * time.Minute)
	w.step()
	w.saw()
	for range 3 {
		w.now = w.now.Add(time.Hour)
		w.step()
	}
	if it := w.store.Iterations(id)[0]; it.Status != pulse.IterationDispatched {
		t.Errorf("an unclaimed task timed out: %s", it.Status)
	}
	w.saw("unclaimed for 10m0s")
}

func TestWordsThatChooseNothingDecideNothing(t *testing.T) {
	for _, words := range []string{"no, please stop here", "Stop!", "2", "maybe", "don't"} {
		w := newWorld(t)
		id := w.start(func(r *loop.StartRequest) { r.MaxIterations = 1 })
		w.finish(id, "<signal>CONTINUE</signal>", 1)
		for how, err := range map[string]error{
			"say":    errOf(w.actions.Say(t.Context(), ann, id, words)),
			"answer": second(w.actions.Answer(t.Context(), ann, id, "", "", words)),
		} {
			var e *pulse.Error
			if !errors.As(err, &e) || e.Code != pulse.CodeInvalid || !strings.Contains(e.Hint, "more, stop") {
				t.Errorf("%s %q: %v", how, words, err)
			}
		}
		w.is(id, pulse.SessionBlocked)
		if _, err := w.actions.Say(t.Context(), ann, id, " STOP "); err != nil {
			t.Errorf("the choice itself: %v", err)
		}
		w.is(id, pulse.SessionAborted)
	}
}

func TestMoreIsAlwaysMore(t *testing.T) {
	w := newWorld(t)
	id := w.start(func(r *loop.StartRequest) { r.MaxIterations = loop.MaxIterationLimit })
	s := w.session(id)
	s.Status, s.CurrentIteration, s.MaxIterations = pulse.SessionRunning, loop.MaxIterationLimit+5, loop.MaxIterationLimit+5
	w.must(w.store.Apply(t.Context(), pulse.Guard{SessionID: id, Version: s.Version}, pulse.Change{Session: &s}))
	w.step()
	w.is(id, pulse.SessionBlocked)
	s, err := w.actions.Answer(t.Context(), ann, id, "", loop.ChoiceMore, "")
	w.must(err)
	if s.MaxIterations <= loop.MaxIterationLimit+5 {
		t.Errorf("max is %d", s.MaxIterations)
	}
}

func TestWhatWasSaidStaysKnown(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.finish(id, "<signal>BLOCKED: Which port?</signal>", 0)
	_, err := w.actions.Say(t.Context(), ann, id, "8080")
	w.must(err)
	w.finish(id, "<signal>CONTINUE</signal>", 0)
	w.step()
	if p := w.store.Task(id).Content; !strings.Contains(p, "The person said (answer): 8080") || strings.Contains(p, "Answer to your question") {
		t.Errorf("the third prompt:\n%s", p)
	}
	if n := strings.Count(w.store.Task(id).Content, "Add a health endpoint"); n != 1 {
		t.Errorf("the goal stands %d times in the prompt", n)
	}
}

func TestFailureIsToldAndResumable(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	w.store.Begin(id)
	w.store.Finish(id, pulse.TaskResult{Error: "not logged in", Hint: "run `claude`", Commits: 1, Commit: "abc"})
	w.step()
	s := w.is(id, pulse.SessionFailed)
	w.saw("failed: not logged in | run `claude`")
	if s.TotalCommits != 1 {
		t.Error("the commit of a failed run is not counted")
	}
	_, err := w.actions.Resume(t.Context(), ann, id, "")
	w.must(err)
	w.step()
	if p := w.store.Task(id).Content; !strings.Contains(p, "not logged in") {
		t.Error("the prompt does not tell what went wrong")
	}
}

func TestDeadTaskFails(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	w.store.Begin(id)
	w.store.Kill(id)
	w.step()
	if s := w.is(id, pulse.SessionFailed); !strings.Contains(s.StatusReason, "daemon was lost") {
		t.Errorf("reason %q", s.StatusReason)
	}
}

func TestFollowUpReopens(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.finish(id, "<signal>COMPLETE</signal>", 1)
	said, err := w.actions.Say(t.Context(), ann, id, "and document it")
	w.must(err)
	if said.As != pulse.InputFollowUp || said.Session.Run != 2 || said.Session.MaxIterations != 4 {
		t.Errorf("said: %+v", said)
	}
	w.step()
	if p := w.store.Task(id).Content; !strings.Contains(p, "now they want: and document it") {
		t.Errorf("the prompt:\n%s", p)
	}
	w.finish2(id)
	w.finish(id, "<signal>COMPLETE</signal>", 1)
	if w.is(id, pulse.SessionComplete).TotalCommits != 2 {
		t.Error("commits of both runs")
	}
}

func TestGuidanceWhileRunningIsNeverLost(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.step()
	w.store.Begin(id)
	said, err := w.actions.Say(t.Context(), ann, id, "use port 80")
	w.must(err)
	if said.As != pulse.InputGuidance {
		t.Errorf("as %s", said.As)
	}
	// The agent says it is done, but has not heard the person's words.
	w.store.Finish(id, pulse.TaskResult{FinalText: "<signal>COMPLETE</signal>"})
	w.step()
	w.is(id, pulse.SessionRunning)
	if p := w.store.Task(id).Content; !strings.Contains(p, "Guidance: use port 80") {
		t.Errorf("the prompt:\n%s", p)
	}
}

func TestOtherWriterBetween(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	w.store.BeforeApply(func() {
		if _, err := w.actions.Say(context.Background(), ann, id, "hurry"); err != nil {
			t.Error(err)
		}
	})
	w.step() // dispatches, finds its facts stale, and decides again
	if n := len(w.store.Iterations(id)); n != 1 {
		t.Fatalf("%d iterations", n)
	}
	if p := w.store.Task(id).Content; !strings.Contains(p, "hurry") {
		t.Error("the words said in between are not in the prompt")
	}
	w.store.BeforeApply(func() {
		if _, err := w.actions.Abort(context.Background(), ann, id); err != nil {
			t.Error(err)
		}
	})
	w.store.Begin(id)
	w.store.Finish(id, pulse.TaskResult{FinalText: "<signal>COMPLETE</signal>"})
	w.step()
	w.is(id, pulse.SessionAborted)
	w.saw("aborted by Ann")
}

func TestUpdateIsHandledOnce(t *testing.T) {
	w := newWorld(t)
	r := loop.StartRequest{Actor: ann, Project: w.project, Goal: "x1"}
	r.Inbound = "u1"
	_, err := w.actions.Start(t.Context(), r)
	w.must(err)
	if _, err := w.actions.Start(t.Context(), r); !errors.Is(err, pulse.ErrDone) {
		t.Errorf("the second handling: %v", err)
	}
}

func TestBadStarts(t *testing.T) {
	w := newWorld(t)
	cases := map[string]func(*loop.StartRequest){
		"empty goal":       func(r *loop.StartRequest) { r.Goal = " \u200b\n" },
		"unknown agent":    func(r *loop.StartRequest) { r.Agent = "nobody" },
		"huge goal":        func(r *loop.StartRequest) { r.Goal = strings.Repeat("x", loop.MaxGoalBytes+1) },
		"too many":         func(r *loop.StartRequest) { r.MaxIterations = 1001 },
		"negative":         func(r *loop.StartRequest) { r.MaxIterations = -1 },
		"option branch":    func(r *loop.StartRequest) { r.BranchName = "--upload-pack=x" },
		"dotted branch":    func(r *loop.StartRequest) { r.BranchName = "a/../b" },
		"lock branch":      func(r *loop.StartRequest) { r.BranchName = "a.lock" },
		"control branch":   func(r *loop.StartRequest) { r.BranchName = "a\nb" },
		"foreign anchor":   func(r *loop.StartRequest) { r.AnchorTurnID = "latest" },
		"strategy":         func(r *loop.StartRequest) { r.ContextStrategy = "all" },
		"strategy to come": func(r *loop.StartRequest) { r.ContextStrategy = pulse.ContextMCP },
		"origin":           func(r *loop.StartRequest) { r.Origin = "fax" },
	}
	for name, change := range cases {
		r := loop.StartRequest{Actor: ann, Project: w.project, Goal: "do it"}
		change(&r)
		var e *pulse.Error
		if _, err := w.actions.Start(t.Context(), r); !errors.As(err, &e) || e.Message == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ending is a store whose Runner is told to end as soon as it has taken a
// session.
type ending struct {
	loop.Store
	end context.CancelFunc
}

func (e ending) Take(ctx context.Context, token string, lease time.Duration) (pulse.Session, time.Time, error) {
	s, due, err := e.Store.Take(ctx, token, lease)
	e.end()
	return s, due, err
}

func (e ending) Apply(ctx context.Context, g pulse.Guard, c pulse.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.Store.Apply(ctx, g, c)
}

func TestAStepIsFinishedWhenTheRunnerEnds(t *testing.T) {
	w := newWorld(t)
	id := w.start()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	r := loop.NewRunner(loop.RunnerConfig{Config: loop.Config{Clock: func() time.Time { return w.now }}, Store: ending{w.store, end},
		Reaper: w.store, Words: looptest.Words{}, Prompts: recall.New(w.store, recall.Config{})})
	if did, err := r.RunOnce(ctx); !did || err != nil {
		t.Fatalf("did %t, %v", did, err)
	}
	s, err := w.store.Session(t.Context(), id)
	if err != nil || s.Status != pulse.SessionRunning || s.StepToken != "" {
		t.Errorf("the session is %s and held by %q (%v)", s.Status, s.StepToken, err)
	}
}
