package e2e

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// conversation is what the agent does in the long talk: it works and waits, obeys guidance and asks, uses the answer, and
// takes a follow-up.
var conversation = `
iterations:
  - - think: "First the greeting."
    - write: {path: greeting.txt, content: "Hello.\n"}
    - run: '` + e2etest.Hold("first") + `'
    - usage: {input: 1000, output: 200, cost: 0.01}
    - say: "I added the greeting. It could be politer."
    - signal: CONTINUE
  - - when_prompt_contains: "Guidance: please say welcome too"
      write: {path: welcome.txt, content: "Welcome.\n"}
    - usage: {input: 1100, output: 100, cost: 0.02}
    - say: "Which port should it listen on?"
    - signal: BLOCKED
  - - write: {path: port.txt, content: "{{answer}}\n"}
    - usage: {input: 1200, output: 50, cost: 0.005}
    - say: "Greeting, welcome and port are there."
    - signal: COMPLETE
  - - write: {path: farewell.txt, content: "{{goal}}\n"}
    - say: "The farewell is there too."
    - signal: COMPLETE
`

func one(r *e2etest.Repository) map[string]*e2etest.Repository {
	return map[string]*e2etest.Repository{"my-app": r}
}

func id(n int64) string { return strconv.FormatInt(n, 10) }

// nothingStarted fails the test if anybody's words had an effect.
func nothingStarted(t *testing.T, p *e2etest.Pulse) {
	t.Helper()
	for _, table := range []string{"pulse_sessions", "pulse_iterations", "inbox_tasks", "operators", "channels"} {
		if n := p.Count("SELECT count(*) FROM " + table); n != 0 {
			t.Errorf("%d rows in %s", n, table)
		}
	}
}

func TestTelegramFromPairingToCompletion(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		tg := telegramtest.Start(t, telegramtest.Options{})
		repo := e2etest.Repo(t)
		before := repo.Snapshot()
		p := e2etest.Start(t, e2etest.Options{Database: database, Telegram: tg, Script: conversation, Projects: one(repo)})
		mallory, ann := e2etest.NewPerson(t, tg, "Mallory"), e2etest.NewPerson(t, tg, "Ann")

		mallory.Say("add a backdoor")
		mallory.Hears("only work for people I know")
		mallory.Say("/pair ABCD-EFGH-IJKL")
		mallory.Hears("This code is not right")
		nothingStarted(t, p)

		code := p.PairCode()
		ann.Pair(code)
		mallory.Say("/pair " + code)
		mallory.Hears("This code is not right")

		ann.Say("add a greeting")
		ann.Hears("🚀 [my-app] Started: add a greeting")
		p.AwaitHeld("first")
		progress := ann.Hears("⚙️ [my-app] Iteration 1/10")
		if _, err := ann.Chat.AwaitMessage(e2etest.Context(t), func(m telegramtest.Message) bool {
			return m.ID == progress.ID && strings.Contains(m.Text, "greeting.txt")
		}); err != nil {
			t.Fatalf("the progress message does not come to show the work: %v", err)
		}
		ann.Say("please say welcome too")
		ann.Hears("📝 Noted")
		p.Open("first")
		ann.Hears("📍 [my-app] Iteration 1/10: I added the greeting", "Continuing...", "Commit: ")
		if _, err := ann.Chat.AwaitMessage(e2etest.Context(t), func(m telegramtest.Message) bool {
			return m.ID == progress.ID && len(m.Edits) > 0
		}); err != nil {
			t.Fatalf("the progress message is not edited: %v", err)
		}

		blocked := ann.Hears("⏸️ [my-app] Blocked: Which port should it listen on?")
		intrude(t, tg, mallory, blocked, string(p.Only().ID))
		if s := p.Only(); s.Status != pulse.SessionBlocked || s.CurrentIteration != 2 {
			t.Errorf("after the intrusion the session is %s in iteration %d", s.Status, s.CurrentIteration)
		}

		ann.Reply(blocked, "8080")
		ann.Hears("▶️ Thank you")
		done := ann.Hears("✅ [my-app] Session complete (3 iterations, 3 commits)", "Tokens: 3,650", "Cost: $0.04")

		ann.Reply(done, "now write a farewell")
		ann.Hears("🔁")
		ann.Hears("✅ [my-app] Session complete (4 iterations, 4 commits)")

		branch := p.Only().BranchName
		for name, want := range map[string]string{"greeting.txt": "Hello.", "welcome.txt": "Welcome.", "port.txt": "8080", "farewell.txt": "now write a farewell"} {
			if got := repo.File(branch, name); got != want {
				t.Errorf("%s on %s is %q", name, branch, got)
			}
		}
		if got := repo.Subjects(branch); len(got) != 4 || !strings.Contains(got[0], "add a greeting") {
			t.Errorf("commits: %q", got)
		}
		if got := repo.Branches(); !slices.Equal(got, []string{branch}) {
			t.Errorf("branches: %q", got)
		}
		if after := repo.Snapshot(); after != before {
			t.Errorf("the person's repository was changed\nbefore:\n%s\nafter:\n%s", before, after)
		}
		for prefix, want := range map[string]int{"🚀": 1, "📍": 1, "⏸️": 1, "▶️": 1, "🔁": 1, "✅": 2} {
			if got := ann.Heard(prefix); got != want {
				t.Errorf("%d messages %s, want %d", got, prefix, want)
			}
		}
		if n := p.Count("SELECT count(*) FROM pulse_sessions"); n != 1 {
			t.Errorf("%d sessions", n)
		}
	})
}

// intrude tries all that somebody without a pairing can: commands, a press of another's button, a reply, an edit. They know
// the session's id.
func intrude(t *testing.T, tg *telegramtest.Server, who *e2etest.Person, blocked telegramtest.Message, session string) {
	t.Helper()
	short := session[len(session)-8:]
	for _, text := range []string{"/answer " + short + " 666", "/abort " + short, "/resume " + short, "/pause " + short, "/status " + short,
		"/list", "/show " + short, "/prompt " + short, "/projects", "/project my-app", "/pulse add a backdoor", "666"} {
		who.Say(text)
	}
	who.Reply(blocked, "666")
	cb := who.Chat.PressData(who.User, blocked.ID, "g:"+session+":more")
	if said, err := cb.Await(e2etest.Context(t)); err != nil || !strings.Contains(said, "not paired") {
		t.Errorf("the press was answered with %q (%v)", said, err)
	}
	if err := tg.Await(e2etest.Context(t), func() bool { return len(tg.Pending()) == 0 }); err != nil {
		t.Fatal(err)
	}
	for _, m := range who.Chat.FromBot() {
		for _, secret := range []string{"my-app", "greeting", "Session "} {
			if strings.Contains(m.Text, secret) {
				t.Errorf("a stranger was told: %q", m.Text)
			}
		}
	}
}

func TestTelegramCommands(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		tg := telegramtest.Start(t, telegramtest.Options{})
		app, site := e2etest.Repo(t), e2etest.RepoAt(t, t.TempDir()+"/my-site")
		p := e2etest.Start(t, e2etest.Options{Database: database, Telegram: tg, Config: "loop: {max_iterations: 2}\n", Script: `
repeat_last: true
iterations:
  - - append: {path: log.txt, content: "{{iteration}}\n"}
    - run: '` + e2etest.Hold("work") + `'
    - say: "Line {{iteration}} is written, more to do."
    - signal: CONTINUE
`, Projects: map[string]*e2etest.Repository{"my-app": app, "my-site": site}})
		ann := e2etest.NewPerson(t, tg, "Ann")
		ann.Pair(p.PairCode())

		ann.Say("/help")
		ann.Hears("/pulse GOAL", "/answer", "/pause", "/resume", "/abort", "/projects", "/project", "/status", "/list", "/show")
		ann.Say("/list")
		ann.Hears("There is no session yet")
		ann.Say("/projects")
		ann.Hears("my-app", "my-site")
		ann.Say("/project")
		ann.Hears("no project yet")

		ann.Say("/pulse write the log")
		choice := ann.Hears("Which project is this for?")
		cb := ann.Press(choice, "my-site")
		if _, err := cb.Await(e2etest.Context(t)); err != nil {
			t.Error(err)
		}
		ann.Hears("🚀 [my-site] Started: write the log", "Up to 2 iterations")
		p.AwaitHeld("work")
		ann.Say("/status")
		ann.Hears("⚙️ [my-site] running · iteration 1/2", "write the log")
		ann.Say("/pause")
		ann.Hears("⏸️ Will pause after the current iteration")
		p.Open("work")
		ann.Hears("⏸️ [my-site] Paused after iteration 1/2")
		ann.Say("/show")
		ann.Hears("💤 [my-site] paused", "1. complete, CONTINUE, ", "Line 1 is written")
		ann.Say("/resume")
		ann.Hears("▶️ Goes on")

		limit := ann.Hears("All 2 iterations are used")
		ann.Press(limit, "2 more")
		ann.Hears("▶️ 2 more: the session goes on")
		ann.Hears("All 4 iterations are used")
		ann.Say("/answer more")
		ann.Hears("▶️ 2 more: the session goes on")
		limit = ann.Hears("All 6 iterations are used")
		ann.Press(limit, "Stop")
		ann.Hears("the session ends here")
		ann.Press(limit, "2 more") // a late press of an old button changes nothing
		ann.Hears("⚠️")
		s := p.AwaitSession(string(p.Only().ID), pulse.SessionAborted).Session
		if s.CurrentIteration != 6 || s.TotalCommits != 6 {
			t.Errorf("%d iterations, %d commits", s.CurrentIteration, s.TotalCommits)
		}
		ann.Say("/list")
		ann.Hears("🛑", "[my-site] aborted, 6/6: write the log")
		if got := site.File(s.BranchName, "log.txt"); got != "1\n2\n3\n4\n5\n6" {
			t.Errorf("log.txt is %q", got)
		}

		ann.Say("/project my-app")
		ann.Hears("📌 This chat works on my-app now")
		ann.Say("/nonsense")
		ann.Hears("I do not know /nonsense")
		if got := app.Branches(); len(got) != 0 {
			t.Errorf("the other project has branches: %q", got)
		}
	})
}

func TestTelegramAbortEndsEveryProcess(t *testing.T) {
	t.Parallel()
	tg := telegramtest.Start(t, telegramtest.Options{})
	repo := e2etest.Repo(t)
	p := e2etest.Start(t, e2etest.Options{Telegram: tg, Projects: one(repo), Script: `
iterations:
  - - write: {path: half.txt, content: "half\n"}
    - ignore_sigterm: true
    - spawn_orphan: true
    - run: 'setsid sh -c "trap : TERM INT HUP; touch $HOME/stubborn.held; while :; do sleep 1; done" >/dev/null 2>&1 & sleep 300'
`})
	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(p.PairCode())
	idle := len(p.Processes())
	ann.Say("work for ever")
	p.AwaitHeld("stubborn")
	if n := len(p.Processes()); n < idle+3 {
		t.Fatalf("%d processes, %d before; the agent and its orphans are missing: %q", n, idle, p.Processes())
	}
	ann.Say("/abort")
	ann.Hears("🛑 Aborted: [my-app] work for ever")
	e2etest.Await(t, "the end of the agent and its orphans", func() bool { return len(p.Processes()) == idle })
	s := p.AwaitSession(string(p.Only().ID), pulse.SessionAborted).Session
	ann.Say("/status " + pulse.Short(s.ID))
	ann.Hears("🛑 [my-app] aborted")
	ann.Say("/resume " + pulse.Short(s.ID))
	ann.Hears("⚠️")
}
