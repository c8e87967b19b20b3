package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// private points the temporary folder at one that an unprivileged server can reach, and hides a database given from
// outside.
func private(t *testing.T) string {
	t.Helper()
	if _, err := findBin(); errors.Is(err, errNotInstalled) {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "pulse-pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	t.Setenv(urlVar, "")
	return dir
}

func assertGone(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, "pulse-pg-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRunGivesTheCommandADatabaseAndRemovesIt(t *testing.T) {
	dir := private(t)
	said := filepath.Join(dir, "said")
	code, err := run(nil, false, []string{"sh", "-c", `echo "$` + urlVar + `" > "$0"; exit 7`, said})
	if err != nil || code != 7 {
		t.Fatalf("status %d, %v; want 7", code, err)
	}
	url, err := os.ReadFile(said)
	if err != nil || !strings.HasPrefix(string(url), "postgres://postgres:") || !strings.Contains(string(url), "@127.0.0.1:") {
		t.Errorf("address %q, %v", url, err)
	}
	assertGone(t, dir)
}

func TestRunEndsTheCommandAndTheServerWhenInterrupted(t *testing.T) {
	dir := private(t)
	signals := make(chan os.Signal, 1)
	started := filepath.Join(dir, "started")
	result := make(chan int, 1)
	go func() {
		code, _ := run(signals, false, []string{"sh", "-c", `touch "$0"; sleep 60`, started})
		result <- code
	}()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(30 * time.Second)
	for waiting := true; waiting; {
		select {
		case <-poll.C:
			_, err := os.Stat(started)
			waiting = err != nil
		case <-deadline:
			t.Fatal("the command did not start")
		}
	}
	signals <- syscall.SIGTERM
	select {
	case code := <-result:
		if code == 0 {
			t.Error("an interrupted command counted as a success")
		}
	case <-deadline:
		t.Fatal("the command did not end")
	}
	assertGone(t, dir)
}

func TestRunLeavesAGivenDatabaseAlone(t *testing.T) {
	t.Setenv(urlVar, "postgres://somewhere/else")
	code, err := run(nil, false, []string{"sh", "-c", `test "$` + urlVar + `" = postgres://somewhere/else`})
	if err != nil || code != 0 {
		t.Errorf("status %d, %v; want 0", code, err)
	}
}
