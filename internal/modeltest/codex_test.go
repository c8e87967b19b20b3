package modeltest

import (
	"strings"
	"testing"
)

func codex() program {
	return program{
		name: "codex", version: "0.169.0", serve: Responses, env: CodexEnv,
		args: []string{"exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access"},
		shape: func(e obj) string {
			return strings.Trim(str(e, "type")+"/"+str(e, "item", "type")+"/"+str(e, "item", "status"), "/")
		},
	}
}

func command(cmd string) Step { return Tool("exec_command", obj{"cmd": cmd}) }

// codexDone wants a turn that completed, this text as the last thing said, and the tokens of that many model calls.
func codexDone(text string, calls int) func(*testing.T, recording) {
	return func(t *testing.T, r recording) {
		evs := r.decoded(t)
		said := ""
		for _, e := range only(evs, "item.completed") {
			if str(e, "item", "type") == "agent_message" {
				said = str(e, "item", "text")
			}
		}
		if said != text {
			t.Errorf("the agent's last words are %q, want %q", said, text)
		}
		done := only(evs, "turn.completed")
		if len(done) != 1 || len(only(evs, "turn.failed")) != 0 {
			t.Errorf("%d completed turns, want one and none failed", len(done))
			return
		}
		u, n := DefaultUsage(), float64(calls)
		if num(done[0], "usage", "input_tokens") != n*float64(u.Input+u.CacheRead) || num(done[0], "usage", "output_tokens") != n*float64(u.Output) ||
			num(done[0], "usage", "cached_input_tokens") != n*float64(u.CacheRead) || num(done[0], "usage", "reasoning_output_tokens") != n*float64(u.Reasoning) {
			t.Errorf("usage of %d calls = %v", calls, done[0]["usage"])
		}
	}
}

// codexFailed wants a failed turn that says why.
func codexFailed(text string) func(*testing.T, recording) {
	return func(t *testing.T, r recording) {
		failed := only(r.decoded(t), "turn.failed")
		if len(failed) != 1 || !strings.Contains(str(failed[0], "error", "message"), text) {
			t.Errorf("failures = %v, want one with %q", failed, text)
		}
	}
}

func codexInterrupted(t *testing.T, r recording) {
	evs := r.decoded(t)
	if n := len(only(evs, "turn.completed")) + len(only(evs, "turn.failed")); n != 0 {
		t.Errorf("%d ends of a turn that was interrupted", n)
	}
}

const patch = `*** Begin Patch
*** Add File: notes.md
+# Notes
*** End Patch
`

func TestCodex(t *testing.T) {
	play(t, codex(), []scenario{
		{
			name: "commit", prompt: "Add hello.txt with a greeting and commit it.",
			scripts: []Script{{Name: "commit", Prompt: "Add hello.txt", Turns: [][]Step{
				{Say("I add the greeting."), command("echo hello > hello.txt")},
				{command("git add hello.txt && git commit -q -m 'feat: add a greeting' && git status --short")},
				{Say("The greeting is there and committed.\n\n<signal>COMPLETE</signal>")},
			}}},
			files: []string{"hello.txt"}, commits: 1,
			check: codexDone("The greeting is there and committed.\n\n<signal>COMPLETE</signal>", 3),
		}, {
			name: "thinking", prompt: "Think it through.",
			scripts: Turns(
				[]Step{Think("**Looking around**\n\nWhere to begin? The list of files will tell."), command("ls -A")},
				[]Step{Think("**Deciding**\n\nOnly git so far."), Say("Nothing here yet; more to do.\n<signal>CONTINUE</signal>")},
			),
			check: codexDone("Nothing here yet; more to do.\n<signal>CONTINUE</signal>", 2),
		}, {
			name: "tool-error", prompt: "Look at the missing file.",
			scripts: Turns(
				[]Step{command("cat missing.txt; exit 3")},
				[]Step{Say("missing.txt is not there. Where is it?\n<signal>BLOCKED</signal>")},
			),
			check: codexDone("missing.txt is not there. Where is it?\n<signal>BLOCKED</signal>", 2),
		}, {
			name: "code-mode", prompt: "Add notes.md.", args: []string{"-m", "gpt-5.6-terra"},
			scripts: Turns(
				[]Step{Tool("exec", "text(await tools.apply_patch("+quote(patch)+")); text(await tools.exec_command({cmd: 'cat notes.md'}));")},
				[]Step{Say("Notes are begun.\n<signal>COMPLETE</signal>")},
			),
			files: []string{"notes.md"},
			check: codexDone("Notes are begun.\n<signal>COMPLETE</signal>", 2),
		}, {
			name: "api-error", prompt: "Go.", exit: 1,
			scripts: []Script{{Faults: []Fault{{Status: 500}}}},
			check:   codexFailed("high demand"),
		}, {
			name: "rate-limited", prompt: "Go.", exit: 1,
			scripts: []Script{{Faults: []Fault{{Status: 429}}}},
			check:   codexFailed("429 Too Many Requests"),
		}, {
			name: "bad-key", prompt: "Go.", exit: 1,
			scripts: []Script{{Faults: []Fault{{Status: 401}}}},
			check:   codexFailed("401 Unauthorized"),
		}, {
			name: "no-key", prompt: "Go.", env: []string{"OPENAI_API_KEY="}, exit: 1,
			check: codexFailed("OPENAI_API_KEY"),
		}, {
			name: "cut", prompt: "Go.",
			scripts: []Script{{Faults: []Fault{{Cut: true, After: 4, Times: 1}}, Turns: [][]Step{{Say("Whole at last.")}}}},
			check:   codexDone("Whole at last.", 1),
		}, {
			name: "interrupted", prompt: "Take your time.", interrupt: "item.started", exit: 1,
			scripts: Turns([]Step{Say("This takes a while."), Tool("exec_command", obj{"cmd": "touch begun; timeout 20 tail -f /dev/null", "yield_time_ms": 25000})}),
			check:   codexInterrupted,
		},
	})
}
