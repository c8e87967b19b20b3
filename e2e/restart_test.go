package e2e

import (
	"fmt"
	"testing"
	"time"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// interrupted is what an agent does whose first attempt never ends by itself.
var interrupted = `
iterations:
  - - write: {path: first.txt, content: "first\n"}
    - run: '` + e2etest.Hold("middle") + `'
    - usage: {input: 100, output: 10, cost: 0.001}
    - say: "The first part is there."
    - signal: CONTINUE
  - - say: "May I go on?"
    - signal: BLOCKED
  - - write: {path: second.txt, content: "{{answer}}\n"}
    - say: "All is there."
    - signal: COMPLETE
`

// TestRestartInTheMiddle ends the program while an agent works and again while a question is open, lets people talk in the
// meantime, and wants the conversation to go on with nothing lost and nothing doubled.
func TestRestartInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name string
		end  func(*e2etest.Pulse)
	}{{"SIGKILL", (*e2etest.Pulse).Kill}, {"SIGTERM", (*e2etest.Pulse).Stop}} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			e2etest.Databases(t, func(t *testing.T, database string) { restart(t, database, how.end) })
		})
	}
}

// settled returns when every message that was delivered is on record as such. Who is killed between the two delivers it
// again, which is not what is counted here.
func settled(t *testing.T, p *e2etest.Pulse) {
	t.Helper()
	e2etest.Await(t, "the outcome of the deliveries", func() bool {
		return p.Count("SELECT count(*) FROM notifications WHERE status = 'sending'") == 0
	})
}

func restart(t *testing.T, database string, end func(*e2etest.Pulse)) {
	tg := telegramtest.Start(t, telegramtest.Options{})
	repo := e2etest.Repo(t)
	before := repo.Snapshot()
	p := e2etest.Start(t, e2etest.Options{Database: database, Telegram: tg, Script: interrupted, Projects: one(repo),
		Env: []string{"PULSE_DAEMON_SHUTDOWN_GRACE=300ms"}})
	ann := e2etest.NewPerson(t, tg, "Ann")
	ann.Pair(p.PairCode())
	ann.Say("do it in two parts")
	ann.Hears("🚀 [my-app] Started")
	p.AwaitHeld("middle")

	settled(t, p)
	end(p)
	ann.Say("mind the tests") // while nobody listens
	p.Open("middle")
	began := time.Now()
	p.Up()
	ann.Hears("📝 Noted")
	blocked := ann.Hears("⏸️ [my-app] Blocked: May I go on?")
	t.Logf("the question came %s after the start", time.Since(began).Round(100*time.Millisecond))
	ann.Hears("📍 [my-app] Iteration 1/10: The first part is there")

	settled(t, p)
	end(p)
	ann.Reply(blocked, "yes, please")
	p.Up()
	ann.Hears("▶️ Thank you")
	ann.Hears("✅ [my-app] Session complete (3 iterations, 2 commits)")

	s := p.Only()
	d := p.AwaitSession(string(s.ID), pulse.SessionComplete)
	if len(d.Iterations) < 3 {
		t.Errorf("%d iterations are on record", len(d.Iterations))
	}
	if got := fmt.Sprint(repo.File(s.BranchName, "first.txt"), " / ", repo.File(s.BranchName, "second.txt")); got != "first / yes, please" {
		t.Errorf("the branch holds %q", got)
	}
	if got := repo.Subjects(s.BranchName); len(got) != 2 {
		t.Errorf("commits: %q", got)
	}
	if repo.Snapshot() != before {
		t.Error("the person's repository was changed")
	}
	for prefix, want := range map[string]int{"Paired": 1, "🚀": 1, "📝": 1, "📍": 1, "⏸️": 1, "▶️": 1, "✅": 1, "❌": 0} {
		if got := ann.Heard(prefix); got != want {
			t.Errorf("%d messages %s, want %d", got, prefix, want)
		}
	}
	for what, want := range map[string]int{"pulse_sessions": 1, "operators": 1, "gates": 1, "inbound_updates": 4} {
		if n := p.Count("SELECT count(*) FROM " + what); n != want {
			t.Errorf("%d rows in %s, want %d", n, what, want)
		}
	}
	if n := p.Count("SELECT count(*) FROM inbox_tasks WHERE status NOT IN ('complete', 'cancelled')"); n != 0 {
		t.Errorf("%d tasks are left open", n)
	}
}

// TestKilledAfterEveryMessage cuts the power the moment each message arrives. Nothing may be lost; what was delivered in the
// very moment may be said again: one message a kill.
func TestKilledAfterEveryMessage(t *testing.T) {
	t.Parallel()
	tg := telegramtest.Start(t, telegramtest.Options{})
	repo := e2etest.Repo(t)
	p := e2etest.Start(t, e2etest.Options{Telegram: tg, Script: interrupted, Projects: one(repo)})
	ann := e2etest.NewPerson(t, tg, "Ann")
	kills := 0
	again := func() { p.Kill(); p.Up(); kills++ }
	ann.Pair(p.PairCode())
	again()
	ann.Say("do it in two parts")
	ann.Hears("🚀 [my-app] Started")
	// Two of the three attempts of this iteration may be killed, and no more: the third is the one that succeeds.
	p.AwaitHeld("middle")
	again()
	ann.Say("mind the tests")
	ann.Hears("📝 Noted")
	again()
	p.Open("middle")
	blocked := ann.Hears("⏸️ [my-app] Blocked: May I go on?")
	again()
	ann.Hears("📍 [my-app] Iteration 1/10: The first part is there")
	again()
	ann.Reply(blocked, "yes, please")
	ann.Hears("▶️ Thank you")
	again()
	ann.Hears("✅ [my-app] Session complete (3 iterations, 2 commits)")
	again()
	ann.Say("/status " + pulse.Short(p.Only().ID))
	ann.Hears("✅ [my-app] complete · iteration 3/10 · 2 commits")

	s := p.Only()
	if got := fmt.Sprint(repo.File(s.BranchName, "first.txt"), " / ", repo.File(s.BranchName, "second.txt")); got != "first / yes, please" {
		t.Errorf("the branch holds %q", got)
	}
	if got := repo.Subjects(s.BranchName); len(got) != 2 {
		t.Errorf("commits: %q", got)
	}
	repeated := 0
	for _, prefix := range []string{"Paired", "🚀", "📝", "📍", "⏸️", "▶️", "✅ [my-app] Session complete"} {
		got := ann.Heard(prefix)
		if got < 1 {
			t.Errorf("the message %s was lost", prefix)
		}
		repeated += got - 1
	}
	if repeated > kills {
		t.Errorf("%d messages were said again, after %d kills", repeated, kills)
	}
	for what, want := range map[string]int{"pulse_sessions": 1, "operators": 1, "gates": 1, "inbound_updates": 5} {
		if n := p.Count("SELECT count(*) FROM " + what); n != want {
			t.Errorf("%d rows in %s, want %d", n, what, want)
		}
	}
}

// TestFaultsOfThePlatform lets Telegram deliver twice and out of order, refuse with retry_after, and cut connections after a
// call had its effect.
func TestFaultsOfThePlatform(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		tg := telegramtest.Start(t, telegramtest.Options{})
		repo := e2etest.Repo(t)
		p := e2etest.Start(t, e2etest.Options{Database: database, Telegram: tg, Script: interrupted, Projects: one(repo)})
		ann := e2etest.NewPerson(t, tg, "Ann")
		ann.Pair(p.PairCode())

		limited := tg.Inject(telegramtest.Fault{Method: "sendMessage", Times: 2, RetryAfter: 1})
		ann.Say("do it in two parts")
		ann.Hears("🚀 [my-app] Started")
		if limited.Hits() != 2 {
			t.Errorf("%d calls met the limit, want 2", limited.Hits())
		}
		p.AwaitHeld("middle")

		tg.RepeatUpdates(5) // more than there were: all of them again, in front of what follows
		tg.ReverseUpdates()
		ann.Say("mind the tests")
		ann.Hears("📝 Noted")
		tg.Inject(telegramtest.Fault{Method: "getUpdates", Status: 502})
		tg.Inject(telegramtest.Fault{Method: "editMessageText", Status: 500})
		p.Open("middle")
		blocked := ann.Hears("⏸️ [my-app] Blocked: May I go on?")
		ann.Hears("📍 [my-app] Iteration 1/10")

		tg.RepeatUpdates(5)
		ann.Reply(blocked, "yes, please")
		ann.Hears("▶️ Thank you")
		done := ann.Hears("✅ [my-app] Session complete (3 iterations, 2 commits)")

		tg.RepeatUpdates(5)
		tg.Inject(telegramtest.Fault{Method: "sendMessage", Status: 500})
		ann.Say("/status " + pulse.Short(p.Only().ID))
		ann.Hears("✅ [my-app] complete · iteration 3/10")
		if done.ID == 0 || ann.Heard("✅ [my-app] Session complete") != 1 {
			t.Errorf("completion was told %d times", ann.Heard("✅ [my-app] Session complete"))
		}
		for prefix, want := range map[string]int{"Paired": 1, "🚀": 1, "📝": 1, "📍": 1, "⏸️": 1, "▶️": 1, "⚠️": 0} {
			if got := ann.Heard(prefix); got != want {
				t.Errorf("%d messages %s, want %d", got, prefix, want)
			}
		}
		if n := p.Count("SELECT count(*) FROM pulse_sessions"); n != 1 {
			t.Errorf("%d sessions", n)
		}
		if n := p.Count("SELECT count(*) FROM inbound_updates"); n != 5 {
			t.Errorf("%d updates on record, want each once: 5", n)
		}
	})
}
