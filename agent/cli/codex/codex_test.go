package codex

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pulseloop/agent/cli"
	"pulseloop/agent/cli/clitest"
	"pulseloop/pulse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func completed(item string) string { return `{"type":"item.completed","item":{` + item + `}}` }

func dialect() clitest.Dialect {
	return clitest.Dialect{
		New:     func(path string, linger time.Duration) cli.Backend { return New(Config{Path: path, Linger: linger}) },
		Started: func() string { return `{"type":"thread.started","thread_id":"t"}` + "\n" + `{"type":"turn.started"}` },
		Text:    func(text string) string { return completed(`"id":"i","type":"agent_message","text":` + quote(text)) },
		Delta:   func(string) string { return "" },
		Thought: func(text string) string { return completed(`"id":"i","type":"reasoning","text":` + quote(text)) },
		ToolStart: func(id, name string) string {
			return fmt.Sprintf(`{"type":"item.started","item":{"id":%q,"type":"command_execution","command":%q,"aggregated_output":"","exit_code":null,"status":"in_progress"}}`, id, name)
		},
		ToolEnd: func(id, output string, failed bool) string {
			status, code := "completed", 0
			if failed {
				status, code = "failed", 3
			}
			return completed(fmt.Sprintf(`"id":%q,"type":"command_execution","command":"x","aggregated_output":%s,"exit_code":%d,"status":%q`, id, quote(output), code, status))
		},
		Done: func(final string) string {
			return completed(`"id":"z","type":"agent_message","text":`+quote(final)) + "\n" +
				`{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":60,"cache_write_input_tokens":10,"output_tokens":20,"reasoning_output_tokens":5}}`
		},
		Fail: func(message string) string {
			return `{"type":"error","message":` + quote(message) + `}` + "\n" + `{"type":"turn.failed","error":{"message":` + quote(message) + `}}`
		},
		Usage:      pulse.Usage{InputTokens: 30, OutputTokens: 20, CacheReadTokens: 60, CacheWriteTokens: 10},
		NeedsLogin: true,
	}
}

func TestConformance(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME"} {
		t.Setenv(name, "")
	}
	clitest.Run(t, dialect())
}

func decode(lines ...string) ([]cli.Event, *decoder) {
	var events []cli.Event
	d := &decoder{dir: "/tree", open: map[string]bool{}, emit: func(e cli.Event) { events = append(events, e) }}
	for _, l := range lines {
		d.line(cli.Line{Text: []byte(l)})
	}
	return events, d
}

func TestCommandArgs(t *testing.T) {
	home := t.TempDir()
	t.Setenv("CODEX_HOME", home)
	t.Setenv("CODEX_API_KEY", "")
	t.Setenv("OPENAI_API_KEY", "k")
	in := cli.Input{Dir: `/trees/a "b"`}
	c, err := New(Config{Path: "/bin/sh", Model: "m", Args: []string{"--x"}}).Command(in)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(c.Args, " ")
	for _, want := range []string{
		"exec --json", "-s workspace-write", `writable_roots=["/trees/a \"b\"/.git"]`, "network_access=false", "-m m", "--x -",
		`projects={ "/trees/a \"b\"" = { trust_level = "untrusted" } }`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if !slices.Contains(c.Env, "CODEX_API_KEY=k") {
		t.Errorf("exec gets no key it reads: %q", c.Env)
	}
	if err := os.WriteFile(filepath.Join(home, "auth.json"), []byte(`{"tokens":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, _ = New(Config{Path: "/bin/sh"}).Command(in); len(c.Env) != 0 {
		t.Errorf("a key overrides the login: %q", c.Env)
	}
	c, err = New(Config{Path: "/bin/sh", Sandbox: SandboxNone}).Command(in)
	if err != nil || strings.Contains(strings.Join(c.Args, " "), "writable_roots") {
		t.Errorf("%q %v", c.Args, err)
	}
	if _, err := New(Config{Path: "/bin/sh", Sandbox: "jail"}).Command(in); err == nil || !strings.Contains(err.Error(), "workspace-write") {
		t.Errorf("an unknown sandbox: %v", err)
	}
}

// A provider of the person's own brings its key by a variable that only its
// configuration names.
func TestProviderKey(t *testing.T) {
	home := t.TempDir()
	for name, value := range map[string]string{"CODEX_HOME": home, "OPENAI_API_KEY": "", "CODEX_API_KEY": "", "MY_KEY": "", "HOME": home} {
		t.Setenv(name, value)
	}
	b := New(Config{Path: clitest.StandIn(t)})
	if p := b.Probe(t.Context()); p.LoggedIn || p.Fix != fixLogin {
		t.Errorf("%+v", p)
	}
	config := "model_provider = \"mine\"\n[model_providers.mine]\n  env_key = \"MY_KEY\" # the key\n#env_key = \"NOT_THIS\"\n"
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := b.Probe(t.Context()); p.LoggedIn {
		t.Errorf("without its key: %+v", p)
	}
	t.Setenv("MY_KEY", "k")
	if p := b.Probe(t.Context()); !p.Ready() {
		t.Errorf("with its key: %+v", p)
	}
	c, err := b.Command(cli.Input{Dir: "/x"})
	if err != nil || !slices.Contains(c.Pass, "MY_KEY") || slices.Contains(c.Pass, "NOT_THIS") {
		t.Errorf("%q %v", c.Pass, err)
	}
}

func TestItems(t *testing.T) {
	events, _ := decode(
		completed(`"id":"1","type":"file_change","changes":[{"path":"/tree/a.go","kind":"add"},{"path":"b.go","kind":"update"}],"status":"completed"`),
		`{"type":"item.started","item":{"id":"2","type":"mcp_tool_call","server":"pulse","tool":"grep","arguments":{"pattern":"x y"},"status":"in_progress"}}`,
		completed(`"id":"2","type":"mcp_tool_call","server":"pulse","tool":"grep","arguments":{},"error":{"message":"no"},"status":"failed"`),
		completed(`"id":"3","type":"error","message":"Model metadata for x not found"`),
		`{"type":"item.updated","item":{"id":"4","type":"todo_list","items":[]}}`,
		completed(`"id":"","type":"command_execution"`))
	var got []string
	for _, e := range events {
		switch {
		case e.Tool == nil:
			got = append(got, string(e.Kind)+" "+e.Text)
		default:
			got = append(got, fmt.Sprintf("%s %s %q %v %q", e.Kind, e.Tool.Name, e.Tool.Summary, e.Tool.Failed, e.Tool.Output))
		}
	}
	want := []string{
		`tool_start apply_patch "a.go, b.go" false ""`, `tool_end apply_patch "a.go, b.go" false ""`,
		`tool_start pulse.grep "x y" false ""`, `tool_end pulse.grep "" true "no"`,
		`note Model metadata for x not found`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOutcomes(t *testing.T) {
	reconnect := `{"type":"error","message":"Reconnecting... 1/5 (unexpected status 500)"}`
	tests := map[string]struct {
		lines []string
		want  *cli.Result
	}{
		"cut off":              {lines: []string{`{"type":"turn.started"}`, completed(`"type":"agent_message","text":"half"`)}},
		"only a reconnect":     {lines: []string{reconnect}},
		"recovered":            {lines: []string{reconnect, completed(`"type":"agent_message","text":"done"`), `{"type":"turn.completed"}`}, want: &cli.Result{FinalText: "done"}},
		"failed":               {lines: []string{`{"type":"turn.failed","error":{"message":"unexpected status 401 Unauthorized"}}`}, want: &cli.Result{Failed: true, Error: "unexpected status 401 Unauthorized", Hint: fixLogin}},
		"failed without words": {lines: []string{`{"type":"turn.failed"}`}, want: &cli.Result{Failed: true, Error: "codex failed and gave no reason"}},
		"error and end":        {lines: []string{`{"type":"error","message":"{\"error\":{\"message\":\"bad request\"}}"}`}, want: &cli.Result{Failed: true, Error: "bad request"}},
		"more cached than all": {
			lines: []string{`{"type":"turn.completed","usage":{"input_tokens":5,"cached_input_tokens":9,"output_tokens":-1}}`},
			want:  &cli.Result{Usage: pulse.Usage{CacheReadTokens: 9}},
		},
	}
	for name, tt := range tests {
		_, d := decode(tt.lines...)
		if got := d.outcome(); (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
