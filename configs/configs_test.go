package configs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"pulseloop/configs"
)

func env(pairs ...string) configs.Env {
	m := map[string]string{"HOME": "/home/ann"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) (string, bool) { v, ok := m[k]; return v, ok }
}

func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pulse.yaml")
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestDefaultsWithoutAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := configs.Load("", env())
	if err != nil {
		t.Fatal(err)
	}
	if c.DataDir != "/home/ann/.local/share/pulse" || c.HTTP.Listen != "127.0.0.1:3002" || c.Loop.SilenceLimit != 5*time.Minute || c.File != "" {
		t.Errorf("defaults: %+v", c)
	}
}

func TestExampleFileIsTheDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	want, err := configs.Load("", env())
	if err != nil {
		t.Fatal(err)
	}
	_, here, _, _ := runtime.Caller(0)
	got, err := configs.Load(filepath.Join(filepath.Dir(here), "pulse.example.yaml"), env())
	if err != nil {
		t.Fatal(err)
	}
	got.File = ""
	norm := func(c configs.Config) string {
		return strings.NewReplacer("[]", "", "map[]", "").Replace(fmt.Sprintf("%+v", c))
	}
	if norm(got) != norm(want) {
		t.Errorf("the example says\n%+v\nthe defaults are\n%+v", got, want)
	}
}

func TestFileThenEnvironment(t *testing.T) {
	file := write(t, "data_dir: ~/d\nprojects:\n  my-app: {path: ~/src/app, agent: codex}\ntelegram: {token: filetoken}\nagents:\n  claude: {args: [--x]}\n", 0o600)
	c, err := configs.Load("", env("PULSE_CONFIG", file, "PULSE_TELEGRAM_TOKEN", "envtoken", "PULSE_ALLOWED_ROOTS", "/a:/b",
		"PULSE_COMMAND", `my-agent --flag "two words"`, "PULSE_DAEMON_SLOTS", "5", "PULSE_AGENTS_CLAUDE_MODEL", "opus",
		"PULSE_PROJECTS_MY_APP_BASE_BRANCH", "trunk", "PULSE_LOOP_SILENCE_LIMIT", "90s",
		"PULSE_LOOP_TOOL_SILENCE_LIMIT", "2h", "PULSE_LOOP_ITERATION_LIMIT", "0", "PULSE_DAEMON_LINGER", "5s"))
	if err != nil {
		t.Fatal(err)
	}
	if c.DataDir != "/home/ann/d" || c.Telegram.Token.Reveal() != "envtoken" || !reflect.DeepEqual(c.AllowedRoots, []string{"/a", "/b"}) ||
		!reflect.DeepEqual(c.Agents["command"].Command, []string{"my-agent", "--flag", "two words"}) || c.Daemon.Slots != 5 ||
		c.Agents["claude"].Model != "opus" || c.Agents["claude"].Args[0] != "--x" ||
		c.Projects["my-app"] != (configs.Project{Path: "/home/ann/src/app", BaseBranch: "trunk", Agent: "codex"}) || c.Loop.SilenceLimit != 90*time.Second ||
		c.Loop.ToolSilenceLimit != 2*time.Hour || c.Loop.IterationLimit != 0 || c.Daemon.Linger != 5*time.Second {
		t.Errorf("got %+v", c)
	}
	if s := fmt.Sprintf("%+v %#v", c, c); strings.Contains(s, "envtoken") {
		t.Error("the token prints")
	}
}

func TestBadConfigurationNamesTheKey(t *testing.T) {
	t.Chdir(t.TempDir())
	cases := map[string]struct{ yaml, env, want string }{
		"unknown key":       {yaml: "telegramm: {}\n", want: "telegramm"},
		"duplicate key":     {yaml: "agent: codex\nagent: claude\n", want: "agent"},
		"wrong type":        {yaml: "daemon: {slots: many}\n", want: "slots"},
		"short lease":       {yaml: "daemon: {lease: 1s}\n", want: "daemon.lease: is 1s; write a duration from 2s"},
		"not yaml":          {yaml: "a: [", want: "pulse.yaml"},
		"short token":       {yaml: "http: {token: abc}\n", want: "http.token"},
		"bad listen":        {yaml: "http: {listen: nowhere}\n", want: "http.listen"},
		"unknown agent":     {yaml: "agent: gpt\n", want: "agent: there is no agent"},
		"project no path":   {yaml: "projects: {x: {}}\n", want: "projects.x.path"},
		"bad database":      {yaml: "database_url: mysql://x\n", want: "database_url"},
		"webhook no secret": {yaml: "telegram: {token: t, webhook_url: 'https://h/x'}\n", want: "telegram.webhook_secret"},
		"negative":          {yaml: "loop: {max_iterations: -1}\n", want: "loop.max_iterations"},
		"bad env number":    {env: "PULSE_DAEMON_SLOTS=x", want: "PULSE_DAEMON_SLOTS"},
		"bad env duration":  {env: "PULSE_LOOP_SILENCE_LIMIT=5", want: "PULSE_LOOP_SILENCE_LIMIT"},
		"tool limit":        {yaml: "loop: {tool_silence_limit: 0s}\n", want: "loop.tool_silence_limit: is 0s; write a duration of at least 1s"},
		"negative limit":    {yaml: "loop: {iteration_limit: -1h}\n", want: "loop.iteration_limit"},
		"no linger":         {yaml: "daemon: {linger: 0s}\n", want: "daemon.linger: is 0s; write a duration from 100ms"},
		"bad command":       {env: `PULSE_COMMAND=a "b`, want: "PULSE_COMMAND"},
		"missing file":      {env: "PULSE_CONFIG=/no/such.yaml", want: "/no/such.yaml"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := ""
			if c.yaml != "" {
				file = write(t, c.yaml, 0o600)
			}
			k, v, _ := strings.Cut(c.env, "=")
			_, err := configs.Load(file, env(k, v))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestEmptyFileIsTheDefaults(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n"} {
		c, err := configs.Load(write(t, text, 0o644), env())
		if err != nil || c.HTTP.Listen != "127.0.0.1:3002" {
			t.Errorf("%q: %+v %v", text, c.HTTP, err)
		}
	}
}

func TestMistakesDoNotPrintTheFile(t *testing.T) {
	_, err := configs.Load(write(t, "telegram:\n  token: 123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0\n  tokn: x\n", 0o600), env())
	if err == nil || !strings.Contains(err.Error(), "tokn") || strings.Contains(err.Error(), "AAHdq") {
		t.Errorf("got %v", err)
	}
}

func TestEmptyVariablesAreNotSet(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := configs.Load("", env("PULSE_DATA_DIR", "", "PULSE_HTTP_LISTEN", "", "PULSE_ALLOWED_ROOTS", ""))
	if err != nil || c.DataDir == "" || c.HTTP.Listen == "" || len(c.AllowedRoots) != 1 {
		t.Errorf("got %+v %v", c, err)
	}
}

func TestPasswordOf(t *testing.T) {
	for address, want := range map[string]string{"": "", "postgres://h/db": "", "postgres://u@h/db": "", "postgres://u:p%40ss@h/db": "p@ss",
		"postgres://h/db?user=u&password=secret": "secret", "::": ""} {
		if got := configs.PasswordOf(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	if _, err := configs.Load(write(t, "database_url: postgres://h/db?password=secret\n", 0o644), env()); err == nil {
		t.Error("a readable file with a password in the query is taken")
	}
}

func TestReadableSecretsAreRefused(t *testing.T) {
	_, err := configs.Load(write(t, "telegram: {token: abc}\n", 0o644), env())
	if err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v", err)
	}
	if _, err := configs.Load(write(t, "agent: codex\n", 0o644), env()); err != nil {
		t.Errorf("a file without secrets: %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	b, _ := os.ReadFile("pulse.example.yaml")
	f.Add(string(b))
	f.Add("a: &a [*a]")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, "f.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := configs.Load(file, env()); err == nil && c.Validate() != nil {
			t.Error("loaded a configuration that is not valid")
		}
	})
}
