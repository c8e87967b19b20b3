package db

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/uptrace/bun"
)

// counted keeps the numbers of what is over. They grow without bound, and
// counting them reads them all.
type counted struct {
	mu   sync.Mutex
	sums map[string]int64
	next time.Time // when they are counted again
}

// Counting what is over takes at most a hundredth of the time, however often
// the numbers are asked for; what takes next to nothing is always counted.
const (
	countedRest = 100
	countedFree = 10 * time.Millisecond
)

// countLive reads what is not over, or needs somebody: there is little of
// that, and each kind has an index of its own.
const countLive = `SELECT 'sessions_' || status AS name, count(*) AS n FROM pulse_sessions WHERE status IN ('pending', 'running', 'blocked', 'paused') GROUP BY status
	UNION ALL SELECT 'tasks_queued', count(*) FROM inbox_tasks WHERE status = 'queued'
	UNION ALL SELECT 'tasks_' || status, count(*) FROM inbox_tasks WHERE status IN ('claimed', 'running') GROUP BY status
	UNION ALL SELECT 'tasks_dead', count(*) FROM inbox_tasks WHERE status = 'dead'
	UNION ALL SELECT 'notices_queued', count(*) FROM notifications WHERE status = 'queued'
	UNION ALL SELECT 'notices_sending', count(*) FROM notifications WHERE status = 'sending'
	UNION ALL SELECT 'notices_dead', count(*) FROM notifications WHERE status = 'dead'
	UNION ALL SELECT 'gates_open', count(*) FROM gates WHERE status = 'open'
	UNION ALL SELECT 'inbound_pending', count(*) FROM inbound_updates WHERE handled_at IS NULL
	UNION ALL SELECT 'operators', count(*) FROM operators`

const countOver = `SELECT 'sessions_' || status AS name, count(*) AS n FROM pulse_sessions WHERE status IN ('complete', 'failed', 'aborted') GROUP BY status
	UNION ALL SELECT 'tasks_' || status, count(*) FROM inbox_tasks WHERE status IN ('complete', 'failed', 'cancelled') GROUP BY status
	UNION ALL SELECT 'notices_' || status, count(*) FROM notifications WHERE status IN ('sent', 'dropped') GROUP BY status
	UNION ALL SELECT 'gates_' || status, count(*) FROM gates WHERE status <> 'open' GROUP BY status`

// Counts says how many records are in which state, under names such as
// "sessions_running", "tasks_queued", "notices_dead", "inbound_pending". A
// state of which there is none may be left out. In a large database the
// numbers of what is over may be some minutes old.
func (s *Store) Counts(ctx context.Context) (map[string]int64, error) {
	counts, err := s.countOver(ctx)
	if err != nil {
		return nil, err
	}
	live, err := s.count(ctx, countLive)
	maps.Copy(counts, live)
	return counts, err
}

func (s *Store) countOver(ctx context.Context) (map[string]int64, error) {
	c := &s.counted
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	if began.Before(c.next) {
		return maps.Clone(c.sums), nil
	}
	sums, err := s.count(ctx, countOver)
	if err != nil {
		return nil, err
	}
	c.sums, c.next = sums, time.Time{}
	if took := time.Since(began); took > countedFree {
		c.next = time.Now().Add(countedRest * took)
	}
	return maps.Clone(sums), nil
}

func (s *Store) count(ctx context.Context, query string) (map[string]int64, error) {
	var out []struct {
		Name string
		N    int64
	}
	err := s.view(ctx, "count records", func(ctx context.Context, db bun.IDB) error { return db.NewRaw(query).Scan(ctx, &out) })
	counts := make(map[string]int64, len(out))
	for _, c := range out {
		counts[c.Name] = c.N
	}
	return counts, err
}
