package chaos

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pulseloop/api/wire"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// held is an agent that writes something, stands at a gate, and is done.
var held = `
repeat_last: true
iterations:
  - - write: {path: "work/{{iteration}}.txt", content: "{{goal}}\n"}
    - run: '` + e2etest.Hold("middle") + `'
    - usage: {input: 100, output: 10, cost: 0.001}
    - say: "Done."
    - signal: COMPLETE
sessions:
  quick:
    iterations:
      - - write: {path: quick.txt, content: "{{goal}}\n"}
        - say: "Done at once."
        - signal: COMPLETE
  poison:
    repeat_last: true
    iterations:
      - - run: 'kill -9 $(cat "$HOME/daemon.pid")'
        - sleep: 10s
        - say: "I am still here."
        - signal: COMPLETE
  asking:
    repeat_last: true
    iterations:
      - - write: {path: first.txt, content: "1\n"}
        - say: "Which way?"
        - signal: BLOCKED
      - - write: {path: second.txt, content: "2\n"}
        - say: "Arrived."
        - signal: COMPLETE
`

// scene is one conversation with the program set up for a fault.
type scene struct {
	t     *testing.T
	tg    *telegramtest.Server
	repo  *e2etest.Repository
	front *e2etest.Pulse
	ann   *e2etest.Person
	opt   func(command string) e2etest.Options

	sql      *sql.DB
	postgres bool
}

func newScene(t *testing.T, command, database string, env ...string) *scene {
	s := &scene{t: t, tg: telegramtest.Start(t, telegramtest.Options{}), repo: e2etest.Repo(t)}
	s.opt = func(command string) e2etest.Options {
		return e2etest.Options{Command: []string{command}, Database: database, Script: held,
			Env: append([]string{"PULSE_DAEMON_LEASE=" + lease.String(), "PULSE_DAEMON_SHUTDOWN_GRACE=1s"}, env...)}
	}
	opt := s.opt(command)
	opt.Telegram, opt.Projects = s.tg, map[string]*e2etest.Repository{"my-app": s.repo}
	s.front = e2etest.Start(t, opt)
	s.sql, s.postgres = s.front.DB(), database != ""
	s.ann = e2etest.NewPerson(t, s.tg, "Ann")
	s.ann.Pair(s.front.PairCode())
	return s
}

// count is the one number that a query gives.
func (s *scene) count(query string) int {
	s.t.Helper()
	var n int
	if err := s.sql.QueryRowContext(e2etest.Context(s.t), query).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// once wants the one session complete, told once, and its work committed once, after so many claims of its task.
func (s *scene) once(claims, attempt int) {
	s.t.Helper()
	s.ann.Hears("✅ [my-app] Session complete (1 iteration, 1 commit)")
	session := s.front.AwaitSession(string(s.front.Only().ID), pulse.SessionComplete)
	if got := s.repo.Subjects(session.Session.BranchName); len(got) != 1 || len(session.Iterations) != 1 {
		s.t.Errorf("%d iterations, commits %q", len(session.Iterations), got)
	}
	for prefix, want := range map[string]int{"🚀": 1, "✅": 1, "❌": 0, "⚠️": 0} {
		if got := s.ann.Heard(prefix); got != want {
			s.t.Errorf("%d messages %s, want %d", got, prefix, want)
		}
	}
	if got := [2]int{s.count("SELECT sum(claims) FROM inbox_tasks"), s.count("SELECT sum(attempt) FROM inbox_tasks")}; got != [2]int{claims, attempt} {
		s.t.Errorf("%d claims, %d of them count as attempts; want %d and %d", got[0], got[1], claims, attempt)
	}
}

// refuse makes the database refuse that a task gets a status, so that the program stands for certain before the write of it
// until allow is called.
func (s *scene) refuse(status string) (allow func()) {
	s.t.Helper()
	exec := func(statements ...string) {
		for _, q := range statements {
			if _, err := s.sql.ExecContext(s.t.Context(), q); err != nil {
				s.t.Fatalf("%s: %v", q, err)
			}
		}
	}
	when := " BEFORE UPDATE ON inbox_tasks FOR EACH ROW WHEN (NEW.status = '" + status + "')"
	if !s.postgres {
		exec("CREATE TRIGGER chaos_refuse" + when + " BEGIN SELECT abs(-9223372036854775807 - 1); END")
		return func() { exec("DROP TRIGGER chaos_refuse") }
	}
	exec("CREATE FUNCTION chaos_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused by the test''; END'",
		"CREATE TRIGGER chaos_refuse"+when+" EXECUTE FUNCTION chaos_refuse()")
	return func() { exec("DROP TRIGGER chaos_refuse ON inbox_tasks", "DROP FUNCTION chaos_refuse()") }
}

// TestKilledBetweenClaimAndSpawn is F2, its first half: the claim is committed, and no agent runs yet.
func TestKilledBetweenClaimAndSpawn(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		s := newScene(t, "up", database)
		allow := s.refuse("running")
		s.ann.Say("do it")
		e2etest.Await(t, "the claim", func() bool { return s.count("SELECT count(*) FROM inbox_tasks WHERE status = 'claimed'") == 1 })
		s.ann.Hears("🚀")
		s.settled()
		s.front.Kill()
		if strings.Contains(s.front.Log(), "agent started") {
			t.Fatal("the agent was started before its task was marked as running")
		}
		allow()
		s.front.Open("middle")
		began := time.Now()
		s.front.Up()
		s.once(2, 2)
		t.Logf("complete %s after the start", time.Since(began).Round(time.Millisecond))
	})
}

// TestKilledBetweenExitAndComplete is its second half: the agent has ended, its work is saved and published, and nobody was
// told. The second attempt finds nothing left to commit, and reports the commit of the first.
func TestKilledBetweenExitAndComplete(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		s := newScene(t, "up", database)
		allow := s.refuse("complete")
		s.ann.Say("do it")
		s.front.AwaitHeld("middle")
		s.front.Open("middle")
		e2etest.Await(t, "the attempt to store the result", func() bool { return strings.Contains(s.front.Log(), "store the result; trying again") })
		s.ann.Hears("🚀")
		s.settled()
		s.front.Kill()
		allow()
		s.front.Up()
		s.once(2, 2)
	})
}

func (s *scene) settled() {
	s.t.Helper()
	e2etest.Await(s.t, "the outcome of the deliveries", func() bool {
		return s.count("SELECT count(*) FROM notifications WHERE status = 'sending'") == 0
	})
}

// agents are the node's processes beside the program itself.
func agentsOf(node *e2etest.Pulse) []string {
	self := ""
	if node.Running() {
		self = strconv.Itoa(node.Pid()) + " "
	}
	return slices.DeleteFunc(node.Processes(), func(line string) bool { return self != "" && strings.HasPrefix(line, self) })
}

// pair starts two daemons and gives the one whose agent stands at the gate, and the other.
func (s *scene) pair() (one, other *e2etest.Pulse) {
	s.t.Helper()
	a, b := e2etest.Start(s.t, s.opt("daemon")), e2etest.Start(s.t, s.opt("daemon"))
	s.ann.Say("do it")
	at := func(n *e2etest.Pulse) bool {
		_, err := os.Stat(filepath.Join(n.Home, "middle.held"))
		return err == nil
	}
	e2etest.Await(s.t, "an agent at the gate", func() bool { return at(a) || at(b) })
	if at(b) {
		return b, a
	}
	return a, b
}

// TestKilledDaemonIsReplaced is F1 and R1 with two machines: the agent dies with its daemon, and another daemon has the task
// within a lease and 5 s.
func TestKilledDaemonIsReplaced(t *testing.T) {
	t.Parallel()
	s := newScene(t, "serve", postgres(t))
	one, other := s.pair()
	other.Open("middle")
	s.ann.Hears("🚀")
	one.Kill()
	began := time.Now()
	e2etest.Await(t, "the end of the dead daemon's agent", func() bool { return len(one.Processes()) == 0 })
	dead := time.Since(began)
	e2etest.Await(t, "the agent elsewhere", func() bool { return strings.Contains(other.Log(), "agent started") })
	again := time.Since(began)
	t.Logf("after the kill the agent was dead within %s, and the task ran elsewhere after %s (lease %s)", dead.Round(time.Millisecond), again.Round(time.Millisecond), lease)
	if dead > bound(2*time.Second) || again > bound(lease+5*time.Second) {
		t.Error("that is too long")
	}
	s.once(2, 2)
}

// TestStoppedDaemonIsFenced is F3: a daemon that was stopped for longer than its lease finds, when it goes on, that the task is
// another's. It ends its agent and changes nothing.
func TestStoppedDaemonIsFenced(t *testing.T) {
	t.Parallel()
	s := newScene(t, "serve", postgres(t))
	one, other := s.pair()
	one.Signal(syscall.SIGSTOP)
	began := time.Now()
	other.AwaitHeld("middle")
	if again := time.Since(began); again > bound(lease+5*time.Second) {
		t.Errorf("the task ran elsewhere only after %s", again)
	}
	// On this one machine the successor has ended the zombie's agent already, by the mark of the task: what the zombie sees
	// first is an agent that ended, which it would report.
	one.Open("middle")
	one.Signal(syscall.SIGCONT)
	began = time.Now()
	e2etest.Await(t, "the end of the stopped daemon's agent", func() bool { return len(agentsOf(one)) == 0 })
	t.Logf("its agent was dead %s after SIGCONT", time.Since(began).Round(time.Millisecond))
	e2etest.Await(t, "the word that the claim was lost", func() bool {
		return strings.Contains(one.Log(), "task given up") || strings.Contains(one.Log(), "result not stored")
	})
	if got := s.count("SELECT count(*) FROM inbox_tasks WHERE status = 'running'"); got != 1 {
		t.Errorf("%d tasks are running after the zombie's late writes, want the successor's one", got)
	}
	other.Open("middle")
	s.once(2, 2)
	if strings.Contains(one.Log(), "task finished") {
		t.Error("the zombie finished the task")
	}
}

// TestSignalsToEnd is F4: the first SIGTERM gives agents their grace and hands the task back without counting it, the second
// ends the program at once. Neither leaves a process.
func TestSignalsToEnd(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		s := newScene(t, "up", database)
		s.ann.Say("do it")
		s.front.AwaitHeld("middle")
		s.ann.Hears("🚀")
		s.settled()
		began := time.Now()
		s.front.Stop() // wants status 0
		took := time.Since(began)
		t.Logf("SIGTERM with an agent at work: ended after %s (grace 1s)", took.Round(time.Millisecond))
		if took > bound(3*time.Second) {
			t.Errorf("SIGTERM took %s, grace and 2 s allowed", took)
		}
		if left := s.front.Processes(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		if got := s.count("SELECT count(*) FROM inbox_tasks WHERE status = 'queued' AND attempt = 0"); got != 1 {
			t.Errorf("%d tasks handed back uncounted", got)
		}
		if err := os.Remove(filepath.Join(s.front.Home, "middle.held")); err != nil {
			t.Fatal(err)
		}
		s.front.Up()
		s.front.AwaitHeld("middle")
		began = time.Now()
		s.front.Signal(syscall.SIGTERM)
		e2etest.Await(t, "the reaction to the first", func() bool { return s.front.Anonymous().Health(t.Context()) != nil })
		s.front.Signal(syscall.SIGTERM)
		if state := s.front.Gone(bound(3 * time.Second)); state == nil {
			t.Fatal("the second SIGTERM did not end the program at once")
		}
		e2etest.Await(t, "the end of its agent", func() bool { return len(s.front.Processes()) == 0 })
		t.Logf("SIGTERM twice: all gone after %s", time.Since(began).Round(time.Millisecond))
		s.front.Open("middle")
		s.front.Up()
		s.once(3, 2) // the second was not handed back
	})
}

// TestPoisonTask is F26: a task that kills its daemon is given up after its attempts, with a word, and the others go on.
func TestPoisonTask(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		s := newScene(t, "up", database)
		pid := func() {
			if err := os.WriteFile(filepath.Join(s.front.Home, "daemon.pid"), []byte(strconv.Itoa(s.front.Pid())), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		pid()
		ctx := e2etest.Context(t)
		if _, err := s.front.Client().Start(ctx, wire.Start{ProjectName: "my-app", Goal: "quick one"}); err != nil {
			t.Fatal(err)
		}
		s.ann.Say("poison")
		deaths := 0
		for {
			if state := s.front.Gone(20 * time.Second); state == nil {
				break
			}
			deaths++
			if deaths > 6 {
				t.Fatal("the poison kills the program for ever")
			}
			s.front.Launch()
			pid()
			if deaths == 3 {
				break
			}
		}
		failed := s.ann.Hears("❌ [my-app] Failed", "the agent's daemon was lost 3 times")
		if deaths != 3 {
			t.Errorf("the task killed its daemon %d times", deaths)
		}
		if got := s.count("SELECT count(*) FROM inbox_tasks WHERE status = 'dead' AND attempt = 3"); got != 1 {
			t.Errorf("%d dead tasks", got)
		}
		if _, err := s.front.Client().Start(ctx, wire.Start{ProjectName: "my-app", Goal: "quick two"}); err != nil {
			t.Fatal(err)
		}
		e2etest.Await(t, "the other sessions", func() bool {
			return s.count("SELECT count(*) FROM pulse_sessions WHERE status = 'complete'") == 2
		})
		if again := s.ann.Heard("❌"); again != 1 || failed.ID == 0 {
			t.Errorf("the failure was told %d times", again)
		}
	})
}

// TestGitFoundBroken is F22 between two iterations, for the ways in which a killed git or a careless hand leaves a tree.
func TestGitFoundBroken(t *testing.T) {
	t.Parallel()
	s := newScene(t, "up", "")
	tree := func(id pulse.SessionID) string {
		found, err := filepath.Glob(filepath.Join(s.front.DataDir, "worktrees", "*"+string(id)+"*"))
		if err != nil || len(found) != 1 {
			t.Fatalf("the tree of %s: %q (%v)", id, found, err)
		}
		return found[0]
	}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := s.repo.Snapshot()
	for name, damage := range map[string]func(tree string){
		"index.lock of the agent's": func(tree string) { write(filepath.Join(tree, ".git", "index.lock"), "") },
		"HEAD and config made nonsense": func(tree string) {
			write(filepath.Join(tree, ".git", "HEAD"), "x")
			write(filepath.Join(tree, ".git", "config"), "[")
		},
		"no .git": func(tree string) { must(t, os.RemoveAll(filepath.Join(tree, ".git"))) },
		"no tree": func(tree string) { must(t, os.RemoveAll(tree)) },
		"locks in our store": func(string) {
			stores, _ := filepath.Glob(filepath.Join(s.front.DataDir, "repos", "*", "store.git"))
			if len(stores) != 1 {
				t.Fatalf("stores: %q", stores)
			}
			write(filepath.Join(stores[0], "packed-refs.lock"), "")
			write(filepath.Join(stores[0], "HEAD.lock"), "")
		},
	} {
		session, err := s.front.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "asking: " + name})
		must(t, err)
		s.front.AwaitSession(string(session.ID), pulse.SessionBlocked)
		damage(tree(session.ID))
		_, err = s.front.Client().Resume(e2etest.Context(t), string(session.ID), "on")
		must(t, err)
		done := s.front.AwaitSession(string(session.ID), pulse.SessionComplete, pulse.SessionFailed)
		if got := s.repo.Subjects(done.Session.BranchName); done.Session.Status != pulse.SessionComplete || len(got) != 2 || done.Session.TotalCommits != 2 {
			t.Errorf("%s: %s (%s), %d commits on record, on the branch %q", name, done.Session.Status, done.Session.StatusReason, done.Session.TotalCommits, got)
		}
	}
	if s.repo.Snapshot() != before {
		t.Error("the person's repository was changed")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMigrationsAtOnce is F23: many nodes that migrate at the same time, and one that is older than the schema.
func TestMigrationsAtOnce(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		nodes := make([]*e2etest.Pulse, 4)
		home := filepath.Join(t.TempDir(), "home")
		for i := range nodes {
			opt := e2etest.Options{Database: database}
			if database == "" {
				opt.Home = home
			}
			nodes[i] = e2etest.New(t, opt)
		}
		type result struct {
			out, errs string
			code      int
		}
		results := make(chan result)
		for _, n := range nodes {
			go func() {
				out, errs, code := n.Run("migrate", "--json")
				results <- result{out, errs, code}
			}()
		}
		version, applied, refused := 0, 0, 0
		for range nodes {
			r := <-results
			switch {
			case r.code == 0:
				var said struct{ Applied, Version int }
				must(t, json.Unmarshal([]byte(r.out), &said))
				applied, version = applied+said.Applied, said.Version
			case database == "" && strings.Contains(r.errs, "another"): // SQLite belongs to one process
				refused++
			default:
				t.Errorf("migrate ended with %d: %s%s", r.code, r.out, r.errs)
			}
		}
		if applied != version || version == 0 {
			t.Errorf("%d migrations were applied to get to version %d", applied, version)
		}
		if _, errs, code := nodes[0].Run("migrate"); code != 0 {
			t.Errorf("again: %s", errs)
		}
		if _, err := nodes[0].DB().ExecContext(t.Context(), "INSERT INTO schema_migrations (version, name, applied_at) VALUES (9999, 'later', '')"); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"migrate", "up", "daemon"} {
			if command == "daemon" && database == "" {
				continue
			}
			if _, errs, code := nodes[0].Run(command); code == 0 || !strings.Contains(errs, "schema version 9999") || !strings.Contains(errs, "install the newer pulse") {
				t.Errorf("%s on a newer schema ended with %d: %s", command, code, errs)
			}
		}
		t.Logf("%d of %d were told that another process has the file", refused, len(nodes))
	})
}
