package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pulseloop/api/wire"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/internal/sandbox"
	"pulseloop/pulse"
)

// prisoner tries, from inside its run, what an agent must not manage. What it gets hold of is in its commit, its count of
// successes too; what it writes outside would be found there.
const prisoner = `
attempt() { if sh -c "$1" >> loot.txt 2>> errors.txt; then echo "$1" >> succeeded.txt; fi; }
echo begun > succeeded.txt
attempt 'cat %[1]s/token'
attempt 'head -c 100 %[1]s/pulse.db'
attempt 'ls %[1]s/worktrees | grep -v "$(basename "$PWD")"'
attempt 'cat %[2]s/secret.txt'
attempt 'ln -s %[1]s way; cat way/token'
attempt 'ln %[1]s/token hard; cat hard'
attempt 'cat /proc/self/root%[1]s/token'
attempt 'for p in /proc/[0-9]*; do tr "\0" "\n" < $p/environ | grep PULSE_TELEGRAM_TOKEN; done | grep .'
attempt 'for p in /proc/[0-9]*; do cat $p/root%[1]s/token; done | grep .'
attempt 'for p in /proc/[0-9]*; do ls $p/cwd/pulse.db; done | grep .'
attempt 'setsid -w cat %[1]s/token'
attempt 'echo x > %[1]s/escaped'
attempt 'echo x > %[2]s/escaped'
attempt 'echo x > %[3]s/escaped'
attempt 'echo x > "$(cat .git/objects/info/alternates)/escaped"'
attempt 'cat "$(cat .git/objects/info/alternates)/../config"'
attempt 'kill -0 %[4]d'
echo x > "$HOME/escaped" # in a /tmp of its own, where the home of this test lies, that may seem to succeed
git add -A && git commit -q -m "feat: what I got" && git log --format=%%s > log.txt
echo x > "$TMPDIR/mine" && echo $PULSE_SANDBOX > level.txt
`

func TestAnAgentStaysInItsSandbox(t *testing.T) {
	t.Parallel()
	for _, level := range []sandbox.Level{sandbox.Landlock, sandbox.Bubblewrap} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			needsSandbox(t, string(level))
			tg := telegramtest.Start(t, telegramtest.Options{})
			mine := e2etest.Repo(t)
			theirs := e2etest.RepoAt(t, filepath.Join(t.TempDir(), "theirs"))
			theirs.Write("secret.txt", "another project's secret\n")
			p := e2etest.New(t, e2etest.Options{Telegram: tg, Projects: map[string]*e2etest.Repository{"my-app": mine, "theirs": theirs},
				Env: []string{"PULSE_SANDBOX=" + string(level)}, Script: "iterations: []"})
			lines := strings.Split(strings.TrimSpace(fmt.Sprintf(prisoner, p.DataDir, theirs.Path, mine.Path, os.Getpid())), "\n")
			p.WriteScript("iterations:\n  - - run: |\n        " + strings.Join(lines, "\n        ") +
				"\n    - run: 'cat " + p.DataDir + "/token'\n    - say: I tried.\n    - signal: COMPLETE\n")
			p.Up()
			ann := e2etest.NewPerson(t, tg, "Ann")
			ann.Pair(p.PairCode())
			ann.Say("/project my-app")
			ann.Say("behave yourself")
			ann.Hears("✅ [my-app] Session complete", "Sandbox: "+string(level))

			s := p.Only()
			for name, want := range map[string]string{"succeeded.txt": "begun", "level.txt": string(level)} {
				if got := mine.File(s.BranchName, name); got != want {
					t.Errorf("%s: %q; errors:\n%s", name, got, mine.File(s.BranchName, "errors.txt"))
				}
			}
			if !strings.Contains(mine.File(s.BranchName, "log.txt"), "feat: what I got") {
				t.Error("the agent could not commit")
			}
			loot := mine.File(s.BranchName, "loot.txt")
			for _, secret := range []string{p.Token(), tg.Token(), "another project's secret", "SQLite format"} {
				if strings.Contains(loot, secret) {
					t.Errorf("the agent got %q", secret)
				}
			}
			for _, dir := range []string{p.Home, p.DataDir, mine.Path, theirs.Path} {
				if _, err := os.Lstat(filepath.Join(dir, "escaped")); err == nil {
					t.Errorf("the agent wrote into %s", dir)
				}
			}
			if log := s.ProgressLog; len(log) != 1 || log[0].Sandbox != string(level) {
				t.Errorf("progress %+v", log)
			}
			if out, _, code := p.Run("show", string(s.ID)); code != 0 || !strings.Contains(out, "sandbox "+string(level)) {
				t.Errorf("show: %d\n%s", code, out)
			}
		})
	}
}

// A level that cannot be had here runs no agent, and says why.
func TestASandboxThatCannotBeHadRunsNoAgent(t *testing.T) {
	t.Parallel()
	repo := e2etest.Repo(t)
	p := e2etest.New(t, e2etest.Options{Projects: one(repo), Env: []string{"PULSE_SANDBOX=bubblewrap", "PATH=" + pathWithoutBwrap(t)},
		Script: "iterations: [[{run: 'touch ran'}, {signal: COMPLETE}]]"})
	p.Up()
	s, err := p.Client().Start(t.Context(), wire.Start{Goal: "try", ProjectName: "my-app"})
	if err != nil {
		t.Fatal(err)
	}
	d := p.AwaitSession(string(s.ID), pulse.SessionFailed)
	if !strings.Contains(d.Session.StatusReason, "bubblewrap cannot be had") || !strings.Contains(d.Session.StatusReason, "not installed") {
		t.Errorf("reason %q", d.Session.StatusReason)
	}
	if found, code := examine(t, p); code == 0 || !slices.ContainsFunc(found, func(f finding) bool {
		return f.Check == "sandbox" && f.State == "fail" && strings.Contains(f.Detail, "not installed") && f.Fix != ""
	}) {
		t.Errorf("doctor: %d %+v", code, found)
	}
	if len(repo.Branches()) != 0 {
		t.Errorf("branches %v", repo.Branches())
	}
}

// pathWithoutBwrap has git and no more.
func pathWithoutBwrap(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(git, filepath.Join(dir, "git")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// needsSandbox skips a test on a machine without what a level needs; the tests of internal/sandbox say what that is. In CI
// everything has to run.
func needsSandbox(t *testing.T, level string) {
	t.Helper()
	if level == string(sandbox.Bubblewrap) && os.Getenv("CI") != "true" {
		if _, err := exec.LookPath("bwrap"); err != nil {
			t.Skip("bubblewrap is not installed")
		}
	}
}
