package agent_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pulseloop/agent"
)

// tellAll calls every method once.
func tellAll(o agent.ProgressObserver) {
	o.OnLoopStart("root")
	o.OnBeadStart(agent.Bead{Title: "title"})
	o.OnToolStart(agent.ToolEvent{Name: "x"})
	o.OnToolEnd(agent.ToolEvent{Name: "x"})
	o.OnBeadComplete(agent.BeadResult{Outcome: agent.OutcomeQuestion, ExitCode: 1, Error: "e"})
	o.OnLoopEnd(&agent.CoreResult{Succeeded: 1, Failed: 2, Questions: 3, TimedOut: 4, Duration: time.Second})
}

var told = []string{"loop root", "bead title", "start x map[]", "end x map[]", "done question 1 e", "end 1 2 3 4"}

func TestMultiObserver(t *testing.T) {
	complaints := &bytes.Buffer{}
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(complaints, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	a, b := &watcher{}, &watcher{}
	var none *watcher
	var nothing agent.ProgressObserver
	m := agent.NewMultiObserver(nil, a, none, angry{}, nothing, b, agent.NoopObserver{}, (*angry)(nil))
	tellAll(m)
	if !slices.Equal(a.calls, told) || !slices.Equal(b.calls, told) {
		t.Errorf("before the angry one %q, after it %q, want %q", a.calls, b.calls, told)
	}
	if n := strings.Count(complaints.String(), "observer panicked"); n != len(told) {
		t.Errorf("%d calls panicked, want only the angry one's %d: none that is nil is called", n, len(told))
	}
	tellAll(agent.NewMultiObserver())
	tellAll(agent.NewMultiObserver(m, nil))
	if len(a.calls) != 2*len(told) {
		t.Errorf("through two: %q", a.calls)
	}
}

// Embedding NoopObserver leaves only what matters to be written.
type titles struct {
	agent.NoopObserver
	list []string
}

func (o *titles) OnBeadStart(b agent.Bead) { o.list = append(o.list, b.Title) }

func ExampleNoopObserver() {
	o := &titles{}
	tellAll(o)
	fmt.Println(o.list)
	// Output: [title]
}
