package db

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pulseloop/pulse"
)

// aged is how old the oldest half of the filled sessions is at least, by their ends.
func (f filler) aged() time.Duration { return time.Duration(f.n/2)*time.Second + 10*time.Second }

// kept is what has to be there after a purge of all that is older than aged.
func (f filler) kept(t *testing.T, name, query string, want int) {
	t.Helper()
	if got := f.sum(query); got != want {
		t.Errorf("%s: %d rows are left, want %d", name, got, want)
	}
}

// ofOld counts rows of the sessions whose end is older than the keeping time.
func (f filler) ofOld(table, where string) int {
	return f.sum("SELECT count(*) FROM " + table + " x JOIN pulse_sessions s ON s.id = x.session_id WHERE s.ended_at IS NOT NULL AND s.ended_at < " +
		f.s.sqlNow(-f.aged()) + " AND " + where)
}

func everything(keep time.Duration) Retention {
	return Retention{Events: keep, Turns: keep, Prompts: keep, Messages: keep, Deltas: keep}
}

// TestRetention purges half of a database of 55,000 rows and looks at every table.
func TestRetention(t *testing.T) {
	both(t, 3000, func(t *testing.T, s *Store, f filler) {
		now := time.Now()
		s.cfg.Clock = func() time.Time { return now } // else sessions come of age while this runs
		f.exec(f.sql("INSERT INTO audit (seq, at, operator, name, action, subject, detail, prev_hash, hash) VALUES (1, at<0>at, 'o', 'n', 'a', 's', '', '', 'h')", f.n))
		f.exec(f.sql("INSERT INTO notifications (id, platform, chat, slot, kind, priority, body, status, created_at) VALUES "+
			"(notice<900000000>notice, 'telegram', '1', 'old', 'reply', 1, '{}', 'sent', at<0>at), (notice<900000001>notice, 'telegram', '1', 'waits', 'reply', 1, '{}', 'queued', at<0>at)", f.n))
		began := time.Now()
		p, err := s.Purge(t.Context(), everything(f.aged()))
		must(t, err)
		t.Logf("%+v in %.1f s", p, time.Since(began).Seconds())
		old := f.n/2 - 40
		for name, got := range map[string][2]int64{"events": {p.Events, int64(5 * old)}, "turns": {p.Turns, int64(7 * old)}, "prompts": {p.Prompts, int64(2 * old)}} {
			if more := got[0] - got[1]; more < -100 || more > 100+got[1]/5 { // while it was filled, some came of age
				t.Errorf("%s: %d rows went, want about %d", name, got[0], got[1])
			}
		}
		for name, left := range map[string]int{"events": f.ofOld("events", "true"), "turns": f.ofOld("turns", "true"), "sent notices": f.ofOld("notifications", "x.status <> 'queued'"),
			"prompts": f.ofOld("pulse_iterations", "x.task_content <> ''"), "tasks' prompts": f.ofOld("inbox_tasks", "x.content <> ''"),
			"pieces of turns": f.sum("SELECT count(*) FROM turn_messages WHERE turn_id NOT IN (SELECT id FROM turns)"),
			"the slices":      f.sum("SELECT count(*) FROM slices WHERE id = 'slice100'"), "the notice of nobody": f.sum("SELECT count(*) FROM notifications WHERE slot = 'old'")} {
			if left > 0 {
				t.Errorf("%s: %d are left of what is old", name, left)
			}
		}
		f.kept(t, "sessions", "SELECT count(*) FROM pulse_sessions", f.n)
		f.kept(t, "iterations", "SELECT count(*) FROM pulse_iterations", f.n)
		f.kept(t, "tasks", "SELECT count(*) FROM inbox_tasks", f.n)
		f.kept(t, "audit", "SELECT count(*) FROM audit", 1)
		f.kept(t, "what waits to be sent", "SELECT count(*) FROM notifications WHERE status = 'queued'", 21)
		f.kept(t, "events of those not at their end", "SELECT count(*) FROM events WHERE session_id IN (SELECT id FROM pulse_sessions WHERE ended_at IS NULL)", 200)
		f.kept(t, "turns of those not at their end", "SELECT count(*) FROM turns WHERE session_id IN (SELECT id FROM pulse_sessions WHERE ended_at IS NULL)", 80)
		f.kept(t, "prompts of those not at their end", "SELECT count(*) FROM inbox_tasks WHERE content <> '' AND session_id IN (SELECT id FROM pulse_sessions WHERE ended_at IS NULL)", 40)
		f.kept(t, "updates, which the platform may repeat", "SELECT count(*) FROM inbound_updates", f.n)
		if !s.pg {
			f.kept(t, "the text index", "SELECT count(*) FROM turns_fts_docsize", f.sum("SELECT count(*) FROM turns WHERE role = 'assistant'"))
		}
		if _, err := s.Prompt(t.Context(), pulse.SessionID(filledID(sessionKind, 100)), 1); pulse.CodeOf(err) != pulse.CodeNotFound {
			t.Errorf("a prompt that is not kept is answered with %v", err)
		}
		hits, err := s.SearchTurns(t.Context(), pulse.ProjectID(filledID(projectKind, f.n%5+1)), strconv.Itoa(f.n), 8)
		must(t, err)
		if len(hits) != 1 {
			t.Errorf("%d turns are found by their words after the purge", len(hits))
		}
	})
}

// TestUpdatesAreRememberedAsLongAsTheyMayComeAgain: the key of an update that was handled is what keeps a repeated one from a
// second effect.
func TestUpdatesAreRememberedAsLongAsTheyMayComeAgain(t *testing.T) {
	both(t, 2000, func(t *testing.T, s *Store, f filler) {
		f.exec("UPDATE inbound_updates SET handled_at = " + s.sqlNow(-RepeatedFor-time.Minute) + " WHERE position BETWEEN 6 AND 105")
		p, err := s.Purge(t.Context(), Retention{Messages: time.Minute})
		must(t, err)
		if p.Updates != 100 {
			t.Errorf("%d updates were forgotten, want the 100 that nobody repeats any more", p.Updates)
		}
		fresh, err := s.Receive(t.Context(), "bot", []pulse.Inbound{{UpdateID: "u500", Order: 500}, {UpdateID: "u3", Order: 3}}, "")
		must(t, err)
		if fresh != 0 {
			t.Errorf("%d updates that were handled have a second effect", fresh)
		}
		f.kept(t, "what is not handled", "SELECT count(*) FROM inbound_updates WHERE handled_at IS NULL", 5)
	})
}

// TestAPurgeGoesOnWhereItWasEnded ends a purge in the middle and looks where the next one begins.
func TestAPurgeGoesOnWhereItWasEnded(t *testing.T) {
	both(t, 2000, func(t *testing.T, s *Store, f filler) {
		half := f.n / 4
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-tick.C {
				from, err := s.purgedUpTo(t.Context(), "events")
				if err != nil || from.id >= uid(filledID(sessionKind, half)) {
					return
				}
			}
		}()
		p, err := s.Purge(ctx, Retention{Events: f.aged()})
		must(t, err)
		if p.Events == 0 || p.Events >= int64(5*(f.n/2-40)) {
			t.Fatalf("the purge that was ended took %d rows", p.Events)
		}
		again, err := s.Purge(t.Context(), Retention{Events: f.aged()})
		must(t, err)
		if sum := p.Events + again.Events; sum < int64(5*(f.n/2-40)-200) {
			t.Errorf("%d and %d rows went, which is not all", p.Events, again.Events)
		}
		if f.ofOld("events", "true") > 0 {
			t.Error("something old is left")
		}
		third, err := s.Purge(t.Context(), Retention{Events: f.aged()})
		must(t, err)
		if third.Events > 200 {
			t.Errorf("%d more rows went without a reason", third.Events)
		}
	})
}

// TestClaimsDoNotWaitForAPurge claims tasks while a purge is at work.
func TestClaimsDoNotWaitForAPurge(t *testing.T) {
	both(t, 4000, func(t *testing.T, s *Store, f filler) {
		n := 0
		cycle := func() time.Duration {
			n++
			f.exec(f.sql("INSERT INTO inbox_tasks (id, kind, route, status, content, media_context, spec, created_at) VALUES (task<"+strconv.Itoa(900_000_000+n)+">task, 'x', 'mine', 'queued', '', '{}', '{}', at<0>at)", 0))
			began := time.Now()
			c, err := s.Claim(t.Context(), "d", []string{"mine"}, time.Minute)
			must(t, err)
			must(t, s.Finish(t.Context(), pulse.Fence{TaskID: c.Task.ID, Token: c.Token}, pulse.TaskResult{}))
			return time.Since(began)
		}
		times := func(going func() bool) (p50, worst time.Duration) {
			var all []time.Duration
			for range 3000 {
				if !going() {
					break
				}
				all = append(all, cycle())
			}
			slices.Sort(all)
			return all[len(all)/2], all[len(all)-1]
		}
		left := 200
		quiet50, quietWorst := times(func() bool { left--; return left >= 0 })
		ctx, cancel := context.WithCancel(t.Context())
		var purge sync.WaitGroup
		purge.Go(func() {
			defer cancel()
			if _, err := s.Purge(ctx, everything(f.aged())); err != nil {
				t.Error(err)
			}
		})
		busy50, busyWorst := times(func() bool { return ctx.Err() == nil })
		cancel()
		purge.Wait()
		t.Logf("claim and finish: median %s, worst %s; beside a purge %s, %s (%d cycles)", quiet50, quietWorst, busy50, busyWorst, n)
		if n < 205 {
			t.Errorf("only %d cycles fit beside the purge", n-200)
		}
		if busyWorst > 5*time.Second || busy50 > 20*quiet50+20*time.Millisecond {
			t.Errorf("claims wait for the purge: median %s, worst %s", busy50, busyWorst)
		}
	})
}
