package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"pulseloop/pulse"
)

// rescue is the time from the end of a daemon by SIGKILL, in the middle of a
// task, until the task runs with another daemon. The lease is the default.
func rescue(ctx context.Context, _ []string) (sample, error) {
	dir, err := benchDir()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "script.yaml")
	if err := os.WriteFile(script, []byte("iterations:\n  - - say: \"at work\"\n    - hang: true\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write the agent's script: %w", err)
	}
	repo, err := os.MkdirTemp("", "bench-repo-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(repo)
	s, err := openStore(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	project, err := furnish(ctx, s, repo)
	if err != nil {
		return nil, err
	}
	daemons := map[string]*product{}
	for i, name := range []string{"serve", "daemon", "daemon"} {
		p, err := newProduct(name, filepath.Join(dir, fmt.Sprint(name, i)), "PULSE_SCRIPT="+script)
		if err != nil {
			return nil, err
		}
		if err := p.start(ctx); err != nil {
			return nil, err
		}
		defer p.stop()
		if name == "daemon" {
			id, err := os.ReadFile(filepath.Join(p.dir, "daemon-id"))
			if err != nil {
				return nil, fmt.Errorf("read which daemon it is: %w", err)
			}
			daemons[string(id)] = p
		}
	}
	beside, err := openBeside()
	if err != nil {
		return nil, err
	}
	defer beside.Close()
	session := newSession(time.Now(), pulse.SessionPending)
	session.ProjectID, session.ProjectName, session.DueAt = project.ID, project.Name, time.Now()
	if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{NewSession: &session}); err != nil {
		return nil, err
	}
	first, err := runningWith(ctx, beside, "")
	if err != nil {
		return nil, err
	}
	killed := daemons[first]
	if killed == nil {
		return nil, fmt.Errorf("the task runs with %s, which is none of the daemons", first)
	}
	time.Sleep(rand.N(9 * time.Second)) // any phase between two renewals of the lease
	begin := time.Now()
	killed.kill()
	if _, err := runningWith(ctx, beside, first); err != nil {
		return nil, err
	}
	return sample{"s": time.Since(begin).Seconds()}, nil
}

// runningWith answers with which daemon the task runs, once that is another
// than the one given.
func runningWith(ctx context.Context, db *sql.DB, other string) (string, error) {
	var id string
	err := within(2*time.Minute, 20*time.Millisecond, func() (bool, error) {
		err := db.QueryRowContext(ctx, "SELECT claimed_by FROM inbox_tasks WHERE status = 'running' AND claimed_by <> $1", other).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return "", fmt.Errorf("wait until the task runs: %w", err)
	}
	return id, nil
}

// enqueueUntilKilled puts tasks in from several clients for as long as it
// lives, and prints the id of each that was acknowledged.
func enqueueUntilKilled(ctx context.Context, _ []string) (sample, error) {
	s, err := openSQLite(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	return nil, together(claimers, func(int) error {
		for {
			t := newTask(time.Now(), "")
			if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{t}}); err != nil {
				return err
			}
			mu.Lock()
			_, err := fmt.Println(t.ID)
			mu.Unlock()
			if err != nil {
				return err
			}
		}
	})
}

// enqueueOverKills kills a program that puts tasks in, again and again on the
// same file, and looks for every task that was acknowledged.
func enqueueOverKills(kills int) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		var acked []string
		for range kills {
			more, err := enqueueAndKill(ctx)
			if err != nil {
				return nil, err
			}
			acked = append(acked, more...)
		}
		s, err := openSQLite(ctx)
		if err != nil {
			return nil, err
		}
		if err := s.Close(); err != nil {
			return nil, err
		}
		db, err := openBeside()
		if err != nil {
			return nil, err
		}
		defer db.Close()
		var whole string
		if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&whole); err != nil {
			return nil, fmt.Errorf("check the file: %w", err)
		}
		if whole != "ok" {
			return nil, fmt.Errorf("the file is damaged: %s", whole)
		}
		lost := 0
		for _, id := range acked {
			var n int
			if err := db.QueryRowContext(ctx, "SELECT count(*) FROM inbox_tasks WHERE id = $1", id).Scan(&n); err != nil {
				return nil, fmt.Errorf("look for a task: %w", err)
			}
			if n != 1 {
				lost++
			}
		}
		return sample{"lost": float64(lost), "acknowledged": float64(len(acked)), "kills": float64(kills)}, nil
	}
}

// enqueueAndKill answers what was acknowledged before the end.
func enqueueAndKill(ctx context.Context) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "run", "r4-writer")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the writer: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the writer: %w", err)
	}
	r := bufio.NewReader(out)
	var acked []string
	var end *time.Timer
	for {
		line, err := r.ReadString('\n')
		if err != nil { // a line that was cut short was not acknowledged
			if end != nil {
				end.Stop()
			}
			if werr := cmd.Wait(); end == nil {
				return nil, fmt.Errorf("the writer ended by itself: %w\n%s", werr, stderr.String())
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				return nil, fmt.Errorf("read what was acknowledged: %w", err)
			}
			return acked, nil
		}
		acked = append(acked, strings.TrimSpace(line))
		if end == nil {
			end = time.AfterFunc(rand.N(60*time.Millisecond), func() { _ = cmd.Process.Kill() })
		}
	}
}
