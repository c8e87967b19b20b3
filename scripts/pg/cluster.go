package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var errNotInstalled = errors.New("no PostgreSQL server (initdb) found; install the package postgresql, or set " + urlVar)

type cluster struct {
	dir    string
	url    string
	server *exec.Cmd
	exited chan struct{}
}

// startCluster makes a new cluster and returns when it answers. The password keeps other users of the machine out of
// a server that, as a superuser, can run programs.
func startCluster(ctx context.Context, durable bool) (*cluster, error) {
	bin, err := findBin()
	if err != nil {
		return nil, err
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pulse-pg-")
	if err != nil {
		return nil, fmt.Errorf("make cluster folder: %w", err)
	}
	c := &cluster{dir: dir, exited: make(chan struct{})}
	if err := c.start(ctx, bin, as, durable); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context, bin string, as *syscall.Credential, durable bool) error {
	password := rand.Text()
	passwordFile := filepath.Join(c.dir, "password")
	if err := os.WriteFile(passwordFile, []byte(password), 0o600); err != nil {
		return fmt.Errorf("write password file: %w", err)
	}
	if as != nil {
		for _, path := range []string{c.dir, passwordFile} {
			if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
				return fmt.Errorf("hand over cluster folder: %w", err)
			}
		}
	}
	data := filepath.Join(c.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-E", "UTF8", "--locale=C.UTF-8",
		"-U", "postgres", "-A", "scram-sha-256", "--pwfile", passwordFile, "--no-sync", "--no-instructions")
	c.prepare(initdb, as)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("make cluster: %w\n%s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	return c.serve(ctx, bin, as, data, port, password, durable)
}

func (c *cluster) serve(ctx context.Context, bin string, as *syscall.Credential, data string, port int, password string, durable bool) error {
	args := []string{"-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_connections=300", "-c", "timezone=UTC"}
	if !durable {
		// The tests end our processes, never the machine: nothing here outlives the run.
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		return fmt.Errorf("create server log: %w", err)
	}
	defer log.Close()
	c.server = exec.Command(filepath.Join(bin, "postgres"), args...)
	c.prepare(c.server, as)
	c.server.Stdout, c.server.Stderr = log, log
	if err := c.server.Start(); err != nil {
		c.server = nil
		return fmt.Errorf("start server: %w", err)
	}
	go func() {
		c.server.Wait()
		close(c.exited)
	}()
	c.url = fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, port)
	return c.ready(ctx, bin, port)
}

// prepare gives a child of the cluster its user, its own process group (an interrupt at the terminal is ours to
// pass on, in order) and a neutral environment.
func (c *cluster) prepare(cmd *exec.Cmd, as *syscall.Credential) {
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "HOME=" + c.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true, Pdeathsig: syscall.SIGINT}
}

func (c *cluster) ready(ctx context.Context, bin string, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		probe := exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(port))
		if probe.Run() == nil {
			return nil
		}
		select {
		case <-c.exited:
			return fmt.Errorf("start server: it ended\n%s", c.log())
		case <-ctx.Done():
			return fmt.Errorf("wait for server: %w\n%s", ctx.Err(), c.log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *cluster) log() string {
	data, err := os.ReadFile(filepath.Join(c.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// stop ends the server (fast shutdown, then by force) and removes the folder.
func (c *cluster) stop() {
	if c.server != nil {
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
			c.server.Process.Signal(s)
			select {
			case <-c.exited:
			case <-time.After(10 * time.Second):
				continue
			}
			break
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		fmt.Fprintln(os.Stderr, "pg: remove cluster:", err)
	}
}

// findBin returns the folder with the server's programs: the one on PATH (where it may be a link), else the newest
// that Debian's packages put aside.
func findBin() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is constant and well formed
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4]) // not a number: sorts last, as it should
		return n
	}
	sort.Slice(found, func(i, j int) bool { return version(found[i]) > version(found[j]) })
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append([]string{path}, found...)
		}
	}
	for _, initdb := range found {
		bin := filepath.Dir(initdb)
		if executable(bin, "postgres") && executable(bin, "pg_isready") {
			return bin, nil
		}
	}
	return "", errNotInstalled
}

func executable(bin, name string) bool {
	_, err := exec.LookPath(filepath.Join(bin, name))
	return err == nil
}

// unprivileged returns whom the server runs as: nil for ourselves, somebody else when we are root, whom PostgreSQL
// refuses to serve.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
