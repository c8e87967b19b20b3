package db

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pulseloop/pulse"
)

// TestAClaimOfNoticesReadsTheHeadsOnly has a long backlog in few chats, as after an outage of a platform.
func TestAClaimOfNoticesReadsTheHeadsOnly(t *testing.T) {
	explain := func(s *Store, how string) string {
		w := s.work()
		query, args := claimNotices(w, "0198c2a4-0000-7000-8000-000000000000", []pulse.Platform{"telegram"}, []pulse.Address{{Platform: "telegram", Chat: "3"}}, 10, time.Minute)
		return plan(t, s.reads.DB, how, s.reads.NewRaw(query, args...).String())
	}
	s := openAt(t, filepath.Join(t.TempDir(), "pulse.db"))
	got := explain(s, "EXPLAIN QUERY PLAN")
	if !strings.Contains(got, "SEARCH n USING INDEX notifications_heads (platform=? AND chat=?)") || strings.Contains(got, "SCAN n\n") || strings.Contains(got, "SCAN notifications") ||
		strings.Count(got, "TEMP B-TREE") > 3 { // both halves of what was found, and what is chosen of it
		t.Errorf("SQLite claims like this:\n%s", got)
	}
	pg, exec := openSchema(t)
	exec(`INSERT INTO notifications (id, platform, chat, slot, kind, priority, body, status, next_at, created_at)
		SELECT gen_random_uuid(), 'telegram', g % 5, g, 'reply', 1, '{}', CASE WHEN g > 40000 THEN 'queued' ELSE 'sent' END, now(), now() FROM generate_series(1, 60000) g`)
	exec("ANALYZE notifications")
	got = explain(pg, "EXPLAIN")
	if strings.Contains(got, "Seq Scan on notifications") || !strings.Contains(got, "notifications_heads") {
		t.Errorf("PostgreSQL claims like this:\n%s", got)
	}
}
