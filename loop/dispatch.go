package loop

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pulseloop/pulse"
)

// maxDispatches is how often one iteration is sent out: once, and once more
// after a time-out.
const maxDispatches = 2

// dispatch builds the prompt and writes iteration and task in one change.
func (r *Runner) dispatch(ctx context.Context, s pulse.Session, prev *pulse.Iteration, now time.Time) error {
	number, attempt := s.CurrentIteration+1, 1
	if prev != nil && prev.Status == pulse.IterationTimeout && prev.Attempt < maxDispatches {
		number, attempt = prev.Number, prev.Attempt+1
	}
	if number > s.MaxIterations {
		c := pulse.Change{Session: &s}
		if err := r.openLimit(&s, &c, prev, now); err != nil {
			return err
		}
		return r.apply(ctx, s, c)
	}
	project, err := r.store.Project(ctx, s.ProjectID)
	if err != nil {
		return fmt.Errorf("read the project: %w", err)
	}
	prepared, err := r.prompts.Prepare(ctx, withNumber(s, number), project, prev)
	if err != nil {
		return fmt.Errorf("prepare the prompt: %w", err)
	}
	c, err := r.dispatched(s, project, prepared, number, attempt, now)
	if err != nil {
		return err
	}
	return r.apply(ctx, s, c)
}

func withNumber(s pulse.Session, n int) pulse.Session {
	s.CurrentIteration = n
	return s
}

// dispatched is the change of sending an iteration out.
func (r *Runner) dispatched(s pulse.Session, p pulse.Project, prep Prepared, number, attempt int, now time.Time) (pulse.Change, error) {
	c := pulse.Change{Session: &s, Slice: &prep.Slice}
	if prep.Slice.ID == "" {
		c.Slice = nil
	}
	if s.StartedAt.IsZero() {
		s.StartedAt = now
	}
	if err := enter(&s, &c, pulse.SessionRunning, "", now); err != nil {
		return c, err
	}
	parent := s.LastTurnID
	if n := len(s.Inputs); n > 0 {
		parent = s.Inputs[n-1].TurnID
	}
	if len(s.Inputs) > 0 {
		// Later prompts must still know what the person decided.
		s.ProgressLog = append(s.ProgressLog, pulse.ProgressEntry{Iteration: number, Summary: heard(s.Inputs), Said: s.Inputs, At: now})
	}
	s.Inputs, s.CurrentIteration, s.DueAt = nil, number, now.Add(r.cfg.SilenceLimit)
	task := pulse.Task{
		ID: pulse.TaskID(pulse.NewUUID(now)), Kind: pulse.TaskIterate, Route: pulse.ProjectRoute(p.ID),
		Status: pulse.TaskQueued, Source: "pulse", SessionID: s.ID, Content: prep.Prompt, MaxAttempts: r.cfg.MaxAttempts,
		MediaContext: pulse.MediaContext{PulseSessionID: s.ID, IterationNumber: number, ProjectID: p.ID,
			BranchName: s.BranchName, SliceID: prep.Slice.ID},
		Spec: pulse.TaskSpec{Role: s.Role, Agent: s.Agent, RepoPath: p.Path, ProjectName: p.Name,
			Branch: s.BranchName, BaseBranch: s.BaseBranch, Since: s.HeadCommit, ParentTurn: parent,
			Subject: subject(s, number), Goal: goalOf(s), SilenceLimit: r.cfg.SilenceLimit,
			ToolSilenceLimit: r.cfg.ToolSilenceLimit},
		CreatedAt: now,
	}
	if s.Daemon != "" {
		task.Route = pulse.DaemonRoute(s.Daemon)
	}
	it := pulse.Iteration{
		ID: pulse.IterationID(pulse.NewUUID(now)), SessionID: s.ID, Number: number, Attempt: attempt, Run: s.Run,
		TaskID: task.ID, TaskContent: prep.Prompt, Status: pulse.IterationDispatched, Anchor: prep.Anchor,
		ContextTokens: prep.ContextTokens, SliceID: prep.Slice.ID, CreatedAt: now,
	}
	task.IterationID = it.ID
	c.Iterations, c.Tasks = []pulse.Iteration{it}, []pulse.Task{task}
	c.Events = append(c.Events, event(s.ID, pulse.EventIterationStarted, now, map[string]any{
		"iteration": number, "max": s.MaxIterations, "iterationId": string(it.ID), "taskId": string(task.ID),
		"attempt": attempt, "anchorStrategy": string(prep.Anchor.Strategy)}))
	return c, nil
}

// heard is what a person said, in one line for people.
func heard(in []pulse.Input) string {
	words := make([]string, len(in))
	for i, w := range in {
		words[i] = strings.Join(strings.Fields(w.Text), " ")
	}
	line := []rune(strings.Join(words, "; "))
	if len(line) > maxTaskGoal {
		line = append(line[:maxTaskGoal-1], '…')
	}
	return "you said: " + string(line)
}

// maxTaskGoal is how many characters of the goal a task carries, for those who
// watch it.
const maxTaskGoal = 200

func goalOf(s pulse.Session) string {
	if runes := []rune(s.Goal); len(runes) > maxTaskGoal {
		return string(runes[:maxTaskGoal])
	}
	return s.Goal
}

// subject is the Conventional Commit subject of the iteration's checkpoint.
func subject(s pulse.Session, number int) string {
	line, _, _ := strings.Cut(s.Goal, "\n")
	line = strings.TrimRight(strings.Join(strings.Fields(line), " "), ".")
	head := fmt.Sprintf("chore(pulse): iteration %d: ", number)
	runes := []rune(line)
	if room := 72 - len(head); len(runes) > room {
		line = strings.TrimRight(string(runes[:room-1]), " ") + "…"
	}
	return head + line
}
