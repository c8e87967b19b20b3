package notify_test

import (
	"strings"
	"testing"

	"pulseloop/notify"
	"pulseloop/pulse"
)

func TestTheResultNamesTheSandbox(t *testing.T) {
	for level, want := range map[string]string{"bubblewrap": "\nSandbox: bubblewrap\n", "none": "\nSandbox: none, the agent could do what you can\n", "": ""} {
		s := session
		s.ProgressLog = []pulse.ProgressEntry{{Iteration: 4, Sandbox: "landlock"}, {Iteration: 5, Sandbox: level}}
		got := notify.Words{}.Completed(s, pulse.Iteration{}).Plain()
		if want == "" && strings.Contains(got, "Sandbox") || !strings.Contains(got, want) {
			t.Errorf("%q: %s", level, got)
		}
	}
}
