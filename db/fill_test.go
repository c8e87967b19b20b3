package db

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// scale is how many sessions the databases of these tests have. With 200000 they have a million events.
var scale = flag.Int("db.scale", 10000, "sessions in the filled databases")

// Identifiers of rows that were filled in: their kind, and their number at the end.
const (
	sessionKind   = "a0000000-0000-7000-8000-"
	iterationKind = "b0000000-0000-7000-8000-"
	taskKind      = "c0000000-0000-7000-8000-"
	turnKind      = "d0000000-0000-7000-8000-"
	noticeKind    = "e0000000-0000-7000-8000-"
	projectKind   = "f0000000-0000-7000-8000-"
	updateKind    = "90000000-0000-7000-8000-"
)

func filledID(kind string, i int) string { return fmt.Sprintf("%s%012x", kind, i) }

// filler fills a database by a few statements: what would take the program months.
type filler struct {
	t    testing.TB
	s    *Store
	n    int
	ends time.Time // when the last session began; the one before it a second earlier, and so on
}

func (f filler) exec(query string) {
	f.t.Helper()
	db := f.s.reads.DB
	if !f.s.pg {
		db = f.s.lite.db.DB
	}
	if f.s.pg {
		query = "SET statement_timeout = 0; " + query
		if _, err := db.Exec(query); err != nil {
			f.t.Fatalf("%s: %v", query, err)
		}
		return
	}
	if _, err := f.s.lite.writer.conn.Conn.ExecContext(f.t.Context(), query); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
}

// sql puts the dialect's words in place of id(KIND,n), at(n) (an instant n seconds after the first session) and now.
func (f filler) sql(query string, n int) string {
	start := f.ends.Add(-time.Duration(n) * time.Second).Unix()
	replace := []string{}
	for word, kind := range map[string]string{"session": sessionKind, "iteration": iterationKind, "task": taskKind, "turn": turnKind,
		"notice": noticeKind, "project": projectKind, "update": updateKind} {
		open := "('" + kind + "' || printf('%012x', "
		shut := "))"
		if f.s.pg {
			open, shut = "CAST('"+kind+"' || lpad(to_hex(", "), 12, '0') AS uuid)"
		}
		replace = append(replace, word+"<", open, ">"+word, shut)
	}
	at, shut := "((%d + ", ") * 1000000)"
	if f.s.pg {
		at, shut = "to_timestamp(%d + ", ")"
	}
	return strings.NewReplacer(append(replace, "at<", fmt.Sprintf(at, start), ">at", shut)...).Replace(query)
}

// numbers runs an INSERT ... SELECT for i from 1 to n.
func (f filler) numbers(n int, insert, columns, from string) {
	f.t.Helper()
	f.exec(f.sql(fmt.Sprintf("INSERT INTO %s WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT %s FROM n%s", insert, n, columns, from), n))
}

// filledStatus: the oldest sessions are not over, which is the worst place for them.
const filledStatus = `CASE WHEN i <= 20 THEN 'running' WHEN i <= 30 THEN 'blocked' WHEN i <= 35 THEN 'paused' WHEN i <= 40 THEN 'pending'
	WHEN i % 50 = 0 THEN 'failed' WHEN i % 97 = 0 THEN 'aborted' ELSE 'complete' END`

// fill makes n sessions, a second apart, the last 40 s ago; each with an iteration, a task, five events, two turns and two notices,
// and an update for each. Forty sessions are not at their end.
func fill(t testing.TB, s *Store, n int) filler {
	t.Helper()
	f := filler{t: t, s: s, n: n, ends: time.Now().Add(-40 * time.Second)}
	f.numbers(5, "projects (id, name, path, created_at)", "project<i>project, 'p' || i, '/p', at<0>at", "")
	f.numbers(n, `pulse_sessions (id, project_id, project_name, goal, role, status, max_iterations, current_iteration, created_by,
		chat_id, phone_number, discord_thread_id, console_id, event_seq, notify_seq, created_at, updated_at, started_at, ended_at, due_at)`,
		`session<i>session, project<i % 5 + 1>project, 'p', 'a goal of some length, as people write them', 'pulsing', `+filledStatus+`, 10, 1, 'telegram',
		CASE i % 4 WHEN 0 THEN '42' WHEN 1 THEN 'c' || (i % 1000) ELSE '' END, CASE WHEN i % 4 = 2 THEN '+1' ELSE '' END,
		CASE WHEN i % 8 = 3 THEN 'd' ELSE '' END, CASE WHEN i % 8 = 7 THEN 'here' ELSE '' END, 5, CASE WHEN i = 7 THEN 3 ELSE 5 END,
		at<i>at, at<i + 30>at, at<i>at, CASE WHEN i > 40 THEN at<i + 30>at END, CASE WHEN i <= 20 THEN at<i + 100000000>at END`, "")
	f.numbers(n, "inbox_tasks (id, kind, route, status, session_id, iteration_id, content, media_context, spec, attempt, claims, created_at, ended_at)",
		`task<i>task, 'iterate', 'project:p', CASE WHEN i <= 20 THEN 'queued' WHEN i % 1000 = 0 THEN 'dead' ELSE 'complete' END, session<i>session, iteration<i>iteration,
		'the prompt of the task', '{}', '{}', 1, 1, at<i>at, CASE WHEN i > 20 THEN at<i + 20>at END`, "")
	f.numbers(n, "pulse_iterations (id, session_id, iteration_number, inbox_task_id, task_content, status, slice_id, created_at, ended_at)",
		"iteration<i>iteration, session<i>session, 1, task<i>task, 'the prompt of the task', 'complete', 'slice' || i, at<i>at, at<i + 20>at", "")
	f.numbers(n, "slices (id, turn_ids, node_count, tokens, created_at)", "'slice' || i, "+map[bool]string{true: "'{}'", false: "'[]'"}[s.pg]+", 1, 1, at<i>at", "")
	f.numbers(n, "events (session_id, seq, type, turn_id, at, data)", `session<i>session, j, 'tool:started', turn<2 * i>turn, at<i + j>at, '{"callId": "c"}'`,
		", (SELECT 1 AS j UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5) k")
	f.numbers(n, "turns (id, session_id, project_id, iteration_id, role, status, created_at, ended_at)",
		"turn<2 * i + j>turn, session<i>session, project<i % 5 + 1>project, iteration<i>iteration, CASE j WHEN 0 THEN 'assistant' ELSE 'user' END, 'completed', at<i>at, at<i + 20>at",
		", (SELECT 0 AS j UNION SELECT 1) k")
	for _, table := range []string{"turn_messages", "turn_thoughts"} {
		f.numbers(n, table+" (turn_id, seq, text, at)", "turn<2 * i + j>turn, 1, 'what was said in turn ' || i, at<i>at", ", (SELECT 0 AS j UNION SELECT 1) k")
	}
	f.numbers(n, "turn_tools (turn_id, call_id, seq, name, status, at)", "turn<2 * i>turn, 'c', 2, 'shell', 'completed', at<i>at", "")
	if s.pg {
		f.exec("UPDATE turns SET search = to_tsvector('simple', m.text) FROM turn_messages m WHERE m.turn_id = turns.id AND role = 'assistant'")
	} else {
		f.exec("INSERT INTO turns_fts (rowid, text) SELECT t.rid, m.text FROM turns t JOIN turn_messages m ON m.turn_id = t.id WHERE t.role = 'assistant'")
	}
	f.numbers(n, "notifications (id, platform, chat, slot, kind, priority, session_id, body, status, external_id, next_at, created_at, sent_at)",
		`notice<2 * i + j>notice, 'telegram', '42', 's' || i || '-' || j, 'final', 1, session<i>session, '{}', CASE WHEN i <= 10 THEN 'queued' WHEN i % 500 = 0 THEN 'dead' ELSE 'sent' END,
		'm' || (2 * i + j), at<i>at, at<i>at, at<i>at`, ", (SELECT 0 AS j UNION SELECT 1) k")
	f.numbers(n, "inbound_updates (id, platform, source, update_id, position, payload, received_at, handled_at)",
		"update<i>update, 'telegram', 'bot', 'u' || i, i, "+map[bool]string{true: "'\\x7b7d'::bytea", false: "x'7b7d'"}[s.pg]+", at<i>at, CASE WHEN i > 5 THEN at<i + 1>at END", "")
	if s.pg {
		f.exec("ANALYZE")
	}
	return f
}

// sum asks the database for one number.
func (f filler) sum(query string) (n int) {
	f.t.Helper()
	if err := f.s.reads.DB.QueryRowContext(f.t.Context(), f.sql(query, 0)).Scan(&n); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// both runs a test on a filled database of each kind.
func both(t *testing.T, n int, test func(t *testing.T, s *Store, f filler)) {
	t.Run("sqlite", func(t *testing.T) {
		s := openAt(t, filepath.Join(t.TempDir(), "pulse.db"))
		test(t, s, fill(t, s, n))
	})
	t.Run("postgres", func(t *testing.T) {
		s, _ := openSchema(t)
		test(t, s, fill(t, s, n))
	})
}

func second[T any](_ T, err error) error { return err }
