package db

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pulseloop/pulse"
)

// What the lock file says of the database when nobody holds it.
const (
	stateOpen   = "open"   // its holder died: there must be a write-ahead log
	stateClosed = "closed" // ended in order
)

// fileLock is the file beside the database that one process holds. The lock
// is the kernel's and ends with the process; the content tells the next one
// how the last one ended.
type fileLock struct {
	path   string
	file   *os.File
	before string // state found, "" if pulse never had this database
}

func lockFile(database string) (*fileLock, error) {
	dir := filepath.Dir(database)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(dir, err)
	}
	path := database + ".lock"
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unwritable(dir, err)
	}
	l := &fileLock{path: path, file: file}
	if err := l.take(); err != nil {
		_, pid, readErr := l.read()
		err = errors.Join(err, readErr, l.release())
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &pulse.Error{Code: pulse.CodeConflict, Message: "another pulse (process " + pid + ") is running on " + database, Hint: "use its API, or stop it first"}
		}
		return nil, fmt.Errorf("lock database file: %w", err)
	}
	// Only now: until it let go, the holder may have changed it.
	if l.before, _, err = l.read(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

// lockPatience is how long a lock is waited for whose holder is dead.
const lockPatience = 5 * time.Second

// take locks the file. A holder that was killed at the moment in which it started a child leaves the lock with that child,
// until the child becomes another program: that passes by itself, and whoever starts pulse again at once need not fail.
func (l *fileLock) take() error {
	for end := time.Now().Add(lockPatience); ; {
		err := syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) || l.holderLives() {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// holderLives reports whether the process that took the lock last is there, as far as can be told.
func (l *fileLock) holderLives() bool {
	_, text, err := l.read()
	pid, numErr := strconv.Atoi(text)
	return err != nil || numErr != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func (l *fileLock) read() (state, pid string, err error) {
	content, err := io.ReadAll(io.NewSectionReader(l.file, 0, 256))
	if err != nil {
		return "", "", fmt.Errorf("read lock file: %w", err)
	}
	state, pid, _ = strings.Cut(strings.TrimSpace(string(content)), " ")
	return state, strings.TrimSpace(pid), nil
}

func unwritable(dir string, err error) error {
	return &pulse.Error{Code: pulse.CodeUnprocessed, Message: "the directory " + dir + " cannot be written", Hint: "make it writable for this user, or set PULSE_DATA_DIR to another one", Err: err}
}

// mark writes the state and makes sure that it is on disk. The line always
// has the same length, so that no moment leaves the file empty.
func (l *fileLock) mark(state string) error {
	if _, err := l.file.WriteAt(fmt.Appendf(nil, "%-6s %-12d\n", state, os.Getpid()), 0); err != nil {
		return fmt.Errorf("write lock file: %w", err)
	}
	return l.file.Sync()
}

func (l *fileLock) release() error { return l.file.Close() }
