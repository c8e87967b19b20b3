package db

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

// spy notes what goes to the database.
type spy struct {
	mu      sync.Mutex
	queries []string
}

func (s *spy) BeforeQuery(ctx context.Context, e *bun.QueryEvent) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, e.Query)
	return ctx
}

func (s *spy) AfterQuery(context.Context, *bun.QueryEvent) {}

func (s *spy) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.queries
	s.queries = nil
	return out
}

var (
	wholePostgres = regexp.MustCompile(`Seq Scan on (pulse_\w+|inbox_tasks|events|turns|turn_\w+|notifications|inbound_updates|slices)\b`)
	passedOver    = regexp.MustCompile(`Rows Removed by (?:Filter|Index Recheck): (\d+)`)
	wholeLite     = regexp.MustCompile(`SCAN (\w+)[^\n]*`)
)

// bounded are the scans that end with the list, go through what was found before, or through what is not over.
var bounded = regexp.MustCompile(`^SCAN (CONSTANT ROW|(o|up|c|p|p\d+|due)$|operators |(f|turns_fts) VIRTUAL TABLE INDEX 0:M` +
	`|\w+ USING (COVERING )?INDEX (pulse_sessions_(news|due)|turns_latest|notifications_(due|sending|dead)|inbox_tasks_(queue|leases|dead)|gates_open|inbound_updates_pending))`)

// mostPassed is how many rows a question may read and not use.
const mostPassed = 1000

// wholes are the parts of a plan that read a table from end to end.
func wholes(t *testing.T, s *Store, query string) []string {
	t.Helper()
	if s.pg {
		text := plan(t, s.reads.DB, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF)", query)
		found := wholePostgres.FindAllString(text, -1)
		for _, m := range passedOver.FindAllStringSubmatch(text, -1) {
			if n, _ := strconv.Atoi(m[1]); n > mostPassed {
				found = append(found, m[0])
			}
		}
		if len(found) > 0 {
			t.Log(text)
		}
		return found
	}
	return slices.DeleteFunc(wholeLite.FindAllString(plan(t, s.reads.DB, "EXPLAIN QUERY PLAN", query), -1), func(line string) bool {
		return bounded.MatchString(line) || line == "SCAN m" && strings.Contains(query, ") m ") // one that was put together before
	})
}

// asked are the questions of the bot, the API, the commands and the programs themselves.
func asked(ctx context.Context, s *Store) map[string]func() error {
	mine := pulse.Address{Platform: pulse.PlatformTelegram, Chat: "42"}
	session := pulse.SessionID(filledID(sessionKind, *scale/2))
	project := pulse.ProjectID(filledID(projectKind, 2))
	sessions := func(f pulse.SessionFilter) func() error {
		return func() error { _, err := s.Sessions(ctx, f); return err }
	}
	open := []pulse.SessionStatus{pulse.SessionPending, pulse.SessionRunning, pulse.SessionBlocked, pulse.SessionPaused}
	return map[string]func() error{
		"list":                           sessions(pulse.SessionFilter{}),
		"list --limit 1000":              sessions(pulse.SessionFilter{Limit: 1000}),
		"list --status blocked":          sessions(pulse.SessionFilter{Statuses: []pulse.SessionStatus{pulse.SessionBlocked}}),
		"list --status complete,failed":  sessions(pulse.SessionFilter{Statuses: []pulse.SessionStatus{pulse.SessionComplete, pulse.SessionFailed}}),
		"list --project":                 sessions(pulse.SessionFilter{ProjectID: project}),
		"list --project --status paused": sessions(pulse.SessionFilter{ProjectID: project, Statuses: []pulse.SessionStatus{pulse.SessionPaused}}),
		"what goes on in a chat":         sessions(pulse.SessionFilter{Address: mine, Statuses: open, Limit: 2}),
		"who in a chat waits":            sessions(pulse.SessionFilter{Address: mine, Statuses: []pulse.SessionStatus{pulse.SessionBlocked}, Limit: 5}),
		"what a chat has":                sessions(pulse.SessionFilter{Address: mine, Limit: 100}),
		"what a number has":              sessions(pulse.SessionFilter{Address: pulse.Address{Platform: pulse.PlatformSMS, Chat: "+1"}, Limit: 5}),
		"what a Discord thread has":      sessions(pulse.SessionFilter{Address: pulse.Address{Platform: pulse.PlatformDiscord, Chat: "d"}, Limit: 5}),
		"what the terminal has":          sessions(pulse.SessionFilter{Address: pulse.Address{Platform: pulse.PlatformConsole, Chat: "here"}, Statuses: open, Limit: 5}),
		"show":                           func() error { _, err := s.Session(ctx, session); return err },
		"show by the end of an id":       func() error { _, err := s.FindSession(ctx, pulse.Short(session)); return err },
		"show nobody":                    func() error { return wantNotFound(second(s.FindSession(ctx, "ffffffff"))) },
		"its iterations":                 func() error { _, err := s.Iterations(ctx, session); return err },
		"its last iteration":             func() error { _, _, err := s.CurrentIteration(ctx, session); return err },
		"its open gate":                  func() error { return wantNone(second(s.OpenGate(ctx, session))) },
		"its turns":                      func() error { _, err := s.Turns(ctx, session); return err },
		"its prompt":                     func() error { _, err := s.Prompt(ctx, session, 1); return err },
		"its events":                     func() error { _, err := s.Events(ctx, session, 0, 100); return err },
		"its text on the way":            func() error { _, err := s.Deltas(ctx, session, pulse.DeltaPosition{}, 100); return err },
		"a turn":                         func() error { _, err := s.Turn(ctx, pulse.TurnID(filledID(turnKind, 2))); return err },
		"a turn's ancestors":             func() error { _, err := s.Ancestors(ctx, pulse.TurnID(filledID(turnKind, 2)), 12); return err },
		"the latest turn":                func() error { _, err := s.LatestTurn(ctx, project, session); return err },
		"turns by a word":                func() error { _, err := s.SearchTurns(ctx, project, strconv.Itoa(*scale/2), 8); return err },
		"what moves":                     func() error { _, err := s.Moving(ctx); return err },
		"who has news":                   func() error { _, err := s.SessionsWithNews(ctx, 100); return err },
		"what is due":                    func() error { s.anyDue(ctx); _, err := s.nextDue(ctx); return err },
		"which message comes next":       func() error { _, err := s.NextNoticeAt(ctx); return err },
		"what a message is about":        func() error { _, _, err := s.SessionByMessage(ctx, mine, "m"+strconv.Itoa(*scale)); return err },
		"what came in":                   func() error { _, err := s.PendingInbound(ctx, 100); return err },
		"how many go on":                 func() error { _, err := s.count(ctx, countLive); return err },
		"who ended before":               func() error { _, _, err := s.endedAfter(ctx, firstPlace, time.Minute); return err },
	}
}

func wantNotFound(err error) error {
	if pulse.CodeOf(err) == pulse.CodeNotFound {
		return nil
	}
	return err
}

func wantNone(err error) error {
	if err == pulse.ErrNone {
		return nil
	}
	return err
}

// TestQuestionsReadNoWholeTable asks everything that people and programs ask, with a database that has grown for months.
func TestQuestionsReadNoWholeTable(t *testing.T) {
	both(t, *scale, func(t *testing.T, s *Store, _ filler) {
		seen := &spy{}
		s.reads = s.reads.WithQueryHook(seen)
		questions := asked(t.Context(), s)
		var names []string
		for name := range questions {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			must(t, questions[name]())
			queries := seen.take()
			if len(queries) == 0 {
				t.Errorf("%s: nothing was asked", name)
			}
			took := time.Hour
			for range 3 { // the best of three: the machine is not ours alone
				began := time.Now()
				must(t, questions[name]())
				took = min(took, time.Since(began))
			}
			seen.take()
			t.Logf("%-32s %8.2f ms", name, float64(took.Microseconds())/1000)
			for _, q := range queries {
				found := wholes(t, s, q)
				if name == "turns by a word" && *scale < 100_000 { // reading a project is quicker then than the text index
					found = slices.DeleteFunc(found, func(line string) bool { return strings.HasPrefix(line, "Rows Removed") })
				}
				if len(found) > 0 {
					t.Errorf("%s reads too much: %s\n%s", name, strings.Join(found, "; "), q)
				}
			}
		}
	})
}

// TestCountsRestAfterAnEffort asks for the numbers of a large database again and again.
func TestCountsRestAfterAnEffort(t *testing.T) {
	both(t, 2000, func(t *testing.T, s *Store, f filler) {
		counts, err := s.Counts(t.Context())
		must(t, err)
		for name, want := range map[string]int{"sessions_running": 20, "sessions_complete": f.sum("SELECT count(*) FROM pulse_sessions WHERE status = 'complete'"),
			"tasks_queued": 20, "tasks_dead": f.n / 1000, "notices_queued": 20, "notices_sent": f.sum("SELECT count(*) FROM notifications WHERE status = 'sent'"), "inbound_pending": 5} {
			if counts[name] != int64(want) {
				t.Errorf("%s is %d, want %d", name, counts[name], want)
			}
		}
		s.counted.next = time.Now().Add(time.Hour) // as after counting a million rows
		seen := &spy{}
		s.reads = s.reads.WithQueryHook(seen)
		again, err := s.Counts(t.Context())
		must(t, err)
		if again["sessions_complete"] != counts["sessions_complete"] || again["sessions_running"] != 20 {
			t.Errorf("asked again it is %v", again)
		}
		for _, q := range seen.take() {
			if strings.Contains(q, "'complete'") {
				t.Errorf("what is over was counted again: %s", q)
			}
		}
	})
}
