package e2e

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
)

// finding is one line of `doctor --json`.
type finding struct{ Check, State, Detail, Fix string }

func examine(t *testing.T, p *e2etest.Pulse) (found []finding, code int) {
	t.Helper()
	out, errs, code := p.Run("doctor", "--json")
	if err := json.Unmarshal([]byte(out), &found); err != nil || errs != "" {
		t.Fatalf("doctor --json: %v\n%s%s", err, out, errs)
	}
	return found, code
}

// programs makes a directory for PATH with git in it, and programs of the test's own.
func programs(t *testing.T, git bool, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if git {
		path, err := exec.LookPath("git")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, "git")); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return "PATH=" + dir
}

func place(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

// broken is one way in which a set-up can be wrong, and what doctor has to say of it.
type broken struct {
	name    string
	options func(t *testing.T, o *e2etest.Options)
	harm    func(t *testing.T, p *e2etest.Pulse)
	check   string
	state   string
	detail  string
	fix     string
}

// with changes the options by one variable.
func with(pairs ...string) func(*testing.T, *e2etest.Options) {
	return func(_ *testing.T, o *e2etest.Options) { o.Env = append(o.Env, pairs...) }
}

func path(git bool, scripts map[string]string) func(*testing.T, *e2etest.Options) {
	return func(t *testing.T, o *e2etest.Options) {
		t.Helper()
		o.Env = append(o.Env, programs(t, git, scripts))
	}
}

var brokenSetups = []broken{
	{name: "an unknown key", check: "configuration", state: "fail", detail: `unknown field "telegramm"`, fix: "pulse.example.yaml shows every key",
		options: func(_ *testing.T, o *e2etest.Options) { o.Config = "telegramm: {token: x}\n" }},
	{name: "a wrong value", check: "configuration", state: "fail", detail: "loop.max_iterations", fix: "correct the file or the variable named",
		options: with("PULSE_LOOP_MAX_ITERATIONS=0")},
	{name: "a secret that others may read", check: "configuration", state: "fail", detail: "holds secrets and others may read it", fix: "correct the file",
		options: func(_ *testing.T, o *e2etest.Options) { o.Config = "http: {token: 0123456789abcdef0123456789abcdef}\n" },
		harm: func(t *testing.T, p *e2etest.Pulse) {
			if err := os.Chmod(filepath.Join(p.Home, "pulse.yaml"), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
	{name: "a file in place of the data directory", check: "data directory", state: "fail", detail: "is not a directory", fix: "set data_dir (PULSE_DATA_DIR)",
		harm: func(t *testing.T, p *e2etest.Pulse) { place(t, p.DataDir, "", 0o600) }},
	{name: "no data directory can be made", check: "data directory", state: "fail", detail: "cannot be made", fix: "set data_dir (PULSE_DATA_DIR)",
		options: with("PULSE_DATA_DIR=/proc/nowhere/pulse")},
	{name: "others may enter the data directory", check: "data directory", state: "warn", detail: "may be entered by others", fix: "chmod 700 ",
		harm: func(t *testing.T, p *e2etest.Pulse) {
			if err := os.MkdirAll(p.DataDir, 0o755); err != nil {
				t.Fatal(err)
			}
		}},
	{name: "others may read the token", check: "token", state: "fail", detail: "others may read the token file", fix: "chmod 600 ",
		harm: func(t *testing.T, p *e2etest.Pulse) {
			place(t, filepath.Join(p.DataDir, "token"), strings.Repeat("a", 64), 0o644)
		}},
	{name: "a token cut short", check: "token", state: "fail", detail: "is damaged", fix: "remove it",
		harm: func(t *testing.T, p *e2etest.Pulse) { place(t, filepath.Join(p.DataDir, "token"), "abc", 0o600) }},
	{name: "no git", check: "git", state: "fail", detail: "git was not found", fix: "install git 2.39.4 or newer", options: path(false, nil)},
	{name: "an old git", check: "git", state: "fail", detail: "git 2.30.2 is too old", fix: "install git 2.39.4 or newer",
		options: path(false, map[string]string{"git": "echo git version 2.30.2"})},
	{name: "a broken database file", check: "database", state: "fail", detail: "pulse.db", fix: "→",
		harm: func(t *testing.T, p *e2etest.Pulse) {
			place(t, filepath.Join(p.DataDir, "pulse.db"), strings.Repeat("no database ", 1000), 0o600)
		}},
	{name: "PostgreSQL out of reach", check: "database", state: "fail", detail: "the database cannot be reached: nothing listens at 127.0.0.1:1", fix: "start PostgreSQL there",
		options: func(_ *testing.T, o *e2etest.Options) {
			o.Database = "postgres://pulse:hunter2@127.0.0.1:1/pulse?connect_timeout=5"
		}},
	{name: "another program has the port", check: "http", state: "fail", detail: "address already in use", fix: "set http.listen (PULSE_HTTP_LISTEN)",
		harm: func(t *testing.T, p *e2etest.Pulse) {
			l, err := net.Listen("tcp", p.Addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}},
	{name: "no agent", check: "agents", state: "fail", detail: "claude was not found on PATH", fix: "npm install -g @anthropic-ai/claude-code",
		options: func(t *testing.T, o *e2etest.Options) { o.Agent = "-"; path(true, nil)(t, o) }},
	{name: "a command that is not there", check: "agents", state: "warn", detail: "/nonexistent", fix: "PULSE_COMMAND",
		options: with("PULSE_COMMAND=/nonexistent --flag")},
	{name: "an agent nobody is logged in to", check: "agents", state: "warn", detail: "claude is not logged in", fix: "run `claude` once and log in",
		options: func(t *testing.T, o *e2etest.Options) {
			path(true, map[string]string{"claude": `[ "$1" = --version ] && echo "2.1.328 (Claude Code)"`})(t, o)
		}},
	{name: "the default agent is missing", check: "agents", state: "fail", detail: "codex, the default: codex was not found", fix: "npm install -g @openai/codex",
		options: func(t *testing.T, o *e2etest.Options) { o.Agent = "codex"; path(true, nil)(t, o) }},
	{name: "a project that is gone", check: "projects", state: "fail", detail: "my-app: there is no repository at", fix: "if it was moved, give its new path",
		harm: func(t *testing.T, p *e2etest.Pulse) {
			if err := os.RemoveAll(theProject(t, p)); err != nil {
				t.Fatal(err)
			}
		}},
	{name: "a shallow project", check: "projects", state: "fail", detail: "is a shallow clone", fix: "fetch --unshallow",
		harm: func(t *testing.T, p *e2etest.Pulse) {
			head, err := exec.Command("git", "-C", theProject(t, p), "rev-parse", "HEAD").Output()
			if err != nil {
				t.Fatal(err)
			}
			place(t, filepath.Join(theProject(t, p), ".git", "shallow"), string(head), 0o600)
		}},
	{name: "no project", check: "projects", state: "warn", detail: "none in the configuration", fix: "run `pulse init` in a repository",
		options: func(_ *testing.T, o *e2etest.Options) { o.Projects = nil }},
	{name: "no bot", check: "telegram", state: "warn", detail: "no bot", fix: "make one with @BotFather",
		options: with("PULSE_TELEGRAM_TOKEN=")},
	{name: "a bot's token that was revoked", check: "telegram", state: "fail", detail: "refuses the bot token", fix: "get the current one from @BotFather",
		options: with("PULSE_TELEGRAM_TOKEN=123456789:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")},
	{name: "Telegram out of reach", check: "telegram", state: "fail", detail: "Telegram", fix: "network",
		options: with("PULSE_TELEGRAM_API_URL=http://127.0.0.1:1")},
	{name: "nobody is paired", check: "pairing", state: "warn", detail: "nobody may speak to the bot yet", fix: "run `pulse up` and send the bot the code it prints"},
	{name: "no place for temporary files", check: "leftovers", state: "fail", detail: "no temporary files can be made in /nonexistent", fix: "set TMPDIR to a directory you may write to",
		options: with("TMPDIR=/nonexistent")},
	{name: "no sandbox", check: "sandbox", state: "warn", detail: "could read ", fix: "run pulse as a user of its own"},
}

// theProject is where the project of the configuration lies.
func theProject(t *testing.T, p *e2etest.Pulse) string {
	t.Helper()
	out, errs, code := p.Run("config", "--json")
	var c struct {
		Projects map[string]struct{ Path string }
	}
	if err := json.Unmarshal([]byte(out), &c); err != nil || code != 0 {
		t.Fatalf("config: %v %s%s", err, out, errs)
	}
	return c.Projects["my-app"].Path
}

func TestDoctorNamesTheFixOfWhatIsBroken(t *testing.T) {
	t.Parallel()
	tg := telegramtest.Start(t, telegramtest.Options{})
	checked := map[string]bool{"disk": true} // cmd/pulse tests it: a disk cannot be filled here
	for _, b := range brokenSetups {
		checked[b.check] = true
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			o := e2etest.Options{Projects: one(e2etest.Repo(t)), Telegram: tg}
			if b.options != nil {
				b.options(t, &o)
			}
			p := e2etest.New(t, o)
			if b.harm != nil {
				b.harm(t, p)
			}
			found, code := examine(t, p)
			i := slices.IndexFunc(found, func(f finding) bool {
				return f.Check == b.check && f.State == b.state && strings.Contains(f.Detail, b.detail)
			})
			if i < 0 {
				t.Fatalf("doctor does not find it: %+v", found)
			}
			fix := strings.TrimPrefix(b.fix, "→")
			if f := found[i]; f.Fix == "" || !strings.Contains(f.Fix, fix) {
				t.Errorf("the fix of %+v does not name %q", f, fix)
			}
			failed := slices.ContainsFunc(found, func(f finding) bool { return f.State == "fail" })
			if want := map[bool]int{true: 1, false: 0}[failed]; code != want || b.state == "fail" && code != 1 {
				t.Errorf("exit code %d: %+v", code, found)
			}
			out, errs, again := p.Run("doctor")
			if again != code {
				t.Errorf("exit code %d without --json, %d with it", again, code)
			}
			oneAfterTheOther(t, out, " "+b.check, found[i].Detail, "→ "+found[i].Fix)
			if strings.Contains(out+errs, "hunter2") || strings.Contains(out+errs, tg.Token()) {
				t.Errorf("a secret is shown:\n%s%s", out, errs)
			}
		})
	}
	found, _ := examine(t, e2etest.New(t, e2etest.Options{}))
	for _, f := range found {
		if !checked[f.Check] {
			t.Errorf("the check %q is never broken here", f.Check)
		}
	}
}

func TestDoctorDoesNotBlameGitForTheDataDirectory(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{})
	place(t, p.DataDir, "", 0o600)
	found, _ := examine(t, p)
	for _, f := range found {
		if f.Check == "git" && (f.State != "ok" || !strings.HasPrefix(f.Detail, "2.")) {
			t.Errorf("%+v", f)
		}
	}
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		tg := telegramtest.Start(t, telegramtest.Options{})
		p := e2etest.Start(t, e2etest.Options{Database: database, Telegram: tg, Projects: one(e2etest.Repo(t))})
		healthy := func(when string) {
			t.Helper()
			found, code := examine(t, p)
			for _, f := range found {
				// What an agent could do without a sandbox is said always; the data directory of the tests is theirs.
				if f.State != "ok" && f.Check != "sandbox" || f.State == "ok" && f.Fix != "" {
					t.Errorf("%s: %+v", when, f)
				}
			}
			if code != 0 || len(found) < 12 {
				t.Errorf("%s: exit code %d, %d findings", when, code, len(found))
			}
		}
		e2etest.NewPerson(t, tg, "Ann").Pair(p.PairCode())
		healthy("while pulse runs")
		p.Stop()
		healthy("while it does not")
	})
}
