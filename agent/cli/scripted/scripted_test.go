package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pulseloop/agent/cli"
	"pulseloop/agent/cli/clitest"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

// The test binary plays the program when it is started as its subcommand.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "scripted-agent" {
		os.Exit(Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	goleak.VerifyTestMain(m)
}

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

func dialect() clitest.Dialect {
	word := func(kind string) func(string) string {
		return func(text string) string { return `{"type":"` + kind + `","text":` + quote(text) + `}` }
	}
	return clitest.Dialect{
		New:     func(path string, linger time.Duration) cli.Backend { return New(Config{Self: path, Linger: linger}) },
		Started: func() string { return `{"type":"session","session_id":"s","model":"scripted"}` },
		Text:    word("text"), Delta: word("text_delta"), Thought: word("thought"),
		ToolStart: func(id, name string) string {
			return fmt.Sprintf(`{"type":"tool_call","subtype":"started","name":%q,"arguments":{"path":"foo.go"},"call_id":%q}`, name, id)
		},
		ToolEnd: func(id, output string, failed bool) string {
			return fmt.Sprintf(`{"type":"tool_call","subtype":"completed","name":"x","duration_ms":123,"call_id":%q,"output":%s,"is_error":%v}`, id, quote(output), failed)
		},
		Done: func(final string) string {
			return `{"type":"result","text":` + quote(final) + `,"usage":{"input_tokens":1,"output_tokens":2,"cache_read_tokens":3,"cache_write_tokens":4,"cost_usd":0.5}}`
		},
		Fail:  func(message string) string { return `{"type":"result","error":` + quote(message) + `}` },
		Usage: pulse.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, CostMicros: 500000},
	}
}

func TestConformance(t *testing.T) { clitest.Run(t, dialect()) }

func FuzzDecode(f *testing.F) {
	d := dialect()
	clitest.Fuzz(f, New(Config{}), d.Started()+"\n"+d.Text("x")+"\n"+d.ToolStart("a", "b")+"\n"+d.ToolEnd("a", "b", true)+"\n"+d.Done("end"),
		d.Fail("no"), `{"type":"usage","input_tokens":-1,"cost_usd":1e308}`)
}

func FuzzScript(f *testing.F) {
	f.Add(demo)
	f.Add([]byte("iterations: [[say: x, hang: true]]"))
	f.Add([]byte("sessions: {a: {iterations: [[{sleep: 1s}]]}}"))
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := parse("x", src)
		if err == nil && len(s.iterations)+len(s.sessions) == 0 {
			t.Error("an empty script was taken")
		}
	})
}

// outcome is a run of the program as a real child.
type outcome struct {
	events []cli.Event
	err    error
	exit   proc.Exit
	dir    string
}

func (o outcome) result(t *testing.T) *cli.Result {
	t.Helper()
	if o.err != nil {
		t.Fatalf("converse: %v; stderr: %s", o.err, o.exit.Stderr)
	}
	return o.events[len(o.events)-1].Result
}

type running struct {
	t      *testing.T
	p      *proc.Process
	done   chan struct{}
	out    outcome
	events chan cli.Event
}

// begin starts a script as the daemon would.
func begin(t *testing.T, script, prompt string, iteration int) *running {
	t.Helper()
	cfg := Config{Linger: 100 * time.Millisecond}
	if script != "" {
		cfg.Script = filepath.Join(t.TempDir(), "script.yaml")
		if err := os.WriteFile(cfg.Script, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, in := New(cfg), cli.Input{Prompt: prompt, Dir: t.TempDir(), Iteration: iteration}
	c, err := b.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	env := proc.BaseEnv(append(c.Env, fmt.Sprintf("%s=%d", cli.EnvIteration, iteration))...)
	p, err := proc.Start(proc.Spec{Path: c.Path, Args: c.Args, Dir: in.Dir, Env: env, Grace: 100 * time.Millisecond,
		Marker: fmt.Sprintf("%s-%d", t.Name(), os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, p: p, done: make(chan struct{}), out: outcome{dir: in.Dir}, events: make(chan cli.Event, 10000)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(r.done)
		r.out.err = b.Converse(ctx, cli.Wire{Stdin: p.Stdin(), Stdout: p.Stdout()}, in, nil, func(e cli.Event) {
			r.out.events = append(r.out.events, e)
			select {
			case r.events <- e:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		now, over := context.WithCancel(context.Background())
		over()
		p.Stop(now)
		cancel()
		<-r.done
		_, _ = io.Copy(io.Discard, p.Stdout())
	})
	return r
}

// finish waits for the program to end by itself.
func (r *running) finish() outcome {
	r.t.Helper()
	select {
	case <-r.p.Done():
	case <-time.After(30 * time.Second):
		r.t.Fatal("the program does not end")
	}
	<-r.done
	r.out.exit = r.p.Exit()
	return r.out
}

func run(t *testing.T, script, prompt string, iteration int) outcome {
	t.Helper()
	return begin(t, script, prompt, iteration).finish()
}

// stop waits for the first event that fits and then ends the program.
func (r *running) stop(fits func(cli.Event) bool) outcome {
	r.t.Helper()
	for timeout := time.After(30 * time.Second); ; {
		select {
		case e := <-r.events:
			if !fits(e) {
				continue
			}
		case <-timeout:
			r.t.Fatal("the event does not come")
		}
		break
	}
	r.out.exit = r.p.Stop(r.t.Context())
	<-r.done
	return r.out
}

func said(text string) func(cli.Event) bool {
	return func(e cli.Event) bool { return e.Kind == cli.EventText && e.Text == text }
}

const health = "rules\n# Goal\nAdd a health endpoint\n\n# Now\nThis is iteration 1 of at most 10.\n"

func TestDemonstration(t *testing.T) {
	one := run(t, "", health, 1)
	if r := one.result(t); !strings.HasSuffix(r.FinalText, "<signal>CONTINUE</signal>") || r.Usage.CostMicros != 12000 {
		t.Fatalf("%+v", *r)
	}
	tools := 0
	for _, e := range one.events {
		if e.Kind == cli.EventToolStart {
			tools++
		}
	}
	if tools < 4 {
		t.Errorf("%d tools make a dull demonstration", tools)
	}
	if err := os.WriteFile(filepath.Join(one.dir, "go.mod"), []byte("module sample\n\ngo 1.24\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "./health")
	cmd.Dir, cmd.Env = one.dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("what it wrote fails its test: %v\n%s", err, out)
	}
	two := run(t, "", health, 2)
	if r := two.result(t); !strings.HasSuffix(r.FinalText, "<signal>COMPLETE</signal>") {
		t.Errorf("%+v", *r)
	}
	if _, err := os.Stat(filepath.Join(two.dir, "docs", "health.md")); err != nil {
		t.Error(err)
	}
	other := run(t, "", "# Goal\nPaint it blue\n\n# Now\n", 1)
	note, err := os.ReadFile(filepath.Join(other.dir, "docs", "goals.md"))
	if err != nil || !strings.Contains(string(note), "> Paint it blue") || !strings.Contains(other.result(t).FinalText, "scripted agent") {
		t.Errorf("another goal: %q %v", note, err)
	}
}

func TestSteps(t *testing.T) {
	const script = `
name: steps
iterations:
  - - think: "about {{goal}}"
    - say: first
    - tool: {name: Read, input: {path: a.go}, output: text, failed: true, wait: 1ms}
    - write: {path: deep/er/file.txt, content: "1\n"}
    - append: {path: deep/er/file.txt, content: "{{iteration}} {{answer}}\n"}
    - run: cat deep/er/file.txt; exit 3
    - note: by the way
    - chunks: ["All d", "one <sig", "nal>"]
    - say: skipped
      when_prompt_contains: not there
    - say: kept
      when_prompt_contains: health
    - hint: {turn_id: t-1, reason: because}
    - usage: {input: 5, output: 6, cache_read: 7, cache_write: 8, cost: 0.25}
    - signal: "BLOCKED: which port?"
    - stderr: for the log
`
	out := run(t, script, "# Goal\nhealth\n\n# What the person said since\nAnswer to your question: 8080\n\n# Now\n", 1)
	var got []string
	for _, e := range out.events {
		switch {
		case e.Tool != nil:
			got = append(got, fmt.Sprintf("%s %s %s %v %q", e.Kind, e.Tool.Name, e.Tool.Summary, e.Tool.Failed, e.Tool.Output))
		case e.Usage != nil:
			got = append(got, fmt.Sprintf("%s %+v", e.Kind, *e.Usage))
		case e.Kind == cli.EventResult:
		default:
			got = append(got, fmt.Sprintf("%s %q", e.Kind, e.Text))
		}
	}
	want := []string{
		`started ""`, `thought "about health"`, `text "first"`,
		`tool_start Read a.go false ""`, `tool_end Read  true "text"`,
		`tool_start write_file deep/er/file.txt false ""`, `tool_end write_file  false "2 bytes"`,
		`tool_start append_file deep/er/file.txt false ""`, `tool_end append_file  false "7 bytes"`,
		`tool_start shell cat deep/er/file.txt; exit 3 false ""`, `tool_end shell  true "1\n1 8080\n"`,
		`note "by the way"`, `text_delta "All d"`, `text_delta "one <sig"`, `text_delta "nal>"`, `text "All done <signal>"`, `text "kept"`,
		`text "<anchor_hint>\n<turn_id>t-1</turn_id>\n<reason>because</reason>\n</anchor_hint>"`,
		`usage {InputTokens:5 OutputTokens:6 CacheReadTokens:7 CacheWriteTokens:8 CostMicros:250000}`,
		`text "<signal>BLOCKED: which port?</signal>"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	r := out.result(t)
	if strings.Contains(r.FinalText, "first") || !strings.HasPrefix(r.FinalText, "All done") || !strings.HasSuffix(r.FinalText, "which port?</signal>") {
		t.Errorf("the last answer: %q", r.FinalText)
	}
	if r.Usage.CostMicros != 250000 || !out.exit.OK() || out.exit.Stderr != "for the log\n" {
		t.Errorf("%+v %+v", *r, out.exit)
	}
}

func TestIterationsAndSessions(t *testing.T) {
	const script = `
iterations:
  - - say: any one
  - - say: any two
sessions:
  blue:
    repeat_last: true
    iterations:
      - - say: blue one
  BLUEBERRY:
    iterations: [[say: never]]
`
	for _, tt := range []struct {
		goal      string
		iteration int
		want      string
	}{
		{"green", 1, "any one"}, {"green", 2, "any two"}, {"paint it Blue", 1, "blue one"}, {"blueberry", 7, "blue one"},
	} {
		if got := run(t, script, "# Goal\n"+tt.goal+"\n\n# Now\n", tt.iteration).result(t).FinalText; got != tt.want {
			t.Errorf("%s, %d: %q", tt.goal, tt.iteration, got)
		}
	}
	out := run(t, script, "green", 3)
	if out.err == nil || out.exit.Code != statusMisuse || !strings.Contains(out.exit.Stderr, "has 2 iterations, but this is iteration 3") {
		t.Errorf("past the end: %v %+v", out.err, out.exit)
	}
}

func TestMisuseIsLoud(t *testing.T) {
	tests := map[string]struct{ script, says string }{
		"unknown step":           {"iterations:\n  - - say: x\n    - shout: y\n", `line 3: unknown key "shout"`},
		"unknown key":            {"iterations: []\nrepeat: true\n", `line 2: unknown key "repeat"`},
		"unknown inner key":      {"iterations:\n  - - write:\n        path: a\n        text: b\n", `line 4: unknown key "text"`},
		"unknown usage":          {"iterations:\n  - - usage: {inputs: 3}\n", `unknown field "inputs"`},
		"two verbs":              {"iterations:\n  - - say: x\n      run: y\n", "line 3: a step does one thing, this one has both say and run"},
		"no verb":                {"iterations:\n  - - when_prompt_contains: x\n", "the step does nothing"},
		"wrong type":             {"iterations:\n  - - crash: {code: many}\n", "line 2"},
		"not a list":             {"iterations:\n  say: x\n", "line 2: a list is wanted"},
		"not a step":             {"iterations:\n  - - say\n", "line 2: a mapping is wanted"},
		"bad duration":           {"iterations:\n  - - sleep: 5\n", `"5" is no duration`},
		"key twice":              {"repeat_last: true\nrepeat_last: false\niterations: [[say: x]]\n", "repeat_last"},
		"empty":                  {"", "it is empty"},
		"nothing to do":          {"name: x\n", "neither iterations nor sessions"},
		"session without any":    {"sessions:\n  a: {repeat_last: true}\n", "has no iterations"},
		"bad yaml":               {"iterations: [\n", "read script"},
		"placeholder":            {"iterations: [[say: 'the {{color}}']]\n", "unknown placeholder {{color}}"},
		"flood of lines of json": {"iterations: [[flood: {lines: 1, json: true}]]\n", "json is for bytes"},
		"both floods":            {"iterations: [[flood: {bytes: 1, lines: 1}]]\n", "exactly one of bytes and lines"},
		"hang false":             {"iterations: [[hang: false]]\n", "only true makes sense"},
		"outside":                {"iterations:\n  - - write: {path: ../x, content: y}\n", "line 2: write"},
		"absolute":               {"iterations:\n  - - write: {path: /tmp/x, content: y}\n", "line 2: write"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out := run(t, tt.script+" ", "x", 1)
			if out.err == nil || out.exit.Code != statusMisuse || !strings.Contains(out.exit.Stderr, tt.says) {
				t.Errorf("error %v, exit %+v", out.err, out.exit)
			}
		})
	}
	t.Run("environment", func(t *testing.T) {
		for _, env := range [][]string{{EnvScript + "=/no/such/file"}, {cli.EnvIteration + "=x"}, {cli.EnvIteration + "=0"}} {
			var errs bytes.Buffer
			if code := Main(t.Context(), nil, strings.NewReader("x"), io.Discard, &errs, env); code != statusMisuse || errs.Len() == 0 {
				t.Errorf("%v: %d %q", env, code, errs.String())
			}
		}
		if code := Main(t.Context(), []string{"x"}, strings.NewReader(""), io.Discard, io.Discard, nil); code != statusMisuse {
			t.Errorf("an argument: %d", code)
		}
	})
	if p := New(Config{Script: "/no/such/file"}).Probe(t.Context()); p.Ready() || p.Fix == "" {
		t.Errorf("%+v", p)
	}
}

func TestMisbehaviour(t *testing.T) {
	step := func(steps ...string) string {
		return "iterations:\n  -\n    - " + strings.Join(steps, "\n    - ") + "\n"
	}
	t.Run("exit", func(t *testing.T) {
		for code := range 2 {
			out := run(t, step("say: x", fmt.Sprintf("crash: {code: %d}", code)), "", 1)
			if out.err == nil || out.exit.Code != code {
				t.Errorf("code %d: %v %+v", code, out.err, out.exit)
			}
		}
	})
	t.Run("hang", func(t *testing.T) {
		out := begin(t, step("say: x", "hang: true"), "", 1).stop(said("x"))
		if out.err == nil || out.exit.Signal != "SIGINT" {
			t.Errorf("%v %+v", out.err, out.exit)
		}
	})
	t.Run("ignore sigterm", func(t *testing.T) {
		out := begin(t, step("ignore_sigterm: true", "say: x", "hang: true"), "", 1).stop(said("x"))
		if out.exit.Signal != "SIGKILL" {
			t.Errorf("%+v", out.exit)
		}
	})
	t.Run("hang after result", func(t *testing.T) {
		r := begin(t, step("say: x", "result: true", "hang: true"), "", 1)
		out := r.stop(func(e cli.Event) bool { return e.Kind == cli.EventResult })
		if out.result(t).FinalText != "x" {
			t.Errorf("%+v", out.events)
		}
	})
	t.Run("error with exit 0", func(t *testing.T) {
		out := run(t, step("fail: {error: no money, hint: pay}"), "", 1)
		if r := out.result(t); !r.Failed || r.Error != "no money" || r.Hint != "pay" || !out.exit.OK() {
			t.Errorf("%+v %+v", *r, out.exit)
		}
	})
	t.Run("raw", func(t *testing.T) {
		out := run(t, step(`raw: "Welcome!"`, `raw: '{"type":"odd"}'`, "say: x"), "", 1)
		if out.result(t).FinalText != "x" {
			t.Errorf("%+v", out.events)
		}
	})
	t.Run("floods", func(t *testing.T) {
		out := run(t, step("flood: {bytes: 100000000}", "flood: {lines: 20000}", "flood: {bytes: 3000000, stderr: true}", "say: x"), "", 1)
		if out.result(t).FinalText != "x" || len(out.exit.Stderr) != 64<<10 || len(out.events) < 20000 {
			t.Errorf("%d events, %d bytes of stderr", len(out.events), len(out.exit.Stderr))
		}
	})
	t.Run("closed stdout but alive", func(t *testing.T) {
		r := begin(t, step("say: x", "close_stdout: true", "hang: true"), "", 1)
		<-r.done
		if r.out.err == nil {
			t.Error("no result is no error")
		}
		select {
		case <-r.p.Done():
			t.Error("it ended")
		default:
		}
	})
	t.Run("prompt unread", func(t *testing.T) {
		out := run(t, "skip_prompt: true\n"+step("say: x"), strings.Repeat("p", 1<<20), 1)
		if out.result(t).FinalText != "x" {
			t.Errorf("%+v", out.events)
		}
	})
	t.Run("orphans", func(t *testing.T) {
		out := run(t, step("spawn_orphan: true", "spawn_orphan: {keep_stdout: true}", "run: "+findOrphans, "say: x"), "", 1)
		out.result(t)
		var pids []int
		for _, e := range out.events {
			if e.Kind == cli.EventToolEnd {
				for l := range strings.Lines(e.Tool.Output) {
					pid := 0
					if _, err := fmt.Sscan(l, &pid); err == nil {
						pids = append(pids, pid)
					}
				}
			}
		}
		if len(pids) < 2 {
			t.Errorf("%d orphans seen", len(pids))
		}
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil && ours(pid) {
				t.Errorf("orphan %d lives", pid)
			}
		}
	})
}

// findOrphans waits until both are there and tells their ids.
const findOrphans = `>
        n=0; while [ $n -lt 2 ]; do n=0; found=; for p in /proc/[0-9]*; do
        if grep -qs "$PULSE_TASK_ID" $p/environ && tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^sleep 300'; then n=$((n+1)); found="$found ${p#/proc/}"; fi;
        done; done; for p in $found; do echo $p; done`

// ours tells an orphan of this test from those of another run.
func ours(pid int) bool {
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return bytes.Contains(env, []byte(fmt.Sprintf("orphans-%d\x00", os.Getpid())))
}

func TestReadPrompt(t *testing.T) {
	c := readPrompt("# Goal\nquoted\n# Goal\nreal\nsecond line\n\n# What the person said since\nAnswer to your question: a\nGuidance: g\nAnswer to your question: b\n\n# Now\n", 4)
	if c.goal != "real\nsecond line" || c.answer != "b" || c.iteration != 4 {
		t.Errorf("%+v", c)
	}
	c = readPrompt("x\n# Goal\nold\n\n# What the person said since\nThe goal above was reached; now they want: new\n\n# Now\n", 1)
	if c.goal != "new" || c.answer != "" {
		t.Errorf("%+v", c)
	}
	if c = readPrompt(" just this ", 1); c.goal != "just this" {
		t.Errorf("%+v", c)
	}
}

// Every step is described, and the description's example is a script.
func TestScriptsAreDescribed(t *testing.T) {
	page, err := os.ReadFile("script.md")
	if err != nil {
		t.Fatal(err)
	}
	var s step
	for verb := range s.verbs() {
		if !strings.Contains(string(page), "`"+verb+": ") {
			t.Errorf("%s is not described", verb)
		}
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if _, err := parse("script.md", []byte(example)); err != nil {
		t.Error(err)
	}
	if got := run(t, example, "# Goal\npick a colour\n\n# What the person said since\nAnswer to your question: blue\n\n# Now\n", 2).result(t).FinalText; !strings.HasPrefix(got, "It is blue now.") {
		t.Errorf("%q", got)
	}
}
