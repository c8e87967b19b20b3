package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// locks serialises work by repository: a channel a repository within this
// process, and an flock across processes, since flock does not hold between
// goroutines that open the file once each in all systems alike.
type locks struct {
	mu sync.Mutex
	by map[string]chan struct{}
}

func newLocks() *locks { return &locks{by: map[string]chan struct{}{}} }

func (l *locks) turn(dir string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by[dir] == nil {
		l.by[dir] = make(chan struct{}, 1)
	}
	return l.by[dir]
}

// acquire blocks until h is ours or ctx ends. Locks that git left behind in
// our store are cleared: whoever made them cannot be alive while we hold this.
func (l *locks) acquire(ctx context.Context, h home) (release func(), err error) {
	turn := l.turn(h.dir)
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the repository: %w", context.Cause(ctx))
	}
	f, err := lockFile(ctx, filepath.Join(h.dir, "lock"))
	if err != nil {
		<-turn
		return nil, err
	}
	release = func() {
		_ = f.Close() // closing gives up the flock
		<-turn
	}
	if err := h.clearStaleLocks(); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func lockFile(ctx context.Context, path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make repository directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open repository lock: %w", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock repository: %w", err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for the repository, which another process uses: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// clearStaleLocks removes *.lock of the store, its refs and our indexes.
func (h home) clearStaleLocks() error {
	for _, dir := range []string{h.store(), h.trees()} {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "objects":
				return fs.SkipDir
			case d.Type().IsRegular() && strings.HasSuffix(d.Name(), ".lock"):
				return os.Remove(p)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("clear stale locks: %w", err)
		}
	}
	return nil
}
