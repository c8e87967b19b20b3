package chaos

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pulseloop/db"
	"pulseloop/db/dbtest"
	"pulseloop/pulse"
)

// TestQueueModel compares the task queue of both databases with a model of a few lines, over random sequences of everything
// that a daemon, a zombie, the reaper, the clock and a person can do to it.
func TestQueueModel(t *testing.T) {
	for name, place := range map[string]func(testing.TB) dbtest.Place{"sqlite": dbtest.NewSQLite, "postgres": dbtest.NewPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := dbtest.NewClock()
			at := place(t)
			store := at.Open(t, clock.Now)
			if _, err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			raw := at.Raw(t)
			var runs atomic.Int64
			rapid.Check(t, func(rt *rapid.T) {
				m := &queueModel{store: store, raw: raw, clock: clock, tasks: map[pulse.TaskID]*modelTask{}}
				run := runs.Add(1)
				m.routes = []string{fmt.Sprintf("a%d", run), fmt.Sprintf("b%d", run)}
				rt.Repeat(map[string]func(*rapid.T){
					"":          m.agree,
					"enqueue":   m.enqueue,
					"claim":     m.claim,
					"heartbeat": m.heartbeat,
					"running":   m.running,
					"append":    m.append,
					"finish":    m.finish,
					"release":   m.release,
					"cancel":    m.cancel,
					"reap":      m.reap,
					"time":      m.advance,
				})
				m.clear(rt)
			})
		})
	}
}

const modelLease = 30 * time.Second

// queueModel is the queue as it should be.
type queueModel struct {
	store  *db.Store
	raw    *sql.DB
	clock  *dbtest.Clock
	routes []string
	tasks  map[pulse.TaskID]*modelTask
	order  []pulse.TaskID
	fences []pulse.Fence // every claim there ever was
}

type modelTask struct {
	route    string
	priority int
	max      int
	status   pulse.TaskStatus
	attempt  int
	claims   int
	token    pulse.ClaimToken
	lease    time.Time
	failed   bool
}

func (k *modelTask) inHand() bool {
	return k.status == pulse.TaskClaimed || k.status == pulse.TaskRunning
}

// live is the fence: the token of the last claim, whose lease has not ended.
func (m *queueModel) live(f pulse.Fence) (*modelTask, bool) {
	k := m.tasks[f.TaskID]
	return k, k.token == f.Token && k.inHand() && k.lease.After(m.clock.Now())
}

// fence is that of any claim, dead ones included.
func (m *queueModel) fence(t *rapid.T) pulse.Fence {
	if len(m.fences) == 0 {
		t.Skip("nothing was claimed yet")
	}
	return rapid.SampledFrom(m.fences).Draw(t, "claim")
}

func (m *queueModel) want(t *rapid.T, what string, err, want error) {
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func (m *queueModel) enqueue(t *rapid.T) {
	k := &modelTask{route: rapid.SampledFrom(m.routes).Draw(t, "route"), priority: rapid.IntRange(0, 2).Draw(t, "priority"),
		max: rapid.IntRange(1, 3).Draw(t, "max"), status: pulse.TaskQueued}
	m.clock.Advance(time.Millisecond) // no two are of the same age
	id := pulse.TaskID(pulse.NewUUID(m.clock.Now()))
	m.want(t, "enqueue", m.store.Apply(t.Context(), pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{{ID: id, Kind: pulse.TaskIterate,
		Route: k.route, Priority: k.priority, MaxAttempts: k.max, CreatedAt: m.clock.Now()}}}), nil)
	m.tasks[id], m.order = k, append(m.order, id)
}

func (m *queueModel) claim(t *rapid.T) {
	routes := rapid.SampledFrom([][]string{m.routes[:1], m.routes[1:], m.routes}).Draw(t, "routes")
	var best pulse.TaskID
	for _, id := range m.order {
		k := m.tasks[id]
		if k.status == pulse.TaskQueued && strings.Contains(strings.Join(routes, " "), k.route) && (best == "" || k.priority > m.tasks[best].priority) {
			best = id
		}
	}
	c, err := m.store.Claim(t.Context(), "d", routes, modelLease)
	if best == "" {
		m.want(t, "claim of nothing", err, pulse.ErrNone)
		return
	}
	m.want(t, "claim", err, nil)
	if c.Task.ID != best {
		t.Fatalf("claimed %s, want %s", c.Task.ID, best)
	}
	for _, f := range m.fences {
		if f.Token == c.Token {
			t.Fatal("a token was given twice")
		}
	}
	k := m.tasks[best]
	k.status, k.token, k.lease = pulse.TaskClaimed, c.Token, m.clock.Now().Add(modelLease)
	k.attempt++
	k.claims++
	m.fences = append(m.fences, pulse.Fence{TaskID: best, Token: c.Token})
}

func (m *queueModel) heartbeat(t *rapid.T) {
	f := m.fence(t)
	cancelled, err := m.store.Heartbeat(t.Context(), f, modelLease)
	k, live := m.live(f)
	switch {
	case live:
		m.want(t, "heartbeat", err, nil)
		k.lease = m.clock.Now().Add(modelLease)
	case k.token == f.Token && k.status == pulse.TaskCancelled:
		m.want(t, "heartbeat of a cancelled task", err, nil)
	default:
		m.want(t, "late heartbeat", err, pulse.ErrFenced)
	}
	if want := k.token == f.Token && k.status == pulse.TaskCancelled; cancelled != want {
		t.Fatalf("heartbeat says cancelled: %v, want %v", cancelled, want)
	}
}

// fenced runs a write that counts only under a live claim.
func (m *queueModel) fenced(t *rapid.T, what string, write func(pulse.Fence) error, effect func(*modelTask)) {
	f := m.fence(t)
	err := write(f)
	if k, live := m.live(f); live {
		m.want(t, what, err, nil)
		effect(k)
		return
	}
	m.want(t, "late "+what, err, pulse.ErrFenced)
}

func (m *queueModel) running(t *rapid.T) {
	m.fenced(t, "running", func(f pulse.Fence) error { return m.store.Running(t.Context(), f) }, func(k *modelTask) { k.status = pulse.TaskRunning })
}

func (m *queueModel) append(t *rapid.T) {
	m.fenced(t, "append", func(f pulse.Fence) error {
		return m.store.Append(t.Context(), f, pulse.StreamBatch{Sign: m.clock.Now()})
	}, func(*modelTask) {})
}

func (m *queueModel) release(t *rapid.T) {
	m.fenced(t, "release", func(f pulse.Fence) error { return m.store.Release(t.Context(), f) }, func(k *modelTask) {
		k.status, k.token = pulse.TaskQueued, ""
		k.attempt--
	})
}

func (m *queueModel) finish(t *rapid.T) {
	f := m.fence(t)
	failed := rapid.Bool().Draw(t, "failed")
	r := pulse.TaskResult{FinalText: "done"}
	if failed {
		r.Error = "failed"
	}
	err := m.store.Finish(t.Context(), f, r)
	k, live := m.live(f)
	switch {
	case live:
		m.want(t, "finish", err, nil)
		k.status, k.failed = pulse.TaskComplete, failed
		if failed {
			k.status = pulse.TaskFailed
		}
	case k.token == f.Token && (k.status == pulse.TaskComplete || k.status == pulse.TaskFailed):
		m.want(t, "finish again", err, nil) // and the first result stands
	default:
		m.want(t, "late finish", err, pulse.ErrFenced)
	}
}

func (m *queueModel) cancel(t *rapid.T) {
	if len(m.order) == 0 {
		t.Skip("no tasks yet")
	}
	id := rapid.SampledFrom(m.order).Draw(t, "task")
	m.want(t, "cancel", m.store.Apply(t.Context(), pulse.Guard{}, pulse.Change{Cancel: []pulse.TaskID{id}}), nil)
	if k := m.tasks[id]; !k.status.Over() {
		k.status = pulse.TaskCancelled
	}
}

func (m *queueModel) reap(t *rapid.T) {
	requeued, dead, err := m.store.Reap(t.Context())
	m.want(t, "reap", err, nil)
	for _, k := range m.tasks {
		if !k.inHand() || k.lease.After(m.clock.Now()) {
			continue
		}
		k.token = ""
		if k.attempt >= k.max {
			k.status = pulse.TaskDead
			dead--
		} else {
			k.status = pulse.TaskQueued
			requeued--
		}
	}
	if requeued != 0 || dead != 0 {
		t.Fatalf("reaped %d to the queue and %d dead beyond what had ended", requeued, dead)
	}
}

func (m *queueModel) advance(t *rapid.T) {
	m.clock.Advance(time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second)
}

// agree compares every task with its row, after every step.
func (m *queueModel) agree(t *rapid.T) {
	found, err := m.raw.QueryContext(t.Context(), "SELECT CAST(id AS text), status, attempt, claims, coalesce(CAST(claim_token AS text), ''), coalesce(CAST(result AS text), '') FROM inbox_tasks WHERE route IN ('"+strings.Join(m.routes, "', '")+"')")
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	n := 0
	for found.Next() {
		var id, status, token, result string
		var attempt, claims int
		if err := found.Scan(&id, &status, &attempt, &claims, &token, &result); err != nil {
			t.Fatal(err)
		}
		n++
		k := m.tasks[pulse.TaskID(id)]
		if string(k.status) != status || k.attempt != attempt || k.claims != claims || string(k.token) != token {
			t.Fatalf("task %s is %s, attempt %d, claims %d, token %q; the model has %+v", id, status, attempt, claims, token, *k)
		}
		if done := k.status == pulse.TaskComplete || k.status == pulse.TaskFailed; done != (result != "") || done && k.failed != strings.Contains(result, `"failed"`) {
			t.Fatalf("task %s has the result %q; the model has %+v", id, result, *k)
		}
	}
	if err := found.Err(); err != nil || n != len(m.tasks) {
		t.Fatalf("%d tasks, the model has %d (%v)", n, len(m.tasks), err)
	}
}

// clear leaves nothing for the reaper of the next sequence.
func (m *queueModel) clear(t *rapid.T) {
	if len(m.order) > 0 {
		m.want(t, "clear", m.store.Apply(t.Context(), pulse.Guard{}, pulse.Change{Cancel: m.order}), nil)
	}
}
