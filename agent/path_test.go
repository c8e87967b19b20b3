package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pulseloop/agent/cli"
	"pulseloop/agent/cli/command"
	"pulseloop/agent/cli/scripted"
	"pulseloop/agent/worktree"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

// git runs git in a directory.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, exit, err := proc.Output(context.Background(), proc.Spec{Path: "git", Args: append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost"}, args...),
		Dir: dir, Env: proc.BaseEnv("GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")})
	if err != nil || !exit.OK() {
		t.Fatalf("git %v: %v %+v", args, err, exit)
	}
	return strings.TrimSpace(string(out))
}

// realWorld is a daemon with real worktrees of a real repository.
func realWorld(t *testing.T, backend cli.Backend) (w *world, repo string) {
	repo = filepath.Join(t.TempDir(), "app")
	if err := os.Mkdir(repo, 0o700); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(repo, "README.md"), []byte("# app\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "add", ".")
	git(t, repo, "commit", "-q", "-m", "chore: begin")
	w = newWorld(t, "")
	real, err := worktree.New(worktree.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	w.cfg.Trees = real
	w.cfg.Backends = map[string]cli.Backend{backend.Name(): backend}
	return w, repo
}

func (w *world) goal(repo, agentName string, iteration int, session pulse.SessionID, since string) (pulse.Task, pulse.StreamBatch) {
	w.t.Helper()
	return w.over(w.queue.Add(pulse.Task{SessionID: session, Content: "# Goal\n\nadd a health endpoint\n", MediaContext: pulse.MediaContext{IterationNumber: iteration},
		Spec: pulse.TaskSpec{Role: pulse.RolePulsing, Agent: agentName, RepoPath: repo, Branch: "pulse/add-health-12345678", Subject: "feat: add a health endpoint", Since: since}}))
}

const script = `
iterations:
  - - think: "First I look around."
    - tool: {name: read_file, input: {path: README.md}, output: "# app"}
    - write: {path: health.go, content: "package app\n"}
    - usage: {input: 100, output: 20, cost: 0.01}
    - say: "I added health.go."
    - signal: CONTINUE
  - - append: {path: health.go, content: "// done\n"}
    - say: "It is documented."
    - signal: COMPLETE
`

func TestScriptedAgentInARealWorktree(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w, repo := realWorld(t, scripted.New(scripted.Config{Self: self, Args: []string{}, Script: file, Env: []string{playScripted + "=1"}}))
	w.start()
	task, s := w.goal(repo, "scripted", 1, "", "")
	r := task.Result
	if task.Status != pulse.TaskComplete || !strings.Contains(r.FinalText, "<signal>CONTINUE</signal>") || r.Usage.InputTokens != 100 || r.Usage.CostMicros != 10_000 {
		t.Fatalf("task %+v, result %+v", task, r)
	}
	if r.Commits != 1 || !r.Published || !slices.Contains(r.FilesChanged, "health.go") {
		t.Errorf("result %+v", r)
	}
	branch := task.Spec.Branch
	if got := git(t, repo, "rev-parse", branch); got != r.Commit {
		t.Errorf("the branch is at %s, the result says %s", got, r.Commit)
	}
	message := git(t, repo, "log", "-1", "--format=%B", branch)
	if !strings.HasPrefix(message, "feat: add a health endpoint\n\n") || !strings.Contains(message, "Pulse-Session: "+string(task.SessionID)) || !strings.Contains(message, "Pulse-Iteration: 1") {
		t.Errorf("message %q", message)
	}
	if got := git(t, repo, "show", branch+":health.go"); got != "package app" {
		t.Errorf("committed %q", got)
	}
	if git(t, repo, "status", "--porcelain") != "" || git(t, repo, "rev-parse", "--abbrev-ref", "HEAD") != "main" {
		t.Error("the person's checkout has changed")
	}
	if len(s.Turns) != 1 || len(s.Thoughts) != 1 || len(s.Messages) == 0 || len(s.Tools) == 0 || s.Tools[0].Name != "read_file" || s.Tools[0].Status != pulse.ToolCompleted || !json.Valid([]byte(s.Tools[0].Input)) {
		t.Errorf("stream %+v", s)
	}
	if s.Thoughts[0].Seq >= s.Tools[0].Seq || s.Tools[0].Seq >= s.Messages[0].Seq {
		t.Errorf("out of order: %+v", s)
	}
	second, _ := w.goal(repo, "scripted", 2, task.SessionID, r.Commit)
	if second.Result.Commits != 1 || git(t, repo, "rev-parse", branch+"~1") != r.Commit || git(t, repo, "show", branch+":health.go") != "package app\n// done" {
		t.Errorf("second iteration %+v", second.Result)
	}
}

func TestCommandInARealWorktree(t *testing.T) {
	w, repo := realWorld(t, command.New(command.Config{Command: []string{"/bin/sh", "-c",
		`cat >prompt.txt; git add prompt.txt && git -c user.name=a -c user.email=a@b commit -q -m "docs: my own"; echo more >more.txt; echo "All done. <signal>COMPLETE</signal>"`}}))
	w.start()
	task, s := w.goal(repo, "command", 1, "", "")
	r := task.Result
	if task.Status != pulse.TaskComplete || r.Commits != 2 || !slices.Equal(r.FilesChanged, []string{"more.txt", "prompt.txt"}) || !strings.Contains(r.FinalText, "COMPLETE") {
		t.Fatalf("task %+v, result %+v", task, r)
	}
	if got := git(t, repo, "log", "--format=%s", "main.."+task.Spec.Branch); got != "feat: add a health endpoint\ndocs: my own" {
		t.Errorf("log %q", got)
	}
	if got := git(t, repo, "show", task.Spec.Branch+":prompt.txt"); got != "# Goal\n\nadd a health endpoint" {
		t.Errorf("prompt %q", got)
	}
	if len(s.Messages) != 1 || len(s.Deltas) == 0 {
		t.Errorf("stream %+v", s)
	}
}
