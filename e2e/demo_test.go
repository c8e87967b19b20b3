package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pulseloop/api/client"
	"pulseloop/e2e/e2etest"
)

// oneAfterTheOther fails the test unless the parts stand in the text in this order.
func oneAfterTheOther(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Fatalf("%q is missing, or not in its place:\n%s", part, text)
		}
		rest = after
	}
}

func leftInTmp(t *testing.T, p *e2etest.Pulse) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.Home, "tmp", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestDemoEndsByItselfWithoutATerminal(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{Agent: "-"})
	// The demonstration is for everybody: what is configured on the machine does not matter to it.
	out, errs, code := p.Invoke(e2etest.Invocation{Args: []string{"demo"}, Env: []string{"PULSE_CONFIG=/nonexistent/pulse.yaml"}})
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	// Which of its steps are shown hangs on how quickly they follow each other.
	oneAfterTheOther(t, out, "Agent: scripted (no agent CLI", "\n› Add a health endpoint", "⚙️ [sample] Iteration 1/10", "   · ",
		"📍 [sample] Iteration 1/10: I added a health endpoint", "Commit: ", "✅ [sample] Session complete (2 iterations, 2 commits)",
		"$ git log --stat main..pulse/add-a-health-endpoint", "docs/health.md", "health/health_test.go")
	if _, late, _ := strings.Cut(out, "✅"); strings.Contains(late, "⚙️") || strings.Contains(late, "   · ") {
		t.Errorf("progress is told after the end:\n%s", out)
	}
	if strings.Contains(out, "\x1b") || strings.Contains(out, "\r") {
		t.Errorf("control sequences where there is no terminal: %q", out)
	}
	if errs != "" {
		t.Errorf("on standard error: %s", errs)
	}
	if left := leftInTmp(t, p); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if _, err := os.Stat(p.DataDir); !os.IsNotExist(err) {
		t.Errorf("the demonstration touched the data directory (%v)", err)
	}
}

func TestDemoKeepsTheSampleAndSaysWhenItFails(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{Script: "iterations: [[{fail: {error: the model is gone}}]]\n"})
	out, errs, code := p.Run("demo", "--keep", "--goal", "do the impossible")
	if code != 1 || !strings.Contains(errs, "the demonstration's session is") || !strings.Contains(errs, "the model is gone") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if left := leftInTmp(t, p); len(left) != 1 {
		t.Errorf("--keep kept %q", left)
	}
}

func TestDemoStaysOnATerminal(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{})
	demo := p.Terminal("demo")
	demo.Shows("type another goal, /help, or Ctrl-D to end.\n›")
	framesOfTheDemo(t, p)
	demo.Type("say hello to everybody\n")
	demo.Shows("🚀 [sample] Started: say hello to everybody")
	demo.Shows("✅ [sample] Session complete (1 iteration, 1 commit)")
	demo.EndOfInput()
	if code := demo.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	screen := demo.Screen()
	oneAfterTheOther(t, screen, "Iteration 1/10: I added a health endpoint", "✅ [sample] Session complete (2 iterations, 2 commits)", "\n$ git log --stat main..",
		" 2 files changed, 39 insertions(+)\n\nThe sample project is yours", "\n› say hello to everybody\n🚀", "✅ [sample] Session complete (1 iteration")
	for _, line := range strings.Split(screen, "\n") {
		if strings.HasPrefix(line, "› $") || strings.Contains(line, "⚙️") || strings.HasSuffix(line, "› ") || line == "›" {
			t.Errorf("this line is left over on the screen: %q", line)
		}
	}
	if left := leftInTmp(t, p); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// framesOfTheDemo compares what the demonstration has recorded with the golden list.
func framesOfTheDemo(t *testing.T, p *e2etest.Pulse) {
	t.Helper()
	list, err := p.Anonymous().List(e2etest.Context(t), client.Filter{})
	if err != nil || len(list) != 1 {
		t.Fatalf("sessions of the demonstration: %+v, %v", list, err)
	}
	page, err := p.Anonymous().Events(e2etest.Context(t), string(list[0].ID), 0)
	if err != nil {
		t.Fatal(err)
	}
	j := newJournal(list[0].ID)
	for _, f := range page.Events {
		j.add(t, f)
	}
	same(t, "the events of the demonstration", j.lines, eventsOf(golden(t, "demo_frames.golden")))
}

func TestDemoInterruptedLeavesNothing(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{Script: "iterations: [[{run: '" + e2etest.Hold("work") + "'}]]\n",
		Env: []string{"PULSE_DAEMON_SHUTDOWN_GRACE=100ms"}})
	demo := p.Terminal("demo")
	p.AwaitHeld("work")
	demo.Signal(syscall.SIGTERM)
	if code := demo.Wait(); code == -1 {
		t.Error("the demonstration was killed by the signal, instead of ending in order")
	}
	e2etest.Await(t, "the end of the agent", func() bool { return len(p.Processes()) == 0 })
	if left := leftInTmp(t, p); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
