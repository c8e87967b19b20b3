package e2e

import (
	"strings"
	"testing"

	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// What the agent's program says of itself, such as that it is limited and
// tries again, reaches the person, once however often it is said.
func TestNotesOfTheAgentsProgramAreSeen(t *testing.T) {
	t.Parallel()
	p := e2etest.Start(t, e2etest.Options{Projects: one(e2etest.Repo(t)), Script: `
iterations:
  - - note: limited, trying again
    - note: limited, trying again
    - say: All done.
    - signal: COMPLETE
`})
	s, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "add a health endpoint"})
	if err != nil {
		t.Fatal(err)
	}
	p.AwaitSession(string(s.ID), pulse.SessionComplete)
	out, errs, code := p.Run("logs", string(s.ID))
	if code != 0 || strings.Count(out, "limited, trying again") != 1 {
		t.Errorf("logs ended with %d: %s%s", code, out, errs)
	}
}
