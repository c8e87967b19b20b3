package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// pairCode has the program make a code for a role.
func pairCode(t *testing.T, p *e2etest.Pulse, role string) string {
	t.Helper()
	out, errs, code := p.Run("pair", "--role", role, "--json")
	var reply struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal([]byte(out), &reply); code != 0 || err != nil || reply.Code == "" {
		t.Fatalf("pair ended with %d (%v): %s%s", code, err, out, errs)
	}
	return reply.Code
}

// TestPeopleAndTheirRoles: who guesses codes is shut out, a viewer looks and changes nothing, and a second operator answers
// what the first one's session asks.
func TestPeopleAndTheirRoles(t *testing.T) {
	t.Parallel()
	tg := telegramtest.Start(t, telegramtest.Options{})
	repo := e2etest.Repo(t)
	p := e2etest.Start(t, e2etest.Options{Telegram: tg, Projects: one(repo), Script: `
iterations:
  - - say: "Which colour?"
    - signal: "BLOCKED: Which colour?"
  - - write: {path: colour.txt, content: "{{answer}}\n"}
    - say: "Painted."
    - signal: COMPLETE
`})
	mallory := e2etest.NewPerson(t, tg, "Mallory")
	for _, guess := range []string{"A", "BBBB-BBBB-BBBB", "'; DROP TABLE operators; --", "0000-0000-0000", strings.Repeat("9", 500)} {
		mallory.Say("/start " + guess)
		mallory.Hears("This code is not right")
	}
	code := p.PairCode()
	mallory.Say("/pair " + code) // the right one, too late
	mallory.Hears("Too many codes were tried")
	nothingStarted(t, p)

	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(code)
	vera, bob := e2etest.NewPerson(t, tg, "Vera"), e2etest.NewPerson(t, tg, "Bob")
	vera.Say("/start " + pairCode(t, p, "viewer"))
	vera.Hears("Paired. Hello, Vera! You are a viewer here.")
	bob.Pair(pairCode(t, p, "operator"))

	ann.Say("paint it")
	ann.Hears("⏸️ [my-app] Blocked: Which colour?")
	short := pulse.Short(p.Only().ID)
	vera.Say("/list")
	vera.Hears("[my-app] blocked")
	for _, text := range []string{"/answer " + short + " red", "/abort " + short, "paint it red", "/resume " + short} {
		vera.Say(text)
		vera.Hears("You may look, but not change anything")
	}
	if s := p.Only(); s.Status != pulse.SessionBlocked {
		t.Errorf("a viewer made the session %s", s.Status)
	}

	bob.Say("/answer " + short + " blue")
	bob.Hears("▶️ Thank you")
	ann.Hears("✅ [my-app] Session complete")
	if got := repo.File(p.Only().BranchName, "colour.txt"); got != "blue" {
		t.Errorf("colour.txt is %q", got)
	}
	if bob.Heard("✅") != 0 {
		t.Error("the outcome went to somebody who did not ask for it")
	}
}

// TestServeAndDaemonApart runs the front and the daemon as processes of their own on one PostgreSQL. The daemon is ended while
// its agent works, and started again; the front goes on listening in between.
func TestServeAndDaemonApart(t *testing.T) {
	t.Parallel()
	database := e2etest.Postgres(t)
	tg := telegramtest.Start(t, telegramtest.Options{})
	repo := e2etest.Repo(t)
	front := e2etest.Start(t, e2etest.Options{Command: []string{"serve"}, Database: database, Telegram: tg, Projects: one(repo)})
	daemon := e2etest.Start(t, e2etest.Options{Command: []string{"daemon"}, Database: database, Projects: one(repo), Script: interrupted,
		Env: []string{"PULSE_DAEMON_SHUTDOWN_GRACE=300ms"}})
	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(front.PairCode())
	ann.Say("do it in two parts")
	daemon.AwaitHeld("middle")
	daemon.Stop()
	daemon.Open("middle")
	ann.Say("mind the tests") // the front listens without a daemon
	ann.Hears("📝 Noted")
	daemon.Up()
	ann.Reply(ann.Hears("⏸️ [my-app] Blocked: May I go on?"), "yes, please")
	ann.Hears("✅ [my-app] Session complete (3 iterations, 2 commits)")
	if got := repo.File(front.Only().BranchName, "second.txt"); got != "yes, please" {
		t.Errorf("second.txt is %q", got)
	}
}
