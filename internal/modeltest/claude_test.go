package modeltest

import (
	"slices"
	"strings"
	"testing"
)

func claude() program {
	return program{
		name: "claude", version: "2.1.328", serve: Anthropic, env: ClaudeEnv,
		args: []string{
			"-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages",
			"--permission-mode", "acceptEdits", "--allowedTools", "Bash",
			"--setting-sources", "user", "--strict-mcp-config",
		},
		shape: claudeShape,
	}
}

// claudeShape leaves out the estimates the CLI makes while a thought streams in: how many there are is a matter of timing.
func claudeShape(e obj) string {
	typ, sub := str(e, "type"), str(e, "subtype")
	switch typ {
	case "system":
		if sub == "thinking_tokens" {
			return ""
		}
		return typ + "/" + sub
	case "stream_event":
		return typ + "/" + str(e, "event", "type")
	case "assistant", "user":
		msg, _ := e["message"].(obj)
		blocks, _ := msg["content"].([]any)
		var kinds []string
		for _, b := range blocks {
			kinds = append(kinds, str(b, "type"))
		}
		return typ + "/" + strings.Join(kinds, "+")
	}
	return typ + "/" + sub
}

func (r recording) result(t *testing.T) obj {
	t.Helper()
	results := only(r.decoded(t), "result")
	if len(results) != 1 {
		t.Errorf("%d result events, want one", len(results))
		return obj{}
	}
	return results[0]
}

// claudeDone wants a good end with this text, and the tokens of that many model calls.
func claudeDone(text string, calls int) func(*testing.T, recording) {
	return func(t *testing.T, r recording) {
		res := r.result(t)
		if res["is_error"] != false || str(res, "subtype") != "success" || str(res, "result") != text {
			t.Errorf("result = %v", res)
		}
		u, n := DefaultUsage(), float64(calls)
		if num(res, "usage", "input_tokens") != n*float64(u.Input) || num(res, "usage", "output_tokens") != n*float64(u.Output) ||
			num(res, "usage", "cache_read_input_tokens") != n*float64(u.CacheRead) ||
			num(res, "usage", "cache_creation_input_tokens") != n*float64(u.CacheWrite) {
			t.Errorf("usage of %d calls = %v", calls, res["usage"])
		}
		if num(res, "total_cost_usd") <= 0 {
			t.Errorf("no cost: %v", res["total_cost_usd"])
		}
	}
}

// claudeFailed wants an end that says so and why.
func claudeFailed(status float64, text string) func(*testing.T, recording) {
	return func(t *testing.T, r recording) {
		res := r.result(t)
		if res["is_error"] != true || num(res, "api_error_status") != status || !strings.Contains(str(res, "result"), text) {
			t.Errorf("result = %v", res)
		}
	}
}

func claudeInterrupted(t *testing.T, r recording) {
	res := r.result(t)
	if res["is_error"] != true || str(res, "subtype") != "error_during_execution" || !strings.HasPrefix(str(res, "terminal_reason"), "aborted") {
		t.Errorf("result = %v", res)
	}
}

func claudeRefused(t *testing.T, r recording) {
	res := r.result(t)
	if denials, _ := res["permission_denials"].([]any); len(denials) != 1 || str(denials[0], "tool_name") != "Write" {
		t.Errorf("denials = %v", res["permission_denials"])
	}
}

// hello writes through a tool; the path is the repository's, which the CLI tells the model.
func hello(r Request) []Step {
	switch r.Rounds() {
	case 0:
		return []Step{Say("I add the greeting."), Tool("Write", obj{"file_path": workdir(r) + "/hello.txt", "content": strings.Repeat("Hello, and welcome.\n", 12)})}
	case 1:
		return []Step{Tool("Bash", obj{"command": "git add hello.txt && git commit -q -m 'feat: add a greeting' && git status --short", "description": "Commit"})}
	}
	return []Step{Say("The greeting is there and committed.\n\n<signal>COMPLETE</signal>")}
}

// workdir reads the working directory from what claude tells the model of its surroundings.
func workdir(r Request) string {
	for _, line := range strings.Split(string(r.Body), `\n`) {
		if _, dir, ok := strings.Cut(line, "Primary working directory: "); ok {
			return strings.TrimSpace(dir)
		}
	}
	return "/nowhere"
}

func TestClaude(t *testing.T) {
	quick := []string{"CLAUDE_CODE_MAX_RETRIES=1"}
	play(t, claude(), []scenario{
		{
			name: "commit", prompt: "Add hello.txt with a greeting and commit it.",
			scripts: []Script{{Name: "commit", Prompt: "Add hello.txt", Reply: hello}},
			files:   []string{"hello.txt"}, commits: 1,
			check: claudeDone("The greeting is there and committed.\n\n<signal>COMPLETE</signal>", 3),
		}, {
			name: "thinking", prompt: "Think it through.",
			scripts: Turns(
				[]Step{Think("Where to begin? The list of files will tell."), Tool("Bash", obj{"command": "ls -A", "description": "List"})},
				[]Step{Think("Only git so far."), Say("Nothing here yet; more to do.\n<signal>CONTINUE</signal>")},
			),
			check: claudeDone("Nothing here yet; more to do.\n<signal>CONTINUE</signal>", 2),
		}, {
			name: "tool-error", prompt: "Look at the missing file.",
			scripts: Turns(
				[]Step{Tool("Bash", obj{"command": "cat missing.txt; exit 3", "description": "Read"}), Tool("Bash", obj{"command": "echo second", "description": "Echo"})},
				[]Step{Say("missing.txt is not there. Where is it?\n<signal>BLOCKED</signal>")},
			),
			check: claudeDone("missing.txt is not there. Where is it?\n<signal>BLOCKED</signal>", 2),
		}, {
			name: "refused", prompt: "Write elsewhere.",
			scripts: Turns([]Step{Tool("Write", obj{"file_path": "/nowhere/else.txt", "content": "x"})}, []Step{Say("I may not.")}),
			check:   claudeRefused,
		}, {
			name: "api-error", prompt: "Go.", env: quick, exit: 1,
			scripts: []Script{{Faults: []Fault{{Status: 500}}}},
			check:   claudeFailed(500, "API Error: 500"),
		}, {
			name: "rate-limited", prompt: "Go.",
			scripts: []Script{{Faults: []Fault{{Status: 429, Times: 1}}, Turns: [][]Step{{Say("After all.")}}}},
			check:   claudeDone("After all.", 1),
		}, {
			name: "bad-key", prompt: "Go.", env: quick, exit: 1,
			scripts: []Script{{Faults: []Fault{{Status: 401}}}},
			check:   claudeFailed(401, ""),
		}, {
			name: "no-login", prompt: "Go.", env: []string{"ANTHROPIC_API_KEY="}, exit: 1,
			check: claudeFailed(0, "Not logged in"),
		}, {
			name: "cut", prompt: "Go.", loose: true,
			scripts: []Script{{Faults: []Fault{{Cut: true, After: 3, Times: 1}}, Turns: [][]Step{{Say("Whole at last.")}}}},
			check: func(t *testing.T, r recording) {
				if res := r.result(t); res["is_error"] != false || str(res, "result") != "Whole at last." {
					t.Errorf("result = %v", res)
				}
			},
		}, {
			name: "interrupted", prompt: "Take your time.", interrupt: `"type":"tool_use"`,
			scripts: Turns([]Step{Say("This takes a while."), Tool("Bash", obj{"command": "touch begun; timeout 20 tail -f /dev/null", "description": "Wait"})}),
			check:   claudeInterrupted,
		},
	})
}

func TestClaudeToolsAreWhatScriptsRelyOn(t *testing.T) {
	path := CLI(t, "claude")
	srv := start(t, Anthropic, Script{Turns: [][]Step{{Say("ok")}}})
	run(t, claude(), path, repository(t), ClaudeEnv(t, srv), scenario{prompt: "Go."})
	reqs := srv.Requests()
	if len(reqs) != 1 {
		t.Fatalf("%d requests, want one: the CLI asks in the background", len(reqs))
	}
	for _, tool := range []string{"Bash", "Edit", "Read", "Write"} {
		if !slices.Contains(reqs[0].Tools, tool) {
			t.Errorf("no tool %s in %q", tool, reqs[0].Tools)
		}
	}
}
