package claude

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pulseloop/agent/cli"
	"pulseloop/agent/cli/clitest"
	"pulseloop/pulse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quote is a JSON string, except that escapes a test brings are kept as they are.
func quote(s string) string {
	if s == "DIRT" || s == "HERE" {
		return `"` + s + `"`
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func assistant(block string) string {
	return `{"type":"assistant","message":{"id":"m","model":"claude-x","content":[` + block + `],"usage":{"input_tokens":1,"output_tokens":1}},"parent_tool_use_id":null,"session_id":"s"}`
}

func dialect() clitest.Dialect {
	return clitest.Dialect{
		New:     func(path string, linger time.Duration) cli.Backend { return New(Config{Path: path, Linger: linger}) },
		Started: func() string { return `{"type":"system","subtype":"init","session_id":"s","model":"claude-x"}` },
		Text:    func(text string) string { return assistant(`{"type":"text","text":` + quote(text) + `}`) },
		Delta: func(text string) string {
			return `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":` + quote(text) + `}},"parent_tool_use_id":null}`
		},
		Thought: func(text string) string { return assistant(`{"type":"thinking","thinking":` + quote(text) + `}`) },
		ToolStart: func(id, name string) string {
			return assistant(fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":{"file_path":"/x"}}`, id, name))
		},
		ToolEnd: func(id, output string, failed bool) string {
			return fmt.Sprintf(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":%s,"is_error":%v}]}}`, id, quote(output), failed)
		},
		Done: func(final string) string {
			return `{"total_cost_usd":0.0125,"usage":{"input_tokens":10,"output_tokens":20,"cache_read_input_tokens":30,"cache_creation_input_tokens":40},` +
				`"is_error":false,"result":` + quote(final) + `,"subtype":"success","type":"result"}`
		},
		Fail: func(message string) string {
			return `{"type":"result","subtype":"success","is_error":true,"result":` + quote(message) + `,"usage":{"input_tokens":1}}`
		},
		Usage:      pulse.Usage{InputTokens: 10, OutputTokens: 20, CacheReadTokens: 30, CacheWriteTokens: 40, CostMicros: 12500},
		NeedsLogin: true,
	}
}

func TestConformance(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"} {
		t.Setenv(name, "")
	}
	clitest.Run(t, dialect())
}

// decode gives what the decoder makes of some lines.
func decode(lines ...string) (events []cli.Event, d *decoder, err error) {
	d = newDecoder("/tree", func(e cli.Event) { events = append(events, e) })
	for _, l := range lines {
		if err = d.line(cli.Line{Text: []byte(l)}); err != nil {
			break
		}
	}
	return events, d, err
}

func TestCommandArgs(t *testing.T) {
	c, err := New(Config{Path: "/bin/sh", Model: "small", Args: []string{"--max-turns", "3"}, Env: []string{"CLAUDECODE=1", "A=b"}}).Command(cli.Input{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][2]string{{"--model", "small"}, {"--setting-sources", "user"}, {"--output-format", "stream-json"}} {
		if i := slices.Index(c.Args, want[0]); i < 0 || c.Args[i+1] != want[1] {
			t.Errorf("%v: %q", want, c.Args)
		}
	}
	if !slices.Contains(c.Args, "--strict-mcp-config") || !slices.Equal(c.Args[len(c.Args)-2:], []string{"--max-turns", "3"}) {
		t.Errorf("args %q", c.Args)
	}
	if slices.Contains(c.Env, "CLAUDECODE=1") || !slices.Contains(c.Env, "A=b") || !slices.Contains(c.Env, "DISABLE_AUTOUPDATER=1") {
		t.Errorf("env %q", c.Env)
	}
	c, _ = New(Config{Path: "/bin/sh", Model: "small"}).Command(cli.Input{Model: "large"})
	if i := slices.Index(c.Args, "--model"); c.Args[i+1] != "large" {
		t.Errorf("the run's model does not win: %q", c.Args)
	}
}

// An empty directory would be taken for the current one, which is the tree.
func TestEmptyVariablesAreNotPassed(t *testing.T) {
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	t.Setenv("ANTHROPIC_API_KEY", "k")
	c, err := New(Config{Path: "/bin/sh"}).Command(cli.Input{})
	if err != nil || slices.Contains(c.Pass, "CLAUDE_CONFIG_DIR") || !slices.Contains(c.Pass, "ANTHROPIC_API_KEY") {
		t.Errorf("%q %v", c.Pass, err)
	}
}

func TestToolResultForms(t *testing.T) {
	for content, want := range map[string]string{
		`"plain"`: "plain",
		`[{"type":"text","text":"one"},{"type":"image","source":{}},{"type":"text","text":"two"}]`: "one\n[image]\ntwo",
		`["a","b"]`:         "a\nb",
		`{"stdout":"x"}`:    `{"stdout":"x"}`,
		`null`:              "",
		`[]`:                "",
		`{"type":"unknown"`: "",
	} {
		events, _, _ := decode(assistant(`{"type":"tool_use","id":"t","name":"Bash","input":{"command":"make  test"}}`),
			`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":`+content+`}]}}`)
		if events[0].Tool.Summary != "make test" {
			t.Errorf("summary %q", events[0].Tool.Summary)
		}
		if len(events) < 2 {
			if want != "" {
				t.Errorf("%s: no end", content)
			}
			continue
		}
		if got := events[1].Tool.Output; got != want {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
	}
}

// A sub-agent's answer is not the agent's, its tools are shown.
func TestSubAgent(t *testing.T) {
	sub := `"parent_tool_use_id":"toolu_1"`
	events, d, _ := decode(
		assistant(`{"type":"text","text":"mine"}`),
		`{"type":"assistant","message":{"content":[{"type":"text","text":"<signal>COMPLETE</signal>"},{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"s1","name":"Read","input":{"file_path":"/tree/a/b.go"}}]},`+sub+`}`,
		`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"s1","content":"ok"}]},`+sub+`}`,
		`{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"sub"}},`+sub+`}`,
		`{"type":"result","subtype":"success","result":""}`)
	var kinds []cli.EventKind
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	if !slices.Equal(kinds, []cli.EventKind{cli.EventText, cli.EventToolStart, cli.EventToolEnd}) || events[1].Tool.Summary != "a/b.go" {
		t.Errorf("%v", kinds)
	}
	if d.result == nil || d.result.FinalText != "mine" {
		t.Errorf("%+v", d.result)
	}
}

func TestResults(t *testing.T) {
	tests := map[string]struct {
		lines  []string
		want   *cli.Result
		failed bool
	}{
		"compact is not the end": {lines: []string{`{"type":"result","subtype":"compact","result":"summary"}`}},
		"the last one counts": {
			lines: []string{
				`{"type":"result","subtype":"success","result":"first","total_cost_usd":0.01,"usage":{"input_tokens":7}}`,
				`{"type":"result","subtype":"success","result":"second","total_cost_usd":0.015,"usage":{"input_tokens":5}}`,
			},
			want: &cli.Result{FinalText: "second", Usage: pulse.Usage{InputTokens: 12, CostMicros: 15000}},
		},
		"error with exit 0": {
			lines: []string{`{"type":"result","subtype":"success","is_error":true,"result":"API Error: 500","api_error_status":500}`},
			want:  &cli.Result{Failed: true, Error: "API Error: 500", Hint: "the provider has a problem: try again later"},
		},
		"not logged in": {
			lines: []string{`{"type":"result","is_error":true,"result":"Not logged in · Please run /login"}`},
			want:  &cli.Result{Failed: true, Error: "Not logged in · Please run /login", Hint: fixLogin},
		},
		"interrupted": {
			lines: []string{assistant(`{"type":"text","text":"half"}`), `{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["aborted",17]}`},
			want:  &cli.Result{Failed: true, FinalText: "half", Error: "aborted"},
		},
		"absurd figures": {
			lines: []string{`{"type":"result","result":"x","total_cost_usd":-3,"usage":{"input_tokens":1e308,"output_tokens":-5,"cache_read_input_tokens":"12","cache_creation_input_tokens":{}}}`},
			want:  &cli.Result{FinalText: "x", Usage: pulse.Usage{InputTokens: 1_000_000_000_000, CacheReadTokens: 12}},
		},
		"words of the CLI itself are no answer": {
			lines: []string{assistant(`{"type":"text","text":"mine"}`),
				`{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"API Error"}]}}`, `{"type":"result","result":17}`},
			want: &cli.Result{FinalText: "mine"},
		},
	}
	for name, tt := range tests {
		_, d, _ := decode(tt.lines...)
		if (d.result == nil) != (tt.want == nil) || d.result != nil && *d.result != *tt.want {
			t.Errorf("%s: %+v, want %+v", name, d.result, tt.want)
		}
	}
}

func TestRetries(t *testing.T) {
	again := func(attempt int, kind string) string {
		return fmt.Sprintf(`{"type":"system","subtype":"api_retry","attempt":%d,"max_retries":10,"retry_delay_ms":1500,"error_status":401,"error":%q}`, attempt, kind)
	}
	events, d, err := decode(again(1, "authentication_failed"))
	if err != nil || d.result != nil || len(events) != 1 || events[0].Text != "the model's server answered 401 (authentication failed); attempt 1 of 10 in 2 s" {
		t.Errorf("first: %v %+v %+v", err, d.result, events)
	}
	if _, d, err = decode(again(1, "authentication_failed"), again(2, "authentication_failed")); err == nil || d.result == nil || d.result.Hint != fixLogin {
		t.Errorf("second: %v %+v", err, d.result)
	}
	if _, d, err = decode(again(9, "rate_limit")); err != nil || d.result != nil {
		t.Errorf("a limit is waited for: %v %+v", err, d.result)
	}
}

// The meter grows with the partial messages and never counts one twice.
func TestMeter(t *testing.T) {
	part := func(parent, event string) string {
		return `{"type":"stream_event","parent_tool_use_id":` + parent + `,"event":` + event + `}`
	}
	start, stop := `{"type":"message_start","message":{"usage":{"input_tokens":100,"cache_read_input_tokens":7,"output_tokens":1}}}`, `{"type":"message_stop"}`
	delta := `{"type":"message_delta","usage":{"output_tokens":50}}`
	events, _, _ := decode(
		part("null", start), part("null", delta), part("null", stop),
		part(`"sub"`, start), part("null", start), part("null", delta), part(`"sub"`, delta), part(`"sub"`, stop), part("null", stop))
	var last pulse.Usage
	for _, e := range events {
		if e.Usage.Total() < last.Total() {
			t.Errorf("shrinks: %+v after %+v", e.Usage, last)
		}
		last = *e.Usage
	}
	if want := (pulse.Usage{InputTokens: 300, OutputTokens: 150, CacheReadTokens: 21}); last != want {
		t.Errorf("%+v, want %+v", last, want)
	}
}

func TestDeniedAndLimits(t *testing.T) {
	events, _, _ := decode(
		`{"type":"rate_limit_event","rate_limit_info":{"status":"allowed"}}`,
		`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","rateLimitType":"five_hour"}}`,
		`{"type":"result","result":"x","permission_denials":[{"tool_name":"Bash"},{"tool_name":"Bash"},{"tool_name":"Write"}]}`)
	if len(events) != 2 || events[0].Text != "usage limit of the account: rejected five_hour" ||
		events[1].Text != "not permitted and therefore not done: Bash, Write" {
		t.Errorf("%+v", events)
	}
}
