package pulse_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pulseloop/pulse"
)

// machine is a table of transitions with its states as plain strings.
func machine[S ~string](t pulse.Transitions[S]) map[string][]string {
	out := map[string][]string{}
	for from, tos := range t {
		out[string(from)] = []string{}
		for _, to := range tos {
			out[string(from)] = append(out[string(from)], string(to))
		}
	}
	return out
}

var machines = map[string]map[string][]string{
	"Session": machine(pulse.SessionTransitions), "Iteration": machine(pulse.IterationTransitions),
	"Task": machine(pulse.TaskTransitions), "Gate": machine(pulse.GateTransitions), "Notice": machine(pulse.NoticeTransitions),
}

// TestDiagramsAreTheTables compares docs/state-machines.md with the tables.
func TestDiagramsAreTheTables(t *testing.T) {
	text, err := os.ReadFile("../docs/state-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	edge := regexp.MustCompile(`(?m)^\s+(\w+) --> (\w+)$`)
	seen := 0
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		table, ok := machines[name]
		if !ok {
			t.Errorf("the page has a machine %q that is not in the code", name)
			continue
		}
		seen++
		var drawn, want []string
		for _, m := range edge.FindAllStringSubmatch(body, -1) {
			drawn = append(drawn, m[1]+" "+m[2])
		}
		for from, tos := range table {
			for _, to := range tos {
				want = append(want, from+" "+to)
			}
			if final := strings.Contains(body, "    "+from+" --> [*]"); final != (len(tos) == 0) {
				t.Errorf("%s: %s is drawn as final: %v", name, from, final)
			}
		}
		slices.Sort(drawn)
		slices.Sort(want)
		if !slices.Equal(drawn, want) {
			t.Errorf("%s is drawn as %v, the table is %v", name, drawn, want)
		}
	}
	if seen != len(machines) {
		t.Errorf("%d of %d machines are drawn", seen, len(machines))
	}
}

// TestEveryStateIsKnown: whatever can be reached has a row of its own.
func TestEveryStateIsKnown(t *testing.T) {
	for name, table := range machines {
		for from, tos := range table {
			for _, to := range tos {
				if _, ok := table[to]; !ok {
					t.Errorf("%s: %s leads to %s, which has no row", name, from, to)
				}
			}
		}
	}
	for _, s := range pulse.SessionStatuses() {
		if _, ok := pulse.SessionTransitions[s]; !ok {
			t.Errorf("session status %s has no row", s)
		}
	}
}

func TestSessionTransitions(t *testing.T) {
	allowed := map[[2]pulse.SessionStatus]bool{
		{"pending", "running"}: true, {"blocked", "running"}: true, {"complete", "running"}: true, {"running", "aborted"}: true,
		{"aborted", "running"}: false, {"complete", "aborted"}: false, {"pending", "complete"}: false, {"paused", "complete"}: false,
	}
	for c, want := range allowed {
		err := pulse.SessionTransitions.Check(c[0], c[1])
		if (err == nil) != want {
			t.Errorf("%s -> %s: %v", c[0], c[1], err)
		}
		if err != nil && pulse.CodeOf(err) != pulse.CodeConflict {
			t.Errorf("code %s", pulse.CodeOf(err))
		}
	}
	if got := pulse.SessionTransitions.From(pulse.SessionPaused); !slices.Equal(got, []pulse.SessionStatus{"pending", "running"}) {
		t.Errorf("paused is reached from %v", got)
	}
}

func TestUUIDsSortByTime(t *testing.T) {
	at := time.Now()
	var last string
	for i := range 1000 {
		id := pulse.NewUUID(at.Add(time.Duration(i) * time.Millisecond))
		if !pulse.ValidUUID(id) || id[14] != '7' || id <= last {
			t.Fatalf("id %s after %s", id, last)
		}
		last = id
	}
	for _, bad := range []string{"", "x", strings.Repeat("g", 36), last[:35], last + "0", strings.ToUpper(last)} {
		if pulse.ValidUUID(bad) {
			t.Errorf("%q passes", bad)
		}
	}
	if got := pulse.Short(pulse.SessionID(last)); got != last[28:] {
		t.Errorf("short is %s", got)
	}
}

func TestErrorsCarryTheirCode(t *testing.T) {
	cause := errors.New("disk on fire")
	err := error(&pulse.Error{Code: pulse.CodeNotFound, Message: "no such thing", Hint: "look again", Err: cause})
	if pulse.CodeOf(err) != pulse.CodeNotFound || !errors.Is(err, cause) || pulse.CodeOf(cause) != pulse.CodeInternal || pulse.CodeOf(nil) != "" {
		t.Error("codes")
	}
	if err.Error() != "no such thing (look again): disk on fire" {
		t.Error(err)
	}
}

func TestAddressesOfASession(t *testing.T) {
	s := pulse.Session{ChatID: "1", ChatThreadID: "2", PhoneNumber: "+49", DiscordThreadID: "3", ConsoleID: "c"}
	want := []pulse.Address{{Platform: "telegram", Chat: "1", Thread: "2"}, {Platform: "sms", Chat: "+49"}, {Platform: "discord", Chat: "3"}, {Platform: "console", Chat: "c"}}
	if got := s.Addresses(); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := (pulse.Session{}).Addresses(); got != nil {
		t.Errorf("a session without addresses has %v", got)
	}
}
