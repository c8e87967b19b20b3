package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

func TestConversationOnTheTerminal(t *testing.T) {
	t.Parallel()
	repo := e2etest.Repo(t)
	p := e2etest.New(t, e2etest.Options{Projects: one(repo), Script: `
iterations:
  - - think: "I have to know more."
    - write: {path: draft.txt, content: "draft\n"}
    - run: '` + e2etest.Hold("draft") + `'
    - say: "A draft is there."
    - signal: CONTINUE
  - - say: "Which port should it listen on?"
    - signal: BLOCKED
  - - write: {path: port.txt, content: "{{answer}}\n"}
    - say: "It listens on {{answer}} now."
    - signal: COMPLETE
`})
	term := p.Terminal("up")
	term.Shows("Listening on http://" + p.Addr)
	term.Shows("\n›")
	term.Type("/help\n")
	term.Shows("/status")
	term.Type("serve the page\n")
	term.Shows("🚀 [my-app] Started: serve the page")
	p.AwaitHeld("draft")
	term.Shows("shell touch") // the live line says what the agent does
	term.Type("/sta")         // somebody is typing while messages come in
	p.Open("draft")
	term.Shows("⏸️ [my-app] Blocked: Which port should it listen on?")
	term.Type("tus\n")
	term.Shows("› /status\n")
	term.Shows("blocked · iteration 2/10")
	term.Type("8080\n")
	term.Shows("✅ [my-app] Session complete (3 iterations, 2 commits)")
	term.Shows("It listens on 8080 now.")
	term.EndOfInput()
	if code := term.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	screen := term.Screen()
	oneAfterTheOther(t, screen, "Agent: scripted", "\n› /help\n", "\n› serve the page\n🚀 [my-app] Started", "📍 [my-app] Iteration 1/10: A draft is there. Continuing...",
		"⏸️ [my-app] Blocked: Which port", "\n› /status\n", "\n› 8080\n", "▶️ ", "✅ [my-app] Session complete")
	for _, line := range strings.Split(screen, "\n") {
		if strings.Contains(line, "⚙️") && !strings.Contains(line, "running") || strings.Contains(line, "level=") || line == "›" {
			t.Errorf("this line is left over on the screen: %q", line)
		}
	}
	if log, err := os.ReadFile(filepath.Join(p.DataDir, "pulse.log")); err != nil || !strings.Contains(string(log), "agent started") {
		t.Errorf("the log of a conversation is in the data directory: %v\n%s", err, log)
	}
	if got := repo.File(repo.Branches()[0], "port.txt"); got != "8080" {
		t.Errorf("the agent was told %q", got)
	}
}

func TestTheLimitIsAskedAfterTheLastIteration(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{Projects: one(e2etest.Repo(t)), Config: "loop: {max_iterations: 2}\n", Script: `
repeat_last: true
iterations:
  - - append: {path: log.txt, content: "{{iteration}}\n"}
    - say: "Line {{iteration}} is written."
    - signal: CONTINUE
`})
	term := p.Terminal("up")
	term.Shows("Listening on")
	term.Type("write the log\n")
	term.Shows("[1] 2 more   [2] Stop\n   Type a number to choose.")
	term.Type("1\n")
	term.Shows("All 4 iterations are used")
	term.Type("2\n")
	term.Shows("🛑 Stop: the session ends here.")
	term.EndOfInput()
	if code := term.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	oneAfterTheOther(t, term.Screen(), "📍 [my-app] Iteration 1/2: Line 1 is written. Continuing...\n", "📍 [my-app] Iteration 2/2: Line 2 is written.\n",
		"⏸️ [my-app] Blocked: All 2 iterations are used", "\n› 1\n", "📍 [my-app] Iteration 3/4: Line 3 is written. Continuing...\n",
		"📍 [my-app] Iteration 4/4: Line 4 is written.\n", "⏸️ [my-app] Blocked: All 4 iterations are used", "\n› 2\n", "🛑 ")
}

func TestWhatWasMissedIsToldAtTheNextStart(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{Projects: one(e2etest.Repo(t)), Script: `
iterations:
  - - run: '` + e2etest.Hold("work") + `'
    - say: "Done."
    - signal: COMPLETE
`, Config: "daemon: {shutdown_grace: 100ms}\n"})
	term := p.Terminal("up")
	term.Shows("Listening on")
	term.Type("do it\n")
	p.AwaitHeld("work")
	term.Type("\x03")
	if code := term.Wait(); code != 0 {
		t.Errorf("Ctrl-C: exit code %d", code)
	}
	p.Open("work")
	again := p.Terminal("up")
	again.Shows("✅ [my-app] Session complete")
	again.EndOfInput()
	if code := again.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// ends wants the program to end with the code within the time.
func ends(t *testing.T, term *e2etest.Terminal, code int, within time.Duration) {
	t.Helper()
	begin := time.Now()
	if got := term.Wait(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	if took := time.Since(begin); took > within {
		t.Errorf("the end took %s, more than %s", took, within)
	}
}

func TestSIGTERMEndsThingsInOrder(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{Projects: one(e2etest.Repo(t)), Config: "daemon: {shutdown_grace: 1s}\n", Script: `
iterations:
  - - write: {path: half.txt, content: "half\n"}
    - run: '` + e2etest.Hold("work") + `'
    - say: "Done."
    - signal: COMPLETE
`})
	idle := p.Terminal("up")
	idle.Shows("Listening on")
	idle.Signal(syscall.SIGTERM)
	ends(t, idle, 0, 2*time.Second)

	busy := p.Terminal("up")
	busy.Shows("Listening on")
	s, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "work on it"})
	if err != nil {
		t.Fatal(err)
	}
	p.AwaitHeld("work")
	busy.Signal(syscall.SIGTERM)
	ends(t, busy, 0, 3*time.Second) // the grace, and two seconds
	if left := p.Processes(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	// What was interrupted is done by the next start.
	p.Open("work")
	p.Up()
	d := p.AwaitSession(string(s.ID), pulse.SessionComplete)
	if d.Session.CurrentIteration != 1 || d.Session.TotalCommits != 1 {
		t.Errorf("after the restart: iteration %d, %d commits", d.Session.CurrentIteration, d.Session.TotalCommits)
	}
}

func TestASecondSIGTERMEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{Projects: one(e2etest.Repo(t)), Config: "daemon: {shutdown_grace: 5m}\n", Script: `
iterations:
  - - ignore_sigterm: true
    - run: 'trap : TERM INT; ` + e2etest.Hold("work") + `'
    - hang: true
`})
	term := p.Terminal("up")
	term.Shows("Listening on")
	if _, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "never end"}); err != nil {
		t.Fatal(err)
	}
	p.AwaitHeld("work")
	term.Signal(syscall.SIGTERM)
	e2etest.Await(t, "the API to close", func() bool { return p.Anonymous().Health(t.Context()) != nil })
	term.Signal(syscall.SIGTERM)
	ends(t, term, -1, 2*time.Second)
	e2etest.Await(t, "the end of the agent", func() bool { return len(p.Processes()) == 0 })
}
