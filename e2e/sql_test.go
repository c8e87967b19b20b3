package e2e

import (
	"database/sql"
	"strings"
	"testing"

	"pulseloop/api/wire"
	"pulseloop/db/dbtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// The queries for watching sessions, word for word as the protocol's documentation gives them.
const (
	monitoring = `SELECT s.id, s.current_iteration, s.max_iterations, s.status, s.last_signal,
i.signal, i.output_summary, i.commit_hash
FROM pulse_sessions s
LEFT JOIN pulse_iterations i ON i.session_id = s.id
WHERE s.status = 'running'
ORDER BY i.iteration_number DESC;`
	whyBlocked = `SELECT last_signal, progress_log FROM pulse_sessions WHERE id = '...'`
)

type monitored struct {
	id            string
	current, most int
	status        string
	last, signal  sql.NullString
	summary, hash sql.NullString
}

func watch(t *testing.T, db *sql.DB) []monitored {
	t.Helper()
	rows, err := db.QueryContext(e2etest.Context(t), monitoring)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []monitored
	for rows.Next() {
		var m monitored
		if err := rows.Scan(&m.id, &m.current, &m.most, &m.status, &m.last, &m.signal, &m.summary, &m.hash); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMonitoringQueriesRunAsWritten(t *testing.T) {
	t.Parallel()
	database := dbtest.NewPostgres(t).Config.URL
	repo := e2etest.Repo(t)
	p := e2etest.Start(t, e2etest.Options{Database: database, Projects: one(repo), Script: `
iterations:
  - - write: {path: one.txt, content: "1\n"}
    - say: "The first part is there."
    - signal: CONTINUE
  - - write: {path: two.txt, content: "2\n"}
    - run: '` + e2etest.Hold("second") + `'
    - say: "Which API key should I use?"
    - signal: BLOCKED
  - - say: "All done."
    - signal: COMPLETE
`})
	s, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "call the API"})
	if err != nil {
		t.Fatal(err)
	}
	p.AwaitHeld("second")
	rows := watch(t, p.DB())
	if len(rows) != 2 {
		t.Fatalf("%d rows while the second iteration runs: %+v", len(rows), rows)
	}
	first := p.AwaitSession(string(s.ID), pulse.SessionRunning).Iterations[0]
	for i, m := range rows {
		if m.id != string(s.ID) || m.current != 2 || m.most != 10 || m.status != "running" || m.last.String != "CONTINUE" {
			t.Errorf("row %d: %+v", i, m)
		}
	}
	if m := rows[0]; m.signal.String != "" || m.hash.String != "" {
		t.Errorf("the iteration that runs comes first and has no outcome yet: %+v", m)
	}
	if m := rows[1]; m.signal.String != "CONTINUE" || !strings.Contains(m.summary.String, "The first part is there") || m.hash.String != first.CommitHash || m.hash.String == "" {
		t.Errorf("the iteration before: %+v", m)
	}

	p.Open("second")
	p.AwaitSession(string(s.ID), pulse.SessionBlocked)
	if rows := watch(t, p.DB()); len(rows) != 0 {
		t.Errorf("a blocked session is watched as running: %+v", rows)
	}
	var last, log string
	err = p.DB().QueryRowContext(e2etest.Context(t), strings.Replace(whyBlocked, "...", string(s.ID), 1)).Scan(&last, &log)
	if err != nil {
		t.Fatal(err)
	}
	if last != "BLOCKED" || !strings.Contains(log, "Which API key should I use?") || !strings.Contains(log, "The first part is there") {
		t.Errorf("last_signal %q, progress_log %s", last, log)
	}

	if _, err := p.Client().Resume(e2etest.Context(t), string(s.ID), "use the one of staging"); err != nil {
		t.Fatal(err)
	}
	p.AwaitSession(string(s.ID), pulse.SessionComplete)
	if rows := watch(t, p.DB()); len(rows) != 0 {
		t.Errorf("a complete session is watched as running: %+v", rows)
	}
}
