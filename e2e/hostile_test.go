package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
)

// planting is what a hostile agent leaves in its tree: everything by which git can be made to run a program of its choice.
// Whatever runs leaves a file in $HOME/pwned.
const planting = `
set -e
echo mine > mine.txt
git add mine.txt
git commit -q -m "feat: a commit of the agent"
trap_for() { printf 'touch "%s/pwned/%s"; cat' "$HOME" "$1"; }
mkdir -p evil-hooks .git/hooks
for hook in pre-commit commit-msg post-commit post-checkout post-merge post-rewrite post-index-change reference-transaction \
	pre-push pre-auto-gc update post-update pre-receive post-receive proc-receive push-to-checkout fsmonitor-watchman; do
	printf '#!/bin/sh\ntouch "%s/pwned/%s"\n' "$HOME" "$hook" | tee ".git/hooks/$hook" > "evil-hooks/$hook"
	chmod +x ".git/hooks/$hook" "evil-hooks/$hook"
done
mkdir -p nested/.git
cp -r .git/. nested/.git
for repo in .git nested/.git; do
	cat >> $repo/config <<END
[core]
	hooksPath = $PWD/evil-hooks
	fsmonitor = touch $HOME/pwned/fsmonitor
	sshCommand = touch $HOME/pwned/ssh
	pager = touch $HOME/pwned/pager
	editor = touch $HOME/pwned/editor
	attributesFile = $PWD/.gitattributes
[filter "evil"]
	clean = $(trap_for clean | sed 's/"/\\"/g')
	smudge = $(trap_for smudge | sed 's/"/\\"/g')
	process = touch $HOME/pwned/process
	required = false
[diff "evil"]
	command = touch $HOME/pwned/diff
	textconv = touch $HOME/pwned/textconv
[diff]
	external = touch $HOME/pwned/external
[commit]
	gpgSign = true
[gpg]
	program = touch $HOME/pwned/gpg
[uploadpack]
	packObjectsHook = touch $HOME/pwned/pack-objects
[credential]
	helper = "!touch $HOME/pwned/credential"
[include]
	path = $HOME/victim/.git/config
[alias]
	status = "!touch $HOME/pwned/alias"
END
done
echo '* filter=evil diff=evil merge=evil' > .gitattributes
echo inner > nested/inner.txt
echo after > after.txt
`

// TestHostileAgentGetsNothingRun: hooks, filters, fsmonitor, nested repositories and a .git that leads elsewhere. The agent's
// own commit is kept, nothing it planted is run or read through, and the person's repository gains a branch and no more.
func TestHostileAgentGetsNothingRun(t *testing.T) {
	t.Parallel()
	tg := telegramtest.Start(t, telegramtest.Options{})
	repo := e2etest.Repo(t)
	p := e2etest.New(t, e2etest.Options{Telegram: tg, Projects: one(repo), Script: `
iterations:
  - - run: 'sh "$HOME/plant.sh" > "$HOME/plant.log" 2>&1 && touch "$HOME/planted"'
    - say: "More to do."
    - signal: CONTINUE
  - - run: 'rm -rf .git && ln -s "$HOME/victim/.git" .git && echo linked > linked.txt'
    - say: "More to do."
    - signal: CONTINUE
  - - run: 'rm -rf .git && echo "gitdir: $HOME/victim/.git" > .git && echo pointed > pointed.txt'
    - say: "Done."
    - signal: COMPLETE
`})
	if err := os.WriteFile(filepath.Join(p.Home, "plant.sh"), []byte(planting), 0o600); err != nil {
		t.Fatal(err)
	}
	pwned := filepath.Join(p.Home, "pwned")
	if err := os.Mkdir(pwned, 0o700); err != nil {
		t.Fatal(err)
	}
	victim := e2etest.RepoAt(t, filepath.Join(p.Home, "victim"))
	victim.Write("treasure.txt", "the crown jewels\n")
	victim.Git("add", "treasure.txt")
	victim.Git("commit", "-q", "-m", "treasure")
	before, untouched := repo.Snapshot(), victim.Snapshot()

	p.Up()
	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(p.PairCode())
	ann.Say("behave yourself")
	ann.Hears("✅ [my-app] Session complete (3 iterations")

	if _, err := os.Stat(filepath.Join(p.Home, "planted")); err != nil {
		log, _ := os.ReadFile(filepath.Join(p.Home, "plant.log"))
		t.Fatalf("nothing was planted, so that this test says nothing: %s", log)
	}
	ran, err := os.ReadDir(pwned)
	if err != nil || len(ran) != 0 {
		t.Errorf("what the agent planted was run: %v (%v)", ran, err)
	}
	if repo.Snapshot() != before {
		t.Error("the person's repository was changed")
	}
	if victim.Snapshot() != untouched || len(victim.Branches()) != 0 {
		t.Error("the repository that .git led to was changed")
	}
	branch := p.Only().BranchName
	if got := repo.Branches(); !slices.Equal(got, []string{branch}) {
		t.Errorf("branches: %q", got)
	}
	if got := repo.Subjects(branch); len(got) < 2 || got[0] != "feat: a commit of the agent" {
		t.Errorf("commits: %q", got)
	}
	for name, want := range map[string]string{"mine.txt": "mine", "after.txt": "after", "linked.txt": "linked", "pointed.txt": "pointed"} {
		if got := repo.File(branch, name); got != want {
			t.Errorf("%s on the branch is %q", name, got)
		}
	}
	files := strings.Fields(repo.Git("ls-tree", "-r", "--name-only", branch))
	for _, name := range files {
		if name == "treasure.txt" || strings.HasPrefix(name, "nested/") || strings.Contains(name, ".git/") {
			t.Errorf("%s is on the branch", name)
		}
	}
	if got := repo.Git("rev-list", "--objects", "--all"); strings.Contains(got, "treasure") {
		t.Error("objects of another repository were taken over")
	}
}

// TestKilledProgramLeavesNoProcess: the power is cut while an agent works that has sent a stubborn process out of its session.
// All of them end with the program, and the next start goes on.
func TestKilledProgramLeavesNoProcess(t *testing.T) {
	t.Parallel()
	tg := telegramtest.Start(t, telegramtest.Options{})
	repo := e2etest.Repo(t)
	p := e2etest.Start(t, e2etest.Options{Telegram: tg, Projects: one(repo), Script: `
iterations:
  - - run: 'setsid sh -c "trap : TERM INT HUP; touch $HOME/stubborn.held; while :; do sleep 1; done" >/dev/null 2>&1 & sleep 300'
`})
	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(p.PairCode())
	ann.Say("work for ever")
	p.AwaitHeld("stubborn")
	if n := len(p.Processes()); n < 4 {
		t.Fatalf("%d processes: the agent's orphan is missing: %q", n, p.Processes())
	}
	p.Kill()
	e2etest.Await(t, "the end of all that the agent started", func() bool { return len(p.Processes()) == 0 })
	p.WriteScript(`
iterations:
  - - write: {path: done.txt, content: "done\n"}
    - say: "Done."
    - signal: COMPLETE
`)
	p.Up()
	ann.Hears("✅ [my-app] Session complete (1 iteration, 1 commit)")
}
