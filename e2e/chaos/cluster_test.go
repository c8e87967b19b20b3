package chaos

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// cluster is a PostgreSQL of the test's own, which it may stop as hard as it likes. What is acknowledged is with the kernel
// when the server is stopped, so that a loss is the product's.
type cluster struct {
	t    *testing.T
	bin  string
	dir  string
	as   *syscall.Credential
	port int
	url  string

	pid  int
	done chan struct{}
}

// newCluster skips the test where no server is installed, and fails it in CI.
func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, bin: serverPrograms()}
	if c.bin == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no PostgreSQL server (initdb) found; install the package postgresql")
		}
		t.Skip("no PostgreSQL server (initdb) found; install the package postgresql")
	}
	var err error
	if c.dir, err = os.MkdirTemp("", "pulse-chaos-pg-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(c.dir) })
	password := rand.Text()
	file := filepath.Join(c.dir, "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // a server that PostgreSQL refuses to run as root
		c.as = somebodyElse(t)
		for _, path := range []string{c.dir, file} {
			if err := os.Chown(path, int(c.as.Uid), int(c.as.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := c.program("initdb", "-D", filepath.Join(c.dir, "data"), "-E", "UTF8", "--locale=C.UTF-8", "-U", "postgres",
		"-A", "scram-sha-256", "--pwfile", file, "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make a cluster: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.port = l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	c.url = fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, c.port)
	t.Cleanup(func() { c.stop(syscall.SIGINT) })
	c.start()
	return c
}

func serverPrograms() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	for _, f := range found {
		if _, err := os.Stat(filepath.Join(filepath.Dir(f), "postgres")); err == nil {
			return filepath.Dir(f)
		}
	}
	return ""
}

func somebodyElse(t *testing.T) *syscall.Credential {
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
			gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
			if uidErr == nil && gidErr == nil {
				return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			}
		}
	}
	t.Skip("PostgreSQL does not run as root, and there is no user postgres or nobody")
	return nil
}

func (c *cluster) program(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "HOME=" + c.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// start answers when the server takes connections.
func (c *cluster) start() {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := c.program("postgres", "-D", filepath.Join(c.dir, "data"), "-p", strconv.Itoa(c.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "max_connections=100", "-c", "fsync=off", "-c", "timezone=UTC")
	cmd.Stdout, cmd.Stderr = log, log
	done, started := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel ends the server with the thread that started it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			c.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(done)
		}
	}()
	if err := <-started; err != nil {
		c.t.Fatalf("start the server: %v", err)
	}
	c.done = done
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	db := c.open()
	defer db.Close()
	if !until(ctx, func() bool {
		_, err := db.ExecContext(ctx, "SELECT 1")
		return err == nil
	}) {
		out, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		c.t.Fatalf("the server does not answer:\n%s", out)
	}
}

func (c *cluster) open() *sql.DB {
	db, err := sql.Open("pgx", c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	return db
}

// stop ends the server: SIGQUIT is the immediate mode, in which nothing is tidied up.
func (c *cluster) stop(how syscall.Signal) {
	if c.pid == 0 {
		return
	}
	_ = syscall.Kill(c.pid, how)
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		_ = syscall.Kill(c.pid, syscall.SIGKILL)
		<-c.done
	}
	c.pid = 0
}
