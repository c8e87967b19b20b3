// Package dbtest is the suite that every database behind db.Store must pass,
// and the way for other packages' tests to get a store: a fresh one a call,
// migrated, closed when the test ends. Each PostgreSQL store has a schema of
// its own, so tests may run beside each other.
package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"pulseloop/db"
	"pulseloop/pulse"
)

// URLVar names the PostgreSQL that tests may use.
const URLVar = "PULSE_TEST_DATABASE_URL"

// Clock is a time that only the test moves.
type Clock struct {
	mu sync.Mutex
	t  time.Time
}

// NewClock starts at a fixed instant.
func NewClock() *Clock { return &Clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// Now is the time it is.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// Advance lets time pass.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// Place is a database that can be opened more than once.
type Place struct {
	Config   db.Config
	Postgres bool
}

// Open opens a store on the place and closes it with the test.
func (p Place) Open(t testing.TB, clock func() time.Time) *db.Store {
	t.Helper()
	cfg := p.Config
	cfg.Clock = clock
	s, err := db.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return s
}

// Exec runs SQL past the store.
func (p Place) Exec(t testing.TB, query string, args ...any) {
	t.Helper()
	raw := p.Raw(t)
	if _, err := raw.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// Raw is the database past the store.
func (p Place) Raw(t testing.TB) *sql.DB {
	t.Helper()
	driver, dsn := "pgx", p.Config.URL
	if !p.Postgres {
		driver, dsn = "sqlite", "file:"+p.Config.Path+"?_pragma=busy_timeout(5000)"
	}
	raw, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return raw
}

// NewSQLite gives a place for a SQLite file that does not exist yet.
func NewSQLite(t testing.TB) Place {
	return Place{Config: db.Config{Path: filepath.Join(t.TempDir(), "pulse.db")}}
}

// NewPostgres gives an empty schema of the PostgreSQL named by URLVar; the
// test is skipped without one, and fails in CI.
func NewPostgres(t testing.TB) Place {
	t.Helper()
	base := os.Getenv(URLVar)
	if base == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no PostgreSQL to test with: set %s", URLVar)
		}
		t.Skipf("no PostgreSQL to test with: set %s", URLVar)
	}
	cfg, err := pgx.ParseConfig(base)
	if err != nil {
		t.Fatalf("%s: %v", URLVar, err)
	}
	admin := stdlib.OpenDB(*cfg)
	schema := "t" + strings.ReplaceAll(pulse.NewUUID(time.Now()), "-", "")
	if _, err := admin.Exec("CREATE SCHEMA " + schema); err != nil {
		t.Fatalf("create schema: %v", err)
	}
	t.Cleanup(func() {
		defer admin.Close()
		if _, err := admin.ExecContext(context.Background(), "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Errorf("drop schema: %v", err)
		}
	})
	u, err := url.Parse(base)
	if err != nil {
		t.Fatalf("%s: %v", URLVar, err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return Place{Config: db.Config{URL: u.String()}, Postgres: true}
}

// SQLite gives a migrated store on a file of its own.
func SQLite(t testing.TB, clock func() time.Time) *db.Store {
	return migrated(t, NewSQLite(t), clock)
}

// Postgres gives a migrated store on a schema of its own, or skips the test.
func Postgres(t testing.TB, clock func() time.Time) *db.Store {
	return migrated(t, NewPostgres(t), clock)
}

func migrated(t testing.TB, p Place, clock func() time.Time) *db.Store {
	t.Helper()
	s := p.Open(t, clock)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return s
}

// fixture is a migrated store with a project and a clock.
type fixture struct {
	*db.Store

	t       testing.TB
	ctx     context.Context
	place   Place
	clock   *Clock
	project pulse.Project
	tokens  map[pulse.NoticeID]pulse.ClaimToken // of the latest claim
}

func newFixture(t *testing.T, place Place) *fixture {
	t.Helper()
	clock := NewClock()
	f := &fixture{Store: migrated(t, place, clock.Now), t: t, ctx: t.Context(), place: place, clock: clock, tokens: map[pulse.NoticeID]pulse.ClaimToken{}}
	f.project = f.addProject("my-app")
	return f
}

func (f *fixture) id() string { return pulse.NewUUID(f.clock.Now()) }

func (f *fixture) addProject(name string) pulse.Project {
	f.t.Helper()
	p := pulse.Project{ID: pulse.ProjectID(f.id()), Name: name, Path: "/src/" + name, BaseBranch: "main", Agent: "scripted", CreatedAt: f.clock.Now()}
	f.apply(pulse.Guard{}, pulse.Change{Project: &p})
	return p
}

func (f *fixture) apply(g pulse.Guard, c pulse.Change) {
	f.t.Helper()
	if err := f.Apply(f.ctx, g, c); err != nil {
		f.t.Fatalf("apply: %v", err)
	}
}

func (f *fixture) newSession() pulse.Session {
	now := f.clock.Now()
	return pulse.Session{ID: pulse.SessionID(f.id()), ProjectID: f.project.ID, ProjectName: f.project.Name, Goal: "add a health endpoint",
		Role: pulse.RolePulsing, Status: pulse.SessionPending, MaxIterations: 10, Run: 1, ContextStrategy: pulse.ContextPrefetch,
		Agent: "scripted", BranchName: "pulse/health", CreatedBy: pulse.OriginTelegram, ChatID: "42", DueAt: now, CreatedAt: now, UpdatedAt: now}
}

func (f *fixture) addSession() pulse.Session {
	f.t.Helper()
	s := f.newSession()
	f.apply(pulse.Guard{}, pulse.Change{NewSession: &s})
	return f.session(s.ID)
}

func (f *fixture) session(id pulse.SessionID) pulse.Session {
	f.t.Helper()
	s, err := f.Session(f.ctx, id)
	if err != nil {
		f.t.Fatalf("read session: %v", err)
	}
	return s
}

// dispatch brings a session to a queued task, as the Runner does.
func (f *fixture) dispatch(s pulse.Session) (pulse.Session, pulse.Iteration, pulse.Task) {
	f.t.Helper()
	now := f.clock.Now()
	s.Status, s.CurrentIteration = pulse.SessionRunning, s.CurrentIteration+1
	s.DueAt, s.StepToken = now.Add(5*time.Minute), ""
	if s.StartedAt.IsZero() {
		s.StartedAt = now
	}
	task := pulse.Task{ID: pulse.TaskID(f.id()), Kind: pulse.TaskIterate, Route: pulse.ProjectRoute(f.project.ID), Status: pulse.TaskQueued, Source: "pulse",
		SessionID: s.ID, Content: "do it", MaxAttempts: 3, CreatedAt: now,
		MediaContext: pulse.MediaContext{PulseSessionID: s.ID, IterationNumber: s.CurrentIteration, ProjectID: f.project.ID, BranchName: s.BranchName, SliceID: "slice-1"},
		Spec:         pulse.TaskSpec{Role: s.Role, Agent: s.Agent, RepoPath: f.project.Path, Branch: s.BranchName, Subject: "feat: health", SilenceLimit: 5 * time.Minute}}
	it := pulse.Iteration{ID: pulse.IterationID(f.id()), SessionID: s.ID, Number: s.CurrentIteration, Attempt: 1, Run: s.Run, TaskID: task.ID,
		TaskContent: task.Content, Status: pulse.IterationDispatched, CreatedAt: now}
	task.IterationID = it.ID
	f.apply(pulse.Guard{SessionID: s.ID, Version: s.Version}, pulse.Change{Session: &s, Iterations: []pulse.Iteration{it}, Tasks: []pulse.Task{task},
		Events: []pulse.Event{{SessionID: s.ID, Type: pulse.EventIterationStarted, At: now, Data: map[string]any{"number": float64(s.CurrentIteration)}}}})
	return f.session(s.ID), it, task
}

const lease = 30 * time.Second

func (f *fixture) claim() (pulse.Claim, pulse.Fence) {
	f.t.Helper()
	c, err := f.Claim(f.ctx, "d1", []string{pulse.DaemonRoute("d1"), pulse.ProjectRoute(f.project.ID)}, lease)
	if err != nil {
		f.t.Fatalf("claim: %v", err)
	}
	return c, pulse.Fence{TaskID: c.Task.ID, Token: c.Token}
}

// started is a session whose task runs in a daemon's hands.
func (f *fixture) started() (pulse.Session, pulse.Iteration, pulse.Fence) {
	f.t.Helper()
	s, it, _ := f.dispatch(f.addSession())
	_, fence := f.claim()
	if err := f.Running(f.ctx, fence); err != nil {
		f.t.Fatalf("mark running: %v", err)
	}
	return f.session(s.ID), it, fence
}

func (f *fixture) task(id pulse.SessionID) (pulse.Iteration, pulse.Task) {
	f.t.Helper()
	it, task, err := f.CurrentIteration(f.ctx, id)
	if err != nil {
		f.t.Fatalf("read current iteration: %v", err)
	}
	return it, task
}

func mustBe(t testing.TB, err error, want error, what string) {
	t.Helper()
	if !is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

func mustCode(t testing.TB, err error, want pulse.Code, what string) {
	t.Helper()
	if pulse.CodeOf(err) != want {
		t.Fatalf("%s: got %v (%s), want code %s", what, err, pulse.CodeOf(err), want)
	}
}

func equal[T comparable](t testing.TB, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// together runs fn n times at once and gives the errors.
func together(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = fn(i) })
	}
	group.Wait()
	return errs
}

func noErrors(t testing.TB, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("number %d: %v", i, err)
		}
	}
}

func each[T any](n int, make func(i int) T) []T {
	out := []T{}
	for i := range n {
		out = append(out, make(i))
	}
	return out
}

func label(i int) string { return fmt.Sprintf("n%d", i) }
