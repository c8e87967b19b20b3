package codex

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pulseloop/agent/cli"
	"pulseloop/agent/cli/clitest"
	"pulseloop/internal/modeltest"
	"pulseloop/pulse"
)

// real drives the installed CLI against a scripted model.
func real(t *testing.T, cfg Config, ride clitest.Ride, scripts ...modeltest.Script) (clitest.Report, *modeltest.Server) {
	t.Helper()
	cfg.Path = modeltest.CLI(t, "codex")
	srv := modeltest.Responses(scripts...)
	t.Cleanup(srv.Close)
	ride.Backend = New(cfg)
	ride.Env = append(modeltest.CodexEnv(t, srv), ride.Env...)
	if ride.Dir == "" {
		ride.Dir = clitest.Repository(t, nil)
	}
	report := clitest.Drive(t, ride)
	for _, v := range srv.Violations() {
		t.Error(v)
	}
	return report, srv
}

func exec(command string) modeltest.Step {
	return modeltest.Tool("exec_command", map[string]string{"cmd": command})
}

// Both sandboxes: the agent writes and commits in its tree.
func TestRealWork(t *testing.T) {
	for _, sandbox := range []string{SandboxWorkspace, SandboxNone} {
		t.Run(sandbox, func(t *testing.T) {
			dir := clitest.Repository(t, nil)
			prompt := strings.Repeat("Context that no argv would hold. ", 8000) + "\nAdd a greeting."
			report, srv := real(t, Config{Sandbox: sandbox}, clitest.Ride{Prompt: prompt, Dir: dir}, modeltest.Turns(
				[]modeltest.Step{modeltest.Say("I begin."), exec("echo hello > hello.txt")},
				[]modeltest.Step{exec("git add hello.txt && git commit -q -m 'feat: add a greeting'")},
				[]modeltest.Step{modeltest.Say("It is there.\n<signal>COMPLETE</signal>")},
			)...)
			if report.Err != nil || report.Result.Failed || report.Result.FinalText != "It is there.\n<signal>COMPLETE</signal>" || !report.Exit.OK() {
				t.Fatalf("%v %+v %+v", report.Err, report.Result, report.Exit)
			}
			u := modeltest.DefaultUsage()
			if want := (pulse.Usage{InputTokens: int64(3 * u.Input), OutputTokens: int64(3 * u.Output), CacheReadTokens: int64(3 * u.CacheRead)}); report.Result.Usage != want {
				t.Errorf("usage %+v, want %+v", report.Result.Usage, want)
			}
			if tools := report.Tools(); len(tools) < 2 || slices.ContainsFunc(tools[:2], func(s string) bool { return s != "exec_command" }) {
				t.Errorf("tools %v", tools)
			}
			if log := clitest.Git(t, dir, "log", "--format=%s"); log != "feat: add a greeting\nstart" {
				t.Errorf("log %q", log)
			}
			if !strings.Contains(srv.Requests()[0].Prompt(), prompt) {
				t.Error("the prompt did not come whole")
			}
		})
	}
}

// A trusted checkout's own files may start servers; the tree is not trusted.
func TestRealTreeIsUntrusted(t *testing.T) {
	pwned := filepath.Join(t.TempDir(), "pwned")
	dir := clitest.Repository(t, map[string]string{
		".codex/config.toml": fmt.Sprintf("[mcp_servers.evil]\ncommand = \"touch\"\nargs = [%q]\n", pwned),
	})
	path := modeltest.CLI(t, "codex")
	srv := modeltest.Responses(modeltest.Turns([]modeltest.Step{modeltest.Say("Nothing.")})...)
	t.Cleanup(srv.Close)
	env := modeltest.CodexEnv(t, srv)
	for _, kv := range env {
		if home, ok := strings.CutPrefix(kv, "CODEX_HOME="); ok {
			trust := fmt.Sprintf("%s\n[projects.%q]\ntrust_level = \"trusted\"\n", modeltest.CodexConfig(srv), dir)
			if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(trust), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	report := clitest.Drive(t, clitest.Ride{Backend: New(Config{Path: path}), Prompt: "look", Dir: dir, Env: env})
	if report.Err != nil || report.Result.FinalText != "Nothing." {
		t.Fatalf("%v %+v", report.Err, report.Result)
	}
	if _, err := os.Stat(pwned); err == nil {
		t.Error("a server of the repository was started")
	}
}

func TestRealRefusedKey(t *testing.T) {
	report, _ := real(t, Config{}, clitest.Ride{Prompt: "look"}, modeltest.Script{
		Turns:  [][]modeltest.Step{{modeltest.Say("never")}},
		Faults: []modeltest.Fault{{Turn: -1, Status: 401}},
	})
	if report.Err != nil || !report.Result.Failed || report.Result.Hint != fixLogin || report.Exit.OK() {
		t.Fatalf("%v %+v %+v", report.Err, report.Result, report.Exit)
	}
}

func TestRealInterrupted(t *testing.T) {
	report, _ := real(t, Config{}, clitest.Ride{
		Prompt: "look",
		StopAt: func(e cli.Event) bool { return e.Kind == cli.EventToolStart },
	}, modeltest.Turns([]modeltest.Step{exec("sleep 60")}, []modeltest.Step{modeltest.Say("never")})...)
	if report.Err == nil && !report.Result.Failed {
		t.Errorf("an interrupted run counts: %+v", report.Result)
	}
}

// The key under the name most people have reaches the CLI's own provider.
func TestRealOpenAIKey(t *testing.T) {
	path := modeltest.CLI(t, "codex")
	srv := modeltest.Responses(modeltest.Turns([]modeltest.Step{modeltest.Say("Here.")})...)
	t.Cleanup(srv.Close)
	home := t.TempDir()
	t.Setenv("CODEX_HOME", home)
	t.Setenv("CODEX_API_KEY", "")
	t.Setenv("OPENAI_API_KEY", modeltest.StubKey)
	cfg := Config{Path: path, Model: modeltest.ResponsesModel, Args: []string{"-c", fmt.Sprintf("openai_base_url=%q", srv.URL+"/v1")}}
	env := slices.DeleteFunc(modeltest.CodexEnv(t, srv), func(kv string) bool { return strings.HasPrefix(kv, "OPENAI_API_KEY=") })
	report := clitest.Drive(t, clitest.Ride{Backend: New(cfg), Prompt: "look", Dir: clitest.Repository(t, nil), Env: append(env, "CODEX_HOME="+home)})
	if report.Err != nil || report.Result.FinalText != "Here." {
		t.Fatalf("%v %+v", report.Err, report.Result)
	}
	if key := srv.Requests()[0].Header.Get("Authorization"); key != "Bearer "+modeltest.StubKey {
		t.Errorf("authorization %q", key)
	}
}

func TestRealProbe(t *testing.T) {
	path := modeltest.CLI(t, "codex")
	for name, value := range map[string]string{"HOME": t.TempDir(), "CODEX_HOME": "", "OPENAI_API_KEY": "", "CODEX_API_KEY": ""} {
		t.Setenv(name, value)
	}
	if p := New(Config{Path: path}).Probe(t.Context()); !p.Installed || p.LoggedIn || p.Fix != fixLogin || !strings.HasPrefix(p.Version, "0.") {
		t.Errorf("without a key: %+v", p)
	}
	t.Setenv("OPENAI_API_KEY", modeltest.StubKey)
	if p := New(Config{Path: path}).Probe(t.Context()); !p.Ready() {
		t.Errorf("with a key: %+v", p)
	}
}
