package chaos

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pulseloop/e2e/e2etest"
)

// pooler is a PgBouncer in front of a cluster.
type pooler struct {
	*cluster
	url string
}

// newPooler skips the test where there is no PgBouncer, and fails it in CI.
func newPooler(t *testing.T, c *cluster, mode string) *pooler {
	t.Helper()
	program := "/usr/sbin/pgbouncer"
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		program = path
	}
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no pgbouncer found; install the package pgbouncer")
		}
		t.Skip("no pgbouncer found; install the package pgbouncer")
	}
	u, err := url.Parse(c.url)
	must(t, err)
	password, _ := u.User.Password()
	addr := quietAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	users, config, log := filepath.Join(c.dir, "users-"+mode), filepath.Join(c.dir, "pgbouncer-"+mode+".ini"), filepath.Join(c.dir, "pgbouncer-"+mode+".log")
	must(t, os.WriteFile(users, fmt.Appendf(nil, "\"postgres\" %q\n", password), 0o644))
	must(t, os.WriteFile(config, fmt.Appendf(nil, `[databases]
postgres = host=127.0.0.1 port=%d dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = %s
default_pool_size = 30
max_client_conn = 200
`, c.port, port, users, mode), 0o644))
	out, err := os.Create(log)
	must(t, err)
	run := bouncer{start: func() *exec.Cmd {
		cmd := c.program("pgbouncer", config)
		cmd.Path, cmd.Stdout, cmd.Stderr = program, out, out
		return cmd
	}, done: make(chan struct{})}
	started := make(chan error, 1)
	go run.keep(started)
	t.Cleanup(func() {
		run.end()
		out.Close()
		if b, err := os.ReadFile(log); (t.Failed() || run.starts > 1) && err == nil {
			t.Logf("PgBouncer was started %d times; it said:\n%s", run.starts, b[max(0, len(b)-4000):])
		}
	})
	must(t, <-started)
	u.Host = addr
	p := &pooler{cluster: c, url: u.String()}
	e2etest.Await(t, "PgBouncer", func() bool {
		db, err := sql.Open("pgx", p.url+"&default_query_exec_mode=simple_protocol")
		must(t, err)
		defer db.Close()
		_, err = db.ExecContext(t.Context(), "SELECT 1")
		return err == nil
	})
	return p
}

// mostBouncers is how often one is started: more is no accident.
const mostBouncers = 20

// bouncer is a PgBouncer that is started again when it ends by itself, as its unit has it.
type bouncer struct {
	start  func() *exec.Cmd
	done   chan struct{}
	mu     sync.Mutex
	cmd    *exec.Cmd
	over   bool
	starts int
}

// keep runs it until end is called. started gets the outcome of the first start.
func (b *bouncer) keep(started chan<- error) {
	defer close(b.done)
	runtime.LockOSThread() // the kernel ends it with the thread that started it
	defer runtime.UnlockOSThread()
	for {
		b.mu.Lock()
		if b.over || b.starts == mostBouncers {
			b.mu.Unlock()
			return
		}
		b.cmd = b.start()
		err := b.cmd.Start()
		b.starts++
		first := b.starts == 1
		b.mu.Unlock()
		if first {
			started <- err
		}
		if err != nil {
			return
		}
		_ = b.cmd.Wait()
	}
}

func (b *bouncer) end() {
	b.mu.Lock()
	b.over = true
	if b.cmd != nil && b.cmd.Process != nil {
		_ = b.cmd.Process.Kill()
	}
	b.mu.Unlock()
	<-b.done
}

// TestBehindAPooler is the second half of F8: a PgBouncer in transaction mode stands between pulse and PostgreSQL, where a
// connection is another's as soon as a transaction has ended. Everything works as without, but for wake-ups between processes:
// each says so once, and polls.
func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := newPooler(t, c, "transaction")
	st := newStorm(t, setup{name: "behind a pooler", postgres: true, split: true, url: p.url, lease: 30 * time.Second}, newSeed(t))
	st.sql = c.open()
	t.Cleanup(func() { _ = st.sql.Close() })
	l := st.busy()
	st.await(4 * time.Second)
	l.stop()
	st.calm(st.limit())
	if len(l.acked) == 0 || len(l.acked) < len(l.asked)-1 { // the last was given up when all was told to be quiet
		t.Errorf("%d of %d goals over the API were acknowledged", len(l.acked), len(l.asked))
	}
	for _, n := range st.nodes {
		e2etest.Await(t, "the word that there are no wake-ups", func() bool { return strings.Contains(n.Log(), "no wake-ups") })
		if told := strings.Count(n.Log(), "no wake-ups"); told != 1 {
			t.Errorf("%s says %d times that there are no wake-ups", st.nameOf(n), told)
		}
	}
	if n := st.number(listening + " AND query ILIKE '%pulse_wakes%'"); n > 0 {
		t.Errorf("%d connections listen that are anybody's", n)
	}
	st.afterwards(l)
	st.database = c.url // the audit is read past the pooler
	st.clean()
}

// TestBehindASessionPooler is the other mode, in which a connection stays whose it is: wake-ups come through it.
func TestBehindASessionPooler(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := newPooler(t, c, "session")
	s := newScene(t, "serve", p.url)
	daemon := e2etest.Start(t, s.opt("daemon"))
	e2etest.Await(t, "both to listen", func() bool { return s.count(listening+" AND query ILIKE '%pulse_wakes%'") == 2 })
	s.ann.Say("quick one")
	s.once(1, 1)
	for _, n := range []*e2etest.Pulse{s.front, daemon} {
		if strings.Contains(n.Log(), "no wake-ups") {
			t.Errorf("it says that there are no wake-ups:\n%s", n.Log())
		}
	}
}

// TestPoolerRefusesWhatIsInTheURL wants a clear word where the pooler refuses what the person asked for: to leave it out would
// work on another schema.
func TestPoolerRefusesWhatIsInTheURL(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := newPooler(t, c, "transaction")
	_, errs, code := e2etest.New(t, e2etest.Options{Database: p.url + "&search_path=mine"}).Run("migrate")
	if code == 0 || !strings.Contains(errs, "search_path") || !strings.Contains(errs, "→ set it for the role") {
		t.Errorf("it ended with %d: %s", code, errs)
	}
}
