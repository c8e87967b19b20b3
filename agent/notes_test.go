package agent_test

import (
	"strings"
	"testing"

	"pulseloop/agent"
	"pulseloop/internal/secret"
	"pulseloop/pulse"
)

// What the CLI says of itself is told: clean of secrets, bounded, and once.
func TestNotesAreTold(t *testing.T) {
	const key = "sk-not-to-be-told-0123456789"
	w := newWorld(t, `echo note limited, try again in 5 s with `+key+`; echo note limited, try again in 5 s with `+key+`
		head -c 5000 /dev/zero | tr '\0' x | sed 's/^/note /'; echo; echo "note "; echo start 1 shell; echo end 1
		i=0; while [ $i -lt 500 ]; do echo note $i; i=$((i+1)); done; echo done yes`,
		func(c *agent.Config) { c.Redactor = secret.New(key) })
	_, s := w.run()
	var told []string
	for _, e := range s.Events {
		if e.Type == pulse.EventTurnNote {
			told = append(told, e.Data["text"].(string))
			if e.Data["iterationId"] == "" || e.TurnID == "" {
				t.Errorf("note without a place: %+v", e)
			}
		}
	}
	if len(told) != 201 || !strings.HasPrefix(told[0], "limited, try again in 5 s with ") || strings.Contains(told[0], key) {
		t.Fatalf("%d notes, first %q", len(told), told[0])
	}
	if len(told[1]) > 1100 || !strings.HasPrefix(told[1], "xxx") || told[2] != "0" || !strings.Contains(told[200], "left out") {
		t.Errorf("second of %d bytes, then %q, last %q", len(told[1]), told[2], told[200])
	}
}

func TestNoteIsNewsAgainAfterAStep(t *testing.T) {
	w := newWorld(t, `echo note tries again; echo note tries again; echo start 1 x; echo end 1; echo note tries again; echo done yes`)
	_, s := w.run()
	n := 0
	for _, e := range s.Events {
		if e.Type == pulse.EventTurnNote {
			n++
		}
	}
	if n != 2 {
		t.Errorf("told %d times", n)
	}
}
