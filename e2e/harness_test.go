package e2e

import (
	"strings"
	"testing"

	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

func TestHarnessStartsStopsKillsAndStartsAgain(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		repo := e2etest.Repo(t)
		p := e2etest.Start(t, e2etest.Options{Database: database, Projects: map[string]*e2etest.Repository{"my-app": repo}})
		s, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "add a health endpoint"})
		if err != nil {
			t.Fatal(err)
		}
		done := p.AwaitSession(string(s.ID), pulse.SessionComplete)
		if got := repo.Subjects(done.Session.BranchName); len(got) != 2 {
			t.Errorf("commits on %s: %q", done.Session.BranchName, got)
		}
		p.Stop()
		p.Up()
		p.Kill()
		p.Up()
		out, errs, code := p.Run("list")
		if code != 0 || !strings.Contains(out, "complete") {
			t.Errorf("list ended with %d: %s%s", code, out, errs)
		}
		if got := p.Count("SELECT count(*) FROM pulse_sessions WHERE status = 'complete'"); got != 1 {
			t.Errorf("%d sessions in the database", got)
		}
	})
}
