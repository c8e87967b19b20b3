package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pulseloop/api/wire"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/internal/modeltest"
	"pulseloop/pulse"
)

// realAgent is an agent CLI as its maker publishes it, with a scripted model behind it.
type realAgent struct {
	name  string
	serve func(...modeltest.Script) *modeltest.Server
	env   func(testing.TB, *modeltest.Server) []string
	write func(r modeltest.Request, file, content string) modeltest.Step // by a tool of the CLI
	shell func(command string) modeltest.Step
	costs bool   // reports what a run cost
	walls string // the sandbox; empty: none
}

func realAgents() []realAgent {
	return []realAgent{
		{
			name: "claude", serve: modeltest.Anthropic, env: modeltest.ClaudeEnv, costs: true,
			write: func(r modeltest.Request, file, content string) modeltest.Step {
				return modeltest.Tool("Write", map[string]any{"file_path": filepath.Join(claudeDir(r), file), "content": content})
			},
			shell: func(command string) modeltest.Step {
				return modeltest.Tool("Bash", map[string]any{"command": command, "description": "Work"})
			},
		}, {
			name: "codex", serve: modeltest.Responses, env: modeltest.CodexEnv,
			write: func(_ modeltest.Request, file, content string) modeltest.Step {
				return modeltest.Tool("exec_command", map[string]any{"cmd": fmt.Sprintf("printf %%s '%s' > %s", content, file)})
			},
			shell: func(command string) modeltest.Step {
				return modeltest.Tool("exec_command", map[string]any{"cmd": command})
			},
		},
	}
}

// behindWalls gives each agent in each sandbox.
func behindWalls(all []realAgent) []realAgent {
	var out []realAgent
	for _, a := range all {
		for _, level := range []string{"none", "landlock", "bubblewrap"} {
			a.walls = level
			out = append(out, a)
		}
	}
	return out
}

// claudeDir reads the working directory from what the CLI tells the model of its surroundings.
func claudeDir(r modeltest.Request) string {
	for line := range strings.SplitSeq(string(r.Body), `\n`) {
		if _, dir, ok := strings.Cut(line, "Primary working directory: "); ok {
			return strings.TrimSpace(dir)
		}
	}
	return "/nowhere"
}

// iterations makes one script for each iteration's conversation, told apart by what the prompt says.
func iterations(replies ...func(modeltest.Request) []modeltest.Step) []modeltest.Script {
	var out []modeltest.Script
	for i, reply := range replies {
		out = append(out, modeltest.Script{Name: fmt.Sprintf("iteration %d", i+1), Prompt: fmt.Sprintf("This is iteration %d of at most", i+1), Reply: reply})
	}
	return out
}

func say(text string) []modeltest.Step { return []modeltest.Step{modeltest.Say(text)} }

// begin starts the program with the real CLI, whose model follows the scripts, and pairs Ann.
func (a realAgent) begin(t *testing.T, scripts []modeltest.Script) (*e2etest.Pulse, *e2etest.Person, *e2etest.Repository, *modeltest.Server) {
	t.Helper()
	path := modeltest.CLI(t, a.name)
	model := a.serve(scripts...)
	t.Cleanup(func() {
		model.Close()
		for _, v := range model.Violations() {
			t.Errorf("model: %s", v)
		}
	})
	tg := telegramtest.Start(t, telegramtest.Options{})
	repo := e2etest.Repo(t)
	// The program passes on what the CLI needs of its own environment, and nothing else; HOME stays the test's.
	var env []string
	for _, kv := range a.env(t, model) {
		if name, _, _ := strings.Cut(kv, "="); !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG"}, name) && !strings.HasPrefix(name, "GIT_") {
			env = append(env, kv)
		}
	}
	if a.walls != "" {
		env = append(env, "PULSE_SANDBOX="+a.walls)
	}
	p := e2etest.Start(t, e2etest.Options{Telegram: tg, Agent: a.name, Projects: one(repo), Env: env,
		Config: fmt.Sprintf("agents: {%s: {path: %q}}\n", a.name, path)})
	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(p.PairCode())
	return p, ann, repo, model
}

// usage checks the tokens of an iteration that took so many calls of the model.
func (a realAgent) usage(t *testing.T, it wire.Iteration, calls int64) {
	t.Helper()
	u := modeltest.DefaultUsage()
	want := wire.Usage{InputTokens: calls * int64(u.Input), OutputTokens: calls * int64(u.Output), CacheReadTokens: calls * int64(u.CacheRead)}
	if a.costs {
		want.CacheWriteTokens = calls * int64(u.CacheWrite)
		if it.Usage.CostMicros <= 0 {
			t.Errorf("iteration %d cost nothing", it.IterationNumber)
		}
	}
	got := it.Usage
	got.CostMicros = 0
	if a.name == "codex" {
		got.CacheWriteTokens = 0 // not every version reports them
	}
	if got != want {
		t.Errorf("usage of iteration %d is %+v, want %+v", it.IterationNumber, got, want)
	}
}

// TestRealAgentCommitsAndGoesOn: the agent commits by itself and wants another iteration, in which it leaves its work
// uncommitted and is done.
func TestRealAgentCommitsAndGoesOn(t *testing.T) {
	t.Parallel()
	for _, a := range behindWalls(realAgents()) {
		t.Run(a.name+" "+a.walls, func(t *testing.T) {
			t.Parallel()
			needsSandbox(t, a.walls)
			p, ann, repo, _ := a.begin(t, iterations(func(r modeltest.Request) []modeltest.Step {
				switch r.Rounds() {
				case 0:
					return []modeltest.Step{modeltest.Say("I add the greeting."), a.write(r, "hello.txt", "Hello")}
				case 1:
					return []modeltest.Step{a.shell("git add hello.txt && git commit -q -m 'feat: add a greeting' && git status --short")}
				}
				return say("The greeting is there and committed. The farewell is missing.\n\n<signal>CONTINUE</signal>")
			}, func(r modeltest.Request) []modeltest.Step {
				if r.Rounds() == 0 {
					return []modeltest.Step{a.write(r, "bye.txt", "Goodbye")}
				}
				return say("Greeting and farewell are there.\n\n<signal>COMPLETE</signal>")
			}))
			before := repo.Snapshot()
			ann.Say("add a greeting and a farewell")
			ann.Hears("📍 [my-app] Iteration 1/10: The greeting is there and committed")
			ann.Hears("✅ [my-app] Session complete (2 iterations, 2 commits)", "Tokens: ", "Sandbox: "+a.walls)

			d := p.AwaitSession(string(p.Only().ID), pulse.SessionComplete)
			if d.Session.Agent != a.name || len(d.Iterations) != 2 {
				t.Fatalf("agent %q, %d iterations", d.Session.Agent, len(d.Iterations))
			}
			a.usage(t, d.Iterations[0], 3)
			a.usage(t, d.Iterations[1], 2)
			if got := d.Session.TotalTokensUsed; got == 0 {
				t.Error("the session used no tokens")
			}
			if costs := d.Session.TotalCostMicros > 0; costs != a.costs {
				t.Errorf("the session cost %d", d.Session.TotalCostMicros)
			}
			branch := d.Session.BranchName
			subjects := repo.Subjects(branch)
			if len(subjects) != 2 || subjects[0] != "feat: add a greeting" || !strings.Contains(subjects[1], "add a greeting and a farewell") {
				t.Errorf("commits: %q", subjects)
			}
			if got := repo.File(branch, "hello.txt") + " " + repo.File(branch, "bye.txt"); got != "Hello Goodbye" {
				t.Errorf("the files hold %q", got)
			}
			if got := repo.Git("diff", "--name-only", "main", branch); got != "bye.txt\nhello.txt" {
				t.Errorf("the branch changes %q", got)
			}
			if repo.Snapshot() != before {
				t.Error("the person's repository was changed")
			}
			checkTurns(t, p, d)
		})
	}
}

// checkTurns wants what the CLI did on record: words, and the tools with their ends.
func checkTurns(t *testing.T, p *e2etest.Pulse, d wire.SessionDetail) {
	t.Helper()
	turns, err := p.Client().Turns(e2etest.Context(t), string(d.Session.ID))
	if err != nil {
		t.Fatal(err)
	}
	tools, words := 0, ""
	for _, turn := range turns {
		for _, m := range turn.Messages {
			words += m.Text + "\n"
		}
		tools += len(turn.Tools)
	}
	if tools != 3 || !strings.Contains(words, "Greeting and farewell are there.") {
		t.Errorf("%d tools on record, and these words: %s", tools, words)
	}
	if n := p.Count("SELECT count(*) FROM turn_tools WHERE status = 'completed'"); n != 3 {
		t.Errorf("%d tools ended well, want 3", n)
	}
}

// TestRealAgentAsks: the agent is blocked, the answer comes from the chat, and it goes on with it.
func TestRealAgentAsks(t *testing.T) {
	t.Parallel()
	for _, a := range realAgents() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			p, ann, repo, _ := a.begin(t, iterations(func(modeltest.Request) []modeltest.Step {
				return say("Nothing says where to listen.\n\n<signal>BLOCKED: Which port should it listen on?</signal>")
			}, func(r modeltest.Request) []modeltest.Step {
				_, answer, found := strings.Cut(r.Prompt(), "Answer to your question: ")
				answer, _, _ = strings.Cut(answer, "\n")
				if !found {
					return say("<signal>BLOCKED: nobody told me</signal>")
				}
				if r.Rounds() == 0 {
					return []modeltest.Step{a.write(r, "port.txt", answer)}
				}
				return say("It listens on port " + answer + ".\n\n<signal>COMPLETE</signal>")
			}))
			ann.Say("make it listen")
			blocked := ann.Hears("⏸️ [my-app] Blocked: Which port should it listen on?")
			ann.Reply(blocked, "8080")
			ann.Hears("✅ [my-app] Session complete (2 iterations, 1 commit)", "It listens on port 8080.")
			if got := repo.File(p.Only().BranchName, "port.txt"); got != "8080" {
				t.Errorf("port.txt holds %q", got)
			}
		})
	}
}

// TestRealAgentDoesNotSeeSecrets: what the program knows and its agent must not is not in the agent's environment, and the
// agent's own key, when it shows it, is not passed on.
func TestRealAgentDoesNotSeeSecrets(t *testing.T) {
	t.Parallel()
	for _, a := range realAgents() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			p, ann, _, model := a.begin(t, iterations(func(r modeltest.Request) []modeltest.Step {
				if r.Rounds() == 0 {
					return []modeltest.Step{a.shell("env")}
				}
				return say("My key is " + modeltest.StubKey + ".\n\n<signal>COMPLETE</signal>")
			}))
			ann.Say("show your environment")
			ann.Hears("✅ [my-app] Session complete", "My key is")
			for _, m := range ann.Chat.FromBot() {
				if strings.Contains(m.Text, modeltest.StubKey) {
					t.Errorf("the key went to the chat: %q", m.Text)
				}
			}
			seen := ""
			for _, r := range model.Requests() {
				seen += string(r.Body)
			}
			if !strings.Contains(seen, "PULSE_SESSION_ID=") {
				t.Error("the agent's environment was not shown, so that this test says nothing")
			}
			for _, column := range []string{"turn_tools WHERE output", "turn_messages WHERE text", "pulse_iterations WHERE output_full"} {
				if n := p.Count("SELECT count(*) FROM " + column + " LIKE '%" + modeltest.StubKey + "%'"); n != 0 {
					t.Errorf("the key is stored: %s", column)
				}
			}
			for what, value := range map[string]string{"the bot's token": telegramtest.DefaultToken, "the API's token": p.Token(), "a setting": "PULSE_TELEGRAM"} {
				if strings.Contains(seen, value) {
					t.Errorf("the agent's environment holds %s", what)
				}
			}
		})
	}
}

// TestAnyProgramAsAgent drives a program that takes a prompt on standard input and answers with text.
func TestAnyProgramAsAgent(t *testing.T) {
	t.Parallel()
	tg := telegramtest.Start(t, telegramtest.Options{})
	repo := e2etest.Repo(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "my agent")
	if err := os.WriteFile(program, []byte(`#!/bin/sh
prompt=$(cat)
echo "$1" >> mode.txt
case "$prompt" in
*"Answer to your question: blue"*) echo blue > colour.txt; echo "Painted it blue."; echo "<signal>COMPLETE</signal>";;
*) echo "Which colour?"; echo "<signal>BLOCKED: Which colour?</signal>";;
esac
`), 0o755); err != nil {
		t.Fatal(err)
	}
	p := e2etest.Start(t, e2etest.Options{Telegram: tg, Projects: one(repo), Agent: "-",
		Env: []string{"PULSE_COMMAND='" + program + "' --quiet", "PATH=" + onlyGit(t)}})
	if !strings.Contains(p.Output(), "Agent: command") {
		t.Errorf("the program is not the agent by itself: %s", p.Output())
	}
	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(p.PairCode())
	ann.Say("paint it")
	ann.Reply(ann.Hears("⏸️ [my-app] Blocked: Which colour?"), "blue")
	ann.Hears("✅ [my-app] Session complete (2 iterations, 2 commits)", "Painted it blue.")
	branch := p.Only().BranchName
	if got := repo.File(branch, "colour.txt") + " " + repo.File(branch, "mode.txt"); got != "blue --quiet\n--quiet" {
		t.Errorf("the branch holds %q", got)
	}
}

// onlyGit is a PATH without any agent CLI that this machine may have.
func onlyGit(t *testing.T) string {
	t.Helper()
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		found := false
		for _, name := range []string{"claude", "codex"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				found = true
			}
		}
		if !found {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}
