package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pulseloop/db"
	"pulseloop/e2e/e2etest"
)

// rows runs a query and gives each row as text.
func (st *storm) rows(query string) [][]string {
	st.t.Helper()
	found, err := st.sql.QueryContext(st.t.Context(), query)
	if err != nil {
		st.t.Fatalf("%s: %v", query, err)
	}
	defer found.Close()
	names, err := found.Columns()
	if err != nil {
		st.t.Fatal(err)
	}
	var out [][]string
	for found.Next() {
		row, into := make([]*string, len(names)), make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := found.Scan(into...); err != nil {
			st.t.Fatalf("%s: %v", query, err)
		}
		line := make([]string, len(names))
		for i, v := range row {
			if v != nil {
				line[i] = *v
			}
		}
		out = append(out, line)
	}
	if err := found.Err(); err != nil {
		st.t.Fatalf("%s: %v", query, err)
	}
	return out
}

// number is the one number of a query.
func (st *storm) number(query string) int {
	st.t.Helper()
	var n int
	if err := st.sql.QueryRowContext(st.t.Context(), query).Scan(&n); err != nil {
		st.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// none wants a query to find nothing, and shows what it found.
func (st *storm) none(what, query string) {
	st.t.Helper()
	if found := st.rows(query); len(found) > 0 {
		st.t.Errorf("%s: %d, such as %q", what, len(found), found[0])
	}
}

var tagShape = regexp.MustCompile(`tag\d{5}q`)

// heardOnce compares what was said with what the product has on record: every update once, each with one reply, and every
// text with one effect, or none and a refusal that says so.
func (st *storm) heardOnce() {
	all := st.o.everything()
	if n := st.number("SELECT count(*) FROM inbound_updates"); n != st.tg.Pushed() || n != len(all) {
		st.t.Errorf("%d things were said, the platform had %d updates, %d are on record", len(all), st.tg.Pushed(), n)
	}
	st.none("updates on record twice", "SELECT update_id, count(*) FROM inbound_updates GROUP BY update_id HAVING count(*) > 1")
	replies := map[string]string{}
	for _, r := range st.rows("SELECT slot, body FROM notifications WHERE slot LIKE 'reply:%'") {
		if _, twice := replies[r[0]]; twice {
			st.t.Errorf("two replies %s", r[0])
		}
		replies[r[0]] = r[1]
	}
	effects := map[string]int{}
	for _, r := range st.rows("SELECT m.text FROM turn_messages m JOIN turns t ON t.id = m.turn_id WHERE t.role = 'user'") {
		for _, tag := range tagShape.FindAllString(r[0], -1) {
			effects[tag]++
		}
	}
	texts, silent := map[string]bool{}, 0
	for _, r := range st.rows("SELECT CAST(id AS text), payload FROM inbound_updates") {
		var u struct {
			Message struct{ Text string }
		}
		if err := json.Unmarshal([]byte(r[1]), &u); err != nil {
			st.t.Errorf("an update on record cannot be read: %v", err)
		}
		reply, ok := replies["reply:"+r[0]]
		if !ok {
			silent++
			st.t.Errorf("no reply to %q", r[1])
		}
		for _, tag := range tagShape.FindAllString(u.Message.Text, -1) {
			texts[tag] = true
			want := 1
			if strings.Contains(reply, "⚠️") {
				want = 0
			}
			if effects[tag] != want {
				st.t.Errorf("%q had %d effects, want %d; the reply: %s", u.Message.Text, effects[tag], want, reply)
			}
		}
	}
	for _, s := range all {
		if s.Tag != "" && !texts[s.Tag] {
			st.t.Errorf("lost: %+v", s)
		}
	}
	for _, r := range st.rows("SELECT goal, count(*) FROM pulse_sessions GROUP BY goal HAVING count(*) > 1") {
		st.t.Errorf("the goal %q was started %s times", r[0], r[1])
	}
}

// decidedOnce wants one decision a gate.
func (st *storm) decidedOnce() {
	st.none("gates decided twice", "SELECT subject, count(*) FROM audit WHERE action = 'answer' GROUP BY subject HAVING count(*) > 1")
	st.none("gates still open", "SELECT id FROM gates WHERE status = 'open'")
}

// endedOnce wants every session at its end, with iterations that count from 1 without a gap, each with one outcome, and
// totals that are the sums of the iterations.
func (st *storm) endedOnce() {
	st.none("sessions not at their end", "SELECT id, status, status_reason FROM pulse_sessions WHERE status NOT IN ('complete', 'aborted')")
	st.none("tasks not over", "SELECT id, status FROM inbox_tasks WHERE status NOT IN ('complete', 'failed', 'cancelled', 'dead')")
	st.none("iterations without an outcome", "SELECT id, status FROM pulse_iterations WHERE status NOT IN ('complete', 'failed', 'timeout')")
	st.none("iterations with two outcomes", "SELECT session_id, iteration_number, count(*) FROM pulse_iterations WHERE status <> 'timeout' GROUP BY session_id, iteration_number HAVING count(*) > 1")
	st.none("sessions whose iterations have gaps", "SELECT s.id, s.current_iteration, count(DISTINCT i.iteration_number), max(i.iteration_number) FROM pulse_sessions s LEFT JOIN pulse_iterations i ON i.session_id = s.id"+
		" GROUP BY s.id, s.current_iteration HAVING count(DISTINCT i.iteration_number) <> s.current_iteration OR coalesce(max(i.iteration_number), 0) <> s.current_iteration")
	st.none("totals that are not the sums", "SELECT s.id, s.total_tokens_used, s.total_cost_micros, s.total_commits FROM pulse_sessions s LEFT JOIN pulse_iterations i ON i.session_id = s.id GROUP BY s.id, s.total_tokens_used, s.total_cost_micros, s.total_commits"+
		" HAVING coalesce(sum(i.input_tokens + i.output_tokens + i.cache_read_tokens + i.cache_write_tokens), 0) <> s.total_tokens_used OR coalesce(sum(i.cost_micros), 0) <> s.total_cost_micros OR coalesce(sum(i.commits), 0) <> s.total_commits")
	st.none("streams of events with gaps", "SELECT session_id, count(*), max(seq) FROM events GROUP BY session_id HAVING count(*) <> max(seq)")
}

// committedOnce compares the branches with the totals. What an aborted session's last attempt saved is on the branch and on
// nobody's record: there may be more commits there.
func (st *storm) committedOnce() (commits int) {
	branches := map[string]bool{}
	for _, b := range st.repo.Branches() {
		branches[b] = true
	}
	for _, s := range st.rows("SELECT branch_name, status, total_commits FROM pulse_sessions") {
		var log []string
		if branches[s[0]] {
			log = strings.Split(st.repo.Git("log", "--format=%H %(trailers:key=Pulse-Iteration,valueonly,separator=%x2C)", "main.."+s[0]), "\n")
		}
		if want := fmt.Sprint(len(log)); want != s[2] && (s[1] != "aborted" || s[2] > want) {
			st.t.Errorf("branch %s of a session that is %s has %s commits, on record are %s", s[0], s[1], want, s[2])
		}
		seen := map[string]bool{}
		for _, line := range log {
			_, n, _ := strings.Cut(line, " ")
			if n == "" || seen[n] {
				st.t.Errorf("branch %s: iteration %q is committed twice, or a commit names none: %q", s[0], n, log)
			}
			seen[n] = true
		}
		commits += len(log)
	}
	return commits
}

// lastDeliveries waits until nothing is left to send. A chat takes one message a second, a group one in three, so how long
// that may take depends on how many there are.
func (st *storm) lastDeliveries() {
	const left = "SELECT count(*) FROM notifications WHERE status IN ('queued', 'sending')"
	limit := 60*time.Second + 3*time.Second*time.Duration(st.number(left))
	ctx, cancel := context.WithTimeout(st.t.Context(), limit)
	defer cancel()
	if !until(ctx, func() bool { return st.number(left) == 0 }) {
		st.t.Errorf("%s after the end there are still messages to deliver: %q", limit, st.rows("SELECT chat, kind, status, attempts, next_at, last_error FROM notifications WHERE status IN ('queued', 'sending')"))
	}
}

// victimReturns lets the one who blocked the bot write again: only then is what waited for them tried once more.
func (st *storm) victimReturns() {
	for _, k := range st.talks {
		if k.chat == st.victim {
			k.chat.Say(k.users[0], "/help")
		}
	}
}

// toldOnce waits for the last deliveries and wants every outcome and every question in the chat it belongs to. It answers
// how many messages were posted more often than they had to be.
func (st *storm) toldOnce() (told, repeated int) {
	st.victimReturns()
	st.lastDeliveries()
	for what, pair := range map[string][2]string{
		"completions":           {"SELECT count(*) FROM events e JOIN pulse_sessions s ON s.id = e.session_id WHERE s.chat_id <> '' AND e.type = 'session:completed'", "SELECT count(*) FROM notifications WHERE kind = 'final' AND slot LIKE 'final:%'"},
		"failures":              {"SELECT count(*) FROM events e JOIN pulse_sessions s ON s.id = e.session_id WHERE s.chat_id <> '' AND e.type = 'session:error'", "SELECT count(*) FROM notifications WHERE kind = 'final' AND slot LIKE 'failed:%'"},
		"questions":             {"SELECT count(*) FROM gates g JOIN pulse_sessions s ON s.id = g.session_id WHERE s.chat_id <> ''", "SELECT count(*) FROM notifications WHERE kind = 'gate'"},
		"sessions that aborted": {"SELECT count(*) FROM pulse_sessions WHERE chat_id <> '' AND status = 'aborted'", "SELECT count(*) FROM notifications WHERE kind = 'final' AND slot LIKE 'aborted:%'"},
	} {
		if were, n := st.number(pair[0]), st.number(pair[1]); were != n {
			st.t.Errorf("%d %s, %d messages about them", were, what, n)
		}
	}
	bodies := map[string]map[string]string{} // chat, message, text
	for _, k := range st.talks {
		bodies[fmt.Sprint(k.chat.ID)] = map[string]string{}
		for _, m := range k.chat.MessagesAfter(0) {
			bodies[fmt.Sprint(k.chat.ID)][fmt.Sprint(m.ID)] = m.Text
			told++
		}
	}
	posted := 0
	for _, n := range st.rows("SELECT chat, external_id, kind, status, last_error, slot FROM notifications") {
		if n[1] != "" {
			posted++
		}
		switch text := bodies[n[0]][n[1]]; {
		case n[3] == "dead" && n[0] == fmt.Sprint(st.victim.ID):
		case n[3] == "sent" && text != "":
		case (n[2] == "reply" || n[2] == "info" || n[2] == "progress") && n[3] == "dropped":
		default:
			st.t.Errorf("the message %s (%s) to %s is %s, as message %q, and reads %q there: %s", n[5], n[2], n[0], n[3], n[1], text, n[4])
		}
	}
	return told, told - posted
}

// clean wants no process left, an audit chain without a break, and a database in order. It comes last: it stops everything.
func (st *storm) clean() {
	for _, node := range st.nodes {
		node.Stop()
		st.keepLog(node)
		n := node
		e2etest.Await(st.t, "the end of every process", func() bool { return len(n.Processes()) == 0 })
	}
	if left := strays(st.nodes); len(left) > 0 {
		st.t.Errorf("processes are left: %q", left)
	}
	cfg := db.Config{Path: filepath.Join(st.front.DataDir, "pulse.db")}
	if st.setup.postgres {
		cfg = db.Config{URL: st.database}
	}
	store, err := db.Open(st.t.Context(), cfg)
	if err != nil {
		st.t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.VerifyAudit(st.t.Context()); err != nil {
		st.t.Errorf("audit: %v", err)
	}
	if !st.setup.postgres {
		if got := st.rows("PRAGMA integrity_check"); len(got) != 1 || got[0][0] != "ok" {
			st.t.Errorf("integrity_check: %q", got)
		}
		st.none("rows whose parent is missing", "PRAGMA foreign_key_check")
	}
}

// strays are the processes that name a data directory or home of ours anywhere: in their environment, arguments, or as the
// directory they stand in.
func strays(nodes []*e2etest.Pulse) []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		for _, n := range nodes {
			if strings.Contains(string(env)+string(args)+cwd, n.Home) {
				out = append(out, filepath.Base(dir)+" "+strings.ReplaceAll(string(args), "\x00", " "))
			}
		}
	}
	return out
}

// summary prints what happened.
func (st *storm) summary(raged, reclaimed, calm time.Duration, hits, commits, told, repeated int) {
	total := 0
	for _, n := range st.kills {
		total += n
	}
	st.t.Logf("%s: ended %d times in %s (%v; the longest %v), %d calls met a fault; %d updates, %d goals, %d iterations, %d claims beyond the first, %d commits; what was in hand at the last fault was over or in hand again after %s, all at rest after %s",
		st.setup.name, total, raged.Round(time.Second), st.kills, st.longest, hits, st.tg.Pushed(), st.number("SELECT count(*) FROM pulse_sessions"), st.number("SELECT count(*) FROM pulse_iterations"),
		st.number("SELECT coalesce(sum(claims - 1), 0) FROM inbox_tasks WHERE claims > 1"), commits, reclaimed.Round(10*time.Millisecond), calm.Round(10*time.Millisecond))
	st.t.Logf("%s: sessions %v; tasks %v; messages %v; %d messages in the chats, %d of them repeated (%.2f %%)", st.setup.name,
		st.rows("SELECT status, count(*) FROM pulse_sessions GROUP BY status ORDER BY status"), st.rows("SELECT status, count(*) FROM inbox_tasks GROUP BY status ORDER BY status"),
		st.rows("SELECT kind, status, count(*) FROM notifications GROUP BY kind, status ORDER BY kind, status"), told, repeated, 100*float64(repeated)/float64(max(told, 1)))
}

func stormOf(t *testing.T, s setup) {
	st := newStorm(t, s, newSeed(t))
	kills := max(1, int(float64(*killsFlag)*s.share))
	began := time.Now()
	last, hits := st.rage(kills, *timeFlag)
	raged := time.Since(began)
	st.sql = st.front.DB()
	reclaimed := st.reclaimed(last)
	st.calm(st.limit())
	calm := time.Since(last)
	st.settle()
	st.heardOnce()
	st.decidedOnce()
	st.endedOnce()
	commits := st.committedOnce()
	told, repeated := st.toldOnce()
	st.summary(raged, reclaimed, calm, hits, commits, told, repeated)
	st.clean()
}
