package db

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"pulseloop/pulse"
)

// plan is how the database would run a statement, as text.
func plan(t *testing.T, conn *sql.DB, explain, query string) string {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), explain+" "+strings.ReplaceAll(query, "$1", `'["mine"]'`))
	must(t, err)
	defer rows.Close()
	var out strings.Builder
	for rows.Next() {
		columns, err := rows.Columns()
		must(t, err)
		cells := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		must(t, rows.Scan(into...))
		out.WriteString(cells[len(cells)-1].String + "\n")
	}
	must(t, rows.Err())
	return out.String()
}

const takeQuery = "SELECT id FROM pulse_sessions WHERE due_at <= %s ORDER BY due_at, id LIMIT 1"

func TestAClaimReadsNothingButItsOwnRoute(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "pulse.db"))
	got := plan(t, s.reads.DB, "EXPLAIN QUERY PLAN", pickLite)
	if !strings.Contains(got, "SEARCH q USING COVERING INDEX inbox_tasks_queue (route=?)") || strings.Contains(got, "SCAN q") {
		t.Errorf("SQLite claims like this:\n%s", got)
	}
	got = plan(t, s.reads.DB, "EXPLAIN QUERY PLAN", fmt.Sprintf(takeQuery, "5"))
	if !strings.Contains(got, "pulse_sessions_due (due_at<?)") || strings.Contains(got, "TEMP B-TREE") {
		t.Errorf("SQLite takes like this:\n%s", got)
	}

	pg, exec := openSchema(t)
	exec(`INSERT INTO inbox_tasks (id, kind, route, status, content, media_context, spec, created_at)
		SELECT gen_random_uuid(), 'x', 'other', 'queued', '', '{}', '{}', now() FROM generate_series(1, 20000)`)
	exec("ANALYZE inbox_tasks")
	got = plan(t, pg.reads.DB, "EXPLAIN", fmt.Sprintf(pickPostgres, 1))
	if !strings.Contains(got, "inbox_tasks_queue on inbox_tasks q") || strings.Contains(got, "Seq Scan on inbox_tasks") {
		t.Errorf("PostgreSQL claims like this:\n%s", got)
	}
	if inner := strings.Index(got, "LockRows"); inner < 0 || strings.Contains(got[inner:], "Sort") {
		t.Errorf("PostgreSQL sorts a route to claim from it:\n%s", got)
	}
}

// openSchema opens a migrated store on a schema of its own.
func openSchema(t *testing.T) (*Store, func(query string)) {
	t.Helper()
	url := os.Getenv("PULSE_TEST_DATABASE_URL")
	if url == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no PostgreSQL to test with")
		}
		t.Skip("no PostgreSQL to test with: set PULSE_TEST_DATABASE_URL")
	}
	schema := "p" + strings.ReplaceAll(pulse.NewUUID(time.Now()), "-", "")
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	pg, err := Open(t.Context(), Config{URL: url + separator + "search_path=" + schema})
	must(t, err)
	t.Cleanup(func() { pg.Close() })
	exec := func(query string) {
		t.Helper()
		if _, err := pg.reads.DB.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE SCHEMA " + schema)
	t.Cleanup(func() { exec("DROP SCHEMA " + schema + " CASCADE") })
	_, err = pg.Migrate(t.Context())
	must(t, err)
	return pg, exec
}

// TestNotificationsAreCoalesced counts what goes over the wire while commits
// come as fast as they can: the first at once, then one every few
// milliseconds, however many commits there are.
func TestNotificationsAreCoalesced(t *testing.T) {
	s, _ := openSchema(t)
	cfg, err := pgx.ParseConfig(s.cfg.URL)
	must(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	must(t, err)
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "LISTEN "+wakeChannel); err != nil {
		t.Fatal(err)
	}
	const announcements = 5000
	start := time.Now()
	for range announcements {
		s.announce(topicSet{pulse.TopicTasks: {}, pulse.TopicEvents: {}})
	}
	atMost := int(time.Since(start)/notifyGap) + 3
	s.announce(topicSet{pulse.TopicInbound: {}}) // the last word
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	n, first := 0, ""
	for last := false; !last; {
		note, err := conn.WaitForNotification(ctx)
		must(t, err)
		sender, topics, _ := strings.Cut(note.Payload, ":")
		if sender != s.news.me {
			continue
		}
		if n++; n == 1 {
			first = topics
		}
		last = strings.Contains(topics, string(pulse.TopicInbound))
	}
	if n > atMost {
		t.Errorf("%d notifications for %d announcements, want at most %d", n, announcements, atMost)
	}
	if !strings.Contains(first, "events") || !strings.Contains(first, "tasks") {
		t.Errorf("the first says %q: topics of one moment go together", first)
	}
}

// TestTheQueuePlansAStatementOnce: PostgreSQL plans a prepared statement anew
// each time when it believes that the arguments make a difference.
func TestTheQueuePlansAStatementOnce(t *testing.T) {
	s, exec := openSchema(t)
	s.claims.Reset()
	const tasks = 120
	exec(fmt.Sprintf(`INSERT INTO inbox_tasks (id, kind, route, status, content, media_context, spec, created_at)
		SELECT gen_random_uuid(), 'x', 'mine', 'queued', '', '{}', '{}', now() FROM generate_series(1, %d)`, tasks))
	exec("ANALYZE inbox_tasks")
	conn, err := s.claims.Acquire(t.Context())
	must(t, err)
	one := s.work().on(pgxConn{to: conn, tries: 1})
	for range tasks / 10 {
		for _, n := range []int{1, 3} {
			c := claiming{daemon: "d", routes: `["mine","other"]`, lease: time.Minute}
			for range n {
				c.tokens = append(c.tokens, pulse.NewUUID(s.now()))
			}
			got, err := one.claims(t.Context(), c, c.query(one.clock(c.lease)), c.arguments()...)
			must(t, err)
			var all []finish
			for _, k := range got {
				f, err := newFinish(pulse.Fence{TaskID: k.Task.ID, Token: k.Token}, pulse.TaskResult{})
				must(t, err)
				all = append(all, f)
			}
			list, err := encode(all)
			must(t, err)
			written, err := one.finishAll(t.Context(), list)
			must(t, err)
			if len(written) != n {
				t.Fatalf("%d of %d results were written", len(written), n)
			}
		}
	}
	rows, err := conn.Query(t.Context(), "SELECT left(statement, 60), custom_plans, generic_plans FROM pg_prepared_statements WHERE custom_plans + generic_plans > 10")
	must(t, err)
	defer conn.Release()
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var text string
		var custom, generic int
		must(t, rows.Scan(&text, &custom, &generic))
		if seen++; custom > 5 {
			t.Errorf("planned %d times, run %d times by a kept plan: %s", custom, generic, text)
		}
	}
	must(t, rows.Err())
	if seen != 3 {
		t.Errorf("%d statements were run often, want 3", seen)
	}
}
