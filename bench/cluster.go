package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// cluster is a PostgreSQL that may be stopped as hard as one likes: the one
// of the other contests is not.
type cluster struct {
	bin, dir, port string
	as             *syscall.Credential
	url            string
	server         *exec.Cmd
}

// initdb is where PostgreSQL's programs are, as a path to look for.
func initdb() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well formed
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		_, err := exec.LookPath(filepath.Join(filepath.Dir(path), "postgres"))
		return err != nil
	})
	if len(found) == 0 {
		return "initdb"
	}
	return found[len(found)-1]
}

func newCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{bin: filepath.Dir(initdb())}
	var err error
	if c.dir, err = os.MkdirTemp("", "bench-pg-"); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := c.makeReady(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cluster) makeReady(ctx context.Context) error {
	if os.Geteuid() == 0 { // PostgreSQL does not run as root
		if err := c.nobody(); err != nil {
			return err
		}
	}
	listen, err := freePort()
	if err != nil {
		return err
	}
	_, c.port, _ = strings.Cut(listen, ":")
	// No password: it listens on loopback for seconds and holds nothing.
	c.url = "postgres://bench@127.0.0.1:" + c.port + "/postgres?sslmode=disable"
	cmd := c.program(ctx, "initdb", "-D", filepath.Join(c.dir, "data"), "-E", "UTF8", "--locale=C.UTF-8", "-U", "bench", "-A", "trust", "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a cluster: %w\n%s", err, out)
	}
	return c.start(ctx)
}

func (c *cluster) nobody() error {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr, os.Chown(c.dir, int(uid), int(gid))); err != nil {
			return fmt.Errorf("hand over the cluster's folder: %w", err)
		}
		c.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return nil
	}
	return errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}

func (c *cluster) program(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "HOME=" + c.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	return cmd
}

// start returns when the server answers.
func (c *cluster) start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer log.Close()
	c.server = c.program(ctx, "postgres", "-D", filepath.Join(c.dir, "data"), "-p", c.port, "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "max_connections=100", "-c", "timezone=UTC")
	c.server.Stdout, c.server.Stderr = log, log
	if err := c.server.Start(); err != nil {
		c.server = nil
		return fmt.Errorf("start the server: %w", err)
	}
	return within(60*time.Second, 5*time.Millisecond, func() (bool, error) {
		conn, err := pgx.Connect(ctx, c.url)
		if err != nil {
			return false, ctx.Err()
		}
		_, err = conn.Exec(ctx, "SELECT 1")
		return err == nil, errors.Join(ctx.Err(), conn.Close(ctx))
	})
}

// cut ends the server in its immediate mode, in which nothing is tidied up.
func (c *cluster) cut() {
	if c.server != nil {
		_ = c.server.Process.Signal(syscall.SIGQUIT)
		_ = c.server.Wait() // its status says that it was cut
		c.server = nil
	}
}

func (c *cluster) close() {
	c.cut()
	os.RemoveAll(c.dir)
}
