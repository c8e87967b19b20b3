package chaos

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// TestPollingIsEnough is M6 and the first half of F8: every notification is dropped, and a queued task is claimed within 2 s.
func TestPollingIsEnough(t *testing.T) {
	t.Parallel()
	goals := 5
	if *longFlag {
		goals = 100
	}
	u, err := url.Parse(postgres(t))
	must(t, err)
	q := u.Query()
	schema := q.Get("search_path")
	q.Set("search_path", schema+",pg_catalog") // what is in the schema hides what is built in
	u.RawQuery = q.Encode()
	s := newScene(t, "serve", u.String())
	if _, err := s.sql.ExecContext(t.Context(), "CREATE FUNCTION "+schema+".pg_notify(text, text) RETURNS void LANGUAGE sql AS ''"); err != nil {
		t.Fatal(err)
	}
	s.front.Stop()
	s.front.Up()
	e2etest.Start(t, s.opt("daemon"))
	r := dice(newSeed(t), 9)
	for n := range goals {
		pause := time.NewTimer(between(r, 0, time.Second)) // so that polls are met at any phase
		<-pause.C
		session, err := s.front.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: fmt.Sprintf("quick %d", n)})
		must(t, err)
		s.front.AwaitSession(string(session.ID), pulse.SessionComplete)
	}
	var took []time.Duration
	rows, err := s.sql.QueryContext(t.Context(), "SELECT extract(epoch FROM started_at - created_at) FROM inbox_tasks")
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var v float64
		must(t, rows.Scan(&v))
		took = append(took, time.Duration(v*float64(time.Second)))
	}
	must(t, rows.Err())
	slices.Sort(took)
	t.Logf("without notifications %d tasks were claimed after: median %s, worst %s (goal 2s)", len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	if len(took) != goals || took[len(took)/2] > bound(2*time.Second) || took[len(took)-1] > 3*slack {
		t.Error("that is too late")
	}
	if took[len(took)-1] < 50*time.Millisecond {
		t.Error("that is too early: notifications were not dropped")
	}
}
