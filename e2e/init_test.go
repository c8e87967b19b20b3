package e2e

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pulseloop/api/wire"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// fresh is a home with nothing in it, and an environment that says nothing but where that is: what `init` writes has to do.
// PULSE_HTTP_LISTEN alone stays, so that tests may run beside each other.
func fresh(t *testing.T) *e2etest.Pulse {
	t.Helper()
	p := e2etest.New(t, e2etest.Options{Agent: "-"})
	p.DataDir = filepath.Join(p.Home, ".local", "share", "pulse")
	p.Unsetenv("PULSE_DATA_DIR", "PULSE_DATABASE_URL", "PULSE_ALLOWED_ROOTS", "PULSE_LOG_LEVEL", "PULSE_AGENT")
	return p
}

func configFile(p *e2etest.Pulse) string {
	return filepath.Join(p.Home, ".config", "pulse", "pulse.yaml")
}

// written reads the configuration and wants that nobody else can.
func written(t *testing.T, p *e2etest.Pulse) string {
	t.Helper()
	info, err := os.Stat(configFile(p))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the configuration has mode %04o", info.Mode().Perm())
	}
	b, err := os.ReadFile(configFile(p))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func initialise(t *testing.T, p *e2etest.Pulse, in e2etest.Invocation, parts ...string) {
	t.Helper()
	in.Args = append([]string{"init"}, in.Args...)
	out, errs, code := p.Invoke(in)
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	oneAfterTheOther(t, out, append(parts, "Wrote "+configFile(p), "pulse up")...)
}

func TestInitWritesWhatUpStartsWith(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]e2etest.Invocation{
		"answers": {Stdin: "\n\n"},
		"--yes":   {Args: []string{"--yes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, repo := fresh(t), e2etest.Repo(t)
			in.Dir = filepath.Join(repo.Path, ".git", "..")
			initialise(t, p, in, "No bot: goals come from the terminal", "Project: my-app, at "+repo.Path+", branch main", "Agent claude is not ready: ", "→ npm install")
			if got := written(t, p); !strings.Contains(got, "path: "+repo.Path) {
				t.Errorf("pulse.yaml:\n%s", got)
			}
			p.Up()
			if list, err := p.Client().Projects(e2etest.Context(t)); err != nil || len(list) != 1 || list[0].Name != "my-app" {
				t.Errorf("projects: %+v, %v", list, err)
			}
			s, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "say hello", Agent: "scripted"})
			if err != nil {
				t.Fatal(err)
			}
			p.AwaitSession(string(s.ID), pulse.SessionComplete)
			p.Stop()

			before := written(t, p)
			out, errs, code := p.Invoke(e2etest.Invocation{Args: []string{"init", "--yes"}, Dir: repo.Path})
			if code != 4 || !strings.Contains(errs, configFile(p)+" is there already") || !strings.Contains(errs, "--force") {
				t.Errorf("a second init: exit code %d\n%s%s", code, out, errs)
			}
			if written(t, p) != before {
				t.Error("the second init changed the configuration")
			}
			initialise(t, p, e2etest.Invocation{Args: []string{"--yes", "--force", "--agent", "scripted"}, Dir: repo.Path}, "Project: my-app")
			if got := written(t, p); !strings.Contains(got, "agent: scripted") {
				t.Errorf("pulse.yaml:\n%s", got)
			}
		})
	}
}

// nothing wants that init has left nothing behind.
func nothing(t *testing.T, p *e2etest.Pulse, what string) {
	t.Helper()
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(configFile(p)), "*")); len(files) > 0 {
		t.Errorf("%s left %q", what, files)
	}
}

func TestInitIsLeftWithCtrlC(t *testing.T) {
	t.Parallel()
	for _, answers := range []string{"", "\n"} {
		p := fresh(t)
		term := p.Terminal("init")
		term.Shows("Telegram bot token")
		term.Type(answers)
		if answers != "" {
			term.Shows("Repository to work on")
		}
		term.Type("\x03")
		ends(t, term, 130, 5*time.Second)
		nothing(t, p, "Ctrl-C")
	}
}

func TestInitWithNobodyToAnswerWritesNothing(t *testing.T) {
	t.Parallel()
	p, repo := fresh(t), e2etest.Repo(t)
	for _, answers := range []string{"", "\n"} {
		out, errs, code := p.Invoke(e2etest.Invocation{Args: []string{"init"}, Stdin: answers, Dir: repo.Path})
		if code != 2 || !strings.Contains(errs, "nobody answers") || !strings.Contains(errs, "--yes") {
			t.Errorf("exit code %d\n%s%s", code, out, errs)
		}
		nothing(t, p, "an input that is over")
	}
	// A wrong answer does not take the default away.
	initialise(t, p, e2etest.Invocation{Stdin: "\n/nowhere/at/all\n\n", Dir: repo.Path}, "["+repo.Path+"]", "there is no repository at /nowhere/at/all",
		"["+repo.Path+"]", "Project: my-app, at "+repo.Path)
}

func TestInitWritesTheFileThatIsRead(t *testing.T) {
	t.Parallel()
	repo := e2etest.Repo(t)
	yes := func(p *e2etest.Pulse, env []string, args ...string) (out, errs string, code int) {
		return p.Invoke(e2etest.Invocation{Args: append([]string{"init", "--yes"}, args...), Dir: repo.Path, Env: env})
	}
	p := fresh(t)
	named := filepath.Join(p.Home, "elsewhere", "mine.yaml")
	env := []string{"PULSE_CONFIG=" + named}
	if out, errs, code := yes(p, env); code != 0 || !strings.Contains(out, "Wrote "+named) || !strings.Contains(out, "    pulse up\n") {
		t.Errorf("$PULSE_CONFIG: exit code %d\n%s%s", code, out, errs)
	}
	nothing(t, p, "$PULSE_CONFIG")

	// The old file could be read by others, and somebody still has it open.
	if err := os.Chmod(named, 0o644); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(named)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if out, errs, code := yes(p, env, "--force", "--agent", "scripted"); code != 0 {
		t.Errorf("--force: exit code %d\n%s%s", code, out, errs)
	}
	before, err := io.ReadAll(old)
	if info, _ := os.Stat(named); err != nil || strings.Contains(string(before), "scripted") || info.Mode().Perm() != 0o600 {
		t.Errorf("the old file was written to (%v): %s", err, before)
	}

	other := filepath.Join(p.Home, "other.yaml")
	if out, errs, code := yes(p, env, "--file", other); code != 0 || !strings.Contains(out, "pulse up --config "+other) {
		t.Errorf("--file: exit code %d\n%s%s", code, out, errs)
	}
	repo.Write("pulse.yaml", "agent: scripted\n")
	here := filepath.Join(repo.Path, "pulse.yaml")
	if out, errs, code := yes(p, nil); code != 4 || !strings.Contains(errs, here+" is there already") {
		t.Errorf("./pulse.yaml: exit code %d\n%s%s", code, out, errs)
	}
}

func TestInitWithABot(t *testing.T) {
	t.Parallel()
	tg := telegramtest.Start(t, telegramtest.Options{})
	p, repo := fresh(t), e2etest.Repo(t)
	wrong := "123456789:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	initialise(t, p, e2etest.Invocation{Args: []string{"--telegram-api-url", tg.URL(), "--agent", "scripted"}, Dir: p.Home,
		Stdin: "not a token\n" + wrong + "\n" + tg.Token() + "\n" + p.Home + "\n/nowhere/at/all\n" + repo.Path + "\n"},
		"Telegram bot token", "→ ", "Telegram bot token", "→ ", "Telegram bot token", "Bot: @"+tg.Username(),
		"Repository to work on", p.Home+" is not a git repository", "Repository to work on", "there is no repository at /nowhere/at/all",
		"Repository to work on", "Project: my-app, at "+repo.Path)
	p.Up()
	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(p.PairCode())
	ann.Say("say hello")
	ann.Hears("✅ [my-app] Session complete")
	for _, out := range []string{p.Output(), p.Log()} {
		if strings.Contains(out, tg.Token()) {
			t.Error("the bot's token is printed")
		}
	}
}

func TestInitRefusesWhatWasGivenWrong(t *testing.T) {
	t.Parallel()
	tg := telegramtest.Start(t, telegramtest.Options{})
	p, empty := fresh(t), t.TempDir()
	git := e2etest.RepoAt(t, filepath.Join(t.TempDir(), "unborn"))
	git.Git("update-ref", "-d", "refs/heads/main")
	shallow := filepath.Join(t.TempDir(), "shallow")
	full := e2etest.Repo(t)
	full.Git("commit", "-q", "--allow-empty", "-m", "second commit")
	full.Git("clone", "-q", "--depth", "1", "file://"+full.Path, shallow)
	for _, c := range []struct {
		args  []string
		parts []string
	}{
		{[]string{"--repo", empty}, []string{empty + " is not a git repository", "→ give the path of one, or make one with: git init"}},
		{[]string{"--repo", "/nowhere/at/all"}, []string{"there is no repository at /nowhere/at/all", "→ "}},
		{[]string{"--repo", git.Path}, []string{git.Path + " has no commit yet", "→ make the first one: git -C " + git.Path}},
		{[]string{"--repo", shallow}, []string{shallow + " is a shallow clone", "→ complete it with: git -C " + shallow + " fetch --unshallow"}},
		{[]string{"--repo", full.Path, "--agent", "nobody"}, []string{`there is no agent "nobody"`, "→ use one of: claude"}},
		{[]string{"--telegram-token", "123456789:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "--telegram-api-url", tg.URL()}, []string{"token", "→ "}},
	} {
		out, errs, code := p.Invoke(e2etest.Invocation{Args: append([]string{"init", "--yes"}, c.args...), Dir: p.Home})
		if code == 0 || code == 1 {
			t.Errorf("%q: exit code %d\n%s", c.args, code, out)
		}
		oneAfterTheOther(t, errs, append([]string{"pulse: "}, c.parts...)...)
		if _, err := os.Stat(configFile(p)); !os.IsNotExist(err) {
			t.Fatalf("%q left a configuration (%v)", c.args, err)
		}
	}
	// Out of reach is no reason to refuse: the token may be right.
	initialise(t, p, e2etest.Invocation{Args: []string{"--yes", "--telegram-token", tg.Token(), "--telegram-api-url", "http://127.0.0.1:1"}, Dir: p.Home},
		"Telegram is out of reach", "No repository yet")
	p.Up()
}
