package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pulseloop/pulse"
)

func openAt(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return s
}

func refused(t *testing.T, path, what string, words ...string) {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err == nil {
		s.Close()
		t.Fatalf("%s: opened", what)
	}
	var e *pulse.Error
	if !errors.As(err, &e) || e.Hint == "" {
		t.Fatalf("%s: %v names no way out", what, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("%s: %q does not say %q", what, err, w)
		}
	}
}

// abandonLike leaves the file as a killed process would: the log is there,
// the lock file says open, the kernel's lock is gone.
func abandonLike(t *testing.T, path string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "pulse.db")
	for _, suffix := range []string{"", "-wal", ".lock"} {
		raw, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+suffix, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

func TestOneProcessOwnsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "er", "pulse.db")
	s := openAt(t, path)
	refused(t, path, "second opener", "another pulse", "use its API")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := openAt(t, path)
	if err := again.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveSetting(t.Context(), "a", "b"); !errors.Is(err, errClosed) {
		t.Fatalf("write after close: %v", err)
	}
}

func TestAFileThatLostItsDataIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pulse.db")
	s := openAt(t, path)
	if err := s.SaveSetting(t.Context(), "kept", "yes"); err != nil {
		t.Fatal(err)
	}
	killed := abandonLike(t, path)
	survivor := openAt(t, killed)
	if v, err := survivor.Setting(t.Context(), "kept"); err != nil || v != "yes" {
		t.Fatalf("after a kill: %q, %v", v, err)
	}
	survivor.Close()

	noLog := abandonLike(t, path)
	os.Remove(noLog + "-wal")
	refused(t, noLog, "log deleted", "-wal", "gone")
	os.Remove(noLog + ".lock") // what the hint says
	openAt(t, noLog)

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	os.Truncate(path, 0)
	refused(t, path, "file emptied", "gone or empty")
	os.Remove(path)
	refused(t, path, "file deleted", "gone or empty")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("a refused file was made anew")
	}
}

func TestDamageAndObstaclesAreNamed(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 500)), 0o600)
	refused(t, text, "a text file", "not a database")

	path := filepath.Join(dir, "pulse.db")
	openAt(t, path).Close()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 100; i < 4096; i++ {
		raw[i] = 0xAA
	}
	os.WriteFile(path, raw, 0o600)
	refused(t, path, "a scribbled first page", "damaged")

	refused(t, filepath.Join(text, "below", "pulse.db"), "below a file", "cannot be written")
	refused(t, "/proc/pulse/pulse.db", "where nothing can be made", "cannot be written")
	refused(t, "", "no path", "no database file")
	os.Mkdir(filepath.Join(dir, "dir.db"), 0o700)
	refused(t, filepath.Join(dir, "dir.db"), "a directory", "not a regular file")
}

func TestOpeningVoidsOldLeases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pulse.db")
	s := openAt(t, path)
	now := time.Now().UTC()
	project := pulse.Project{ID: pulse.ProjectID(pulse.NewUUID(now)), Name: "p", Path: "/p"}
	session := pulse.Session{ID: pulse.SessionID(pulse.NewUUID(now)), ProjectID: project.ID, Status: pulse.SessionRunning, Run: 1, DueAt: now}
	task := pulse.Task{ID: pulse.TaskID(pulse.NewUUID(now)), Kind: pulse.TaskIterate, Route: "r", SessionID: session.ID, MaxAttempts: 3}
	must(t, s.Apply(t.Context(), pulse.Guard{}, pulse.Change{Project: &project, NewSession: &session, Tasks: []pulse.Task{task},
		Notices: []pulse.Notice{{Address: pulse.Address{Platform: "console", Chat: "1"}, Slot: "s", Kind: pulse.NoticeInfo, Message: pulse.Text("x")}}}))
	claim, err := s.Claim(t.Context(), "d", []string{"r"}, time.Hour)
	must(t, err)
	held, _, err := s.Take(t.Context(), "step", time.Hour)
	must(t, err)
	platforms := []pulse.Platform{"console"}
	if got, _, err := s.ClaimNotices(t.Context(), platforms, nil, 1, time.Hour); err != nil || len(got) != 1 {
		t.Fatalf("claim notices: %v, %v", got, err)
	}
	must(t, s.Close())

	s = openAt(t, path)
	if n, _, err := s.Reap(t.Context()); err != nil || n != 1 {
		t.Fatalf("reaped %d, %v", n, err)
	}
	if _, err := s.Heartbeat(t.Context(), pulse.Fence{TaskID: claim.Task.ID, Token: claim.Token}, time.Hour); !errors.Is(err, pulse.ErrFenced) {
		t.Fatalf("heartbeat of an earlier life: %v", err)
	}
	again, _, err := s.Take(t.Context(), "new", time.Hour)
	must(t, err)
	if again.ID != session.ID {
		t.Fatal("another session was taken")
	}
	if err := s.Apply(t.Context(), pulse.Guard{SessionID: held.ID, Version: held.Version, StepToken: "step"}, pulse.Change{Session: &held}); !errors.Is(err, pulse.ErrStale) {
		t.Fatalf("a step of an earlier life: %v", err)
	}
	if got, _, err := s.ClaimNotices(t.Context(), platforms, nil, 1, time.Hour); err != nil || len(got) != 1 {
		t.Fatalf("notices of an earlier life: %v, %v", got, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hold keeps the writer busy until the returned function is called, so that
// what is written meanwhile becomes one group.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		s.write(context.Background(), "hold", func(context.Context, *work) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	<-entered
	return func() { close(leave); <-left }
}

// queued writes n settings at once while the writer is held, then lets go.
func queued(t *testing.T, s *Store, fns ...func() error) []error {
	t.Helper()
	release := hold(t, s)
	errs := make([]error, len(fns))
	var started, done sync.WaitGroup
	for i, fn := range fns {
		started.Add(1)
		done.Go(func() { started.Done(); errs[i] = fn() })
	}
	started.Wait()
	release()
	done.Wait()
	return errs
}

func TestAFailingMemberLeavesItsGroupAlone(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "pulse.db"))
	boom := errors.New("boom")
	write := func(key string, err error) func() error {
		return func() error {
			return s.write(t.Context(), "test", func(ctx context.Context, w *work) error {
				if _, e := w.raw.ExecContext(ctx, "INSERT INTO settings VALUES ($1, 'v', 0)", key); e != nil {
					return e
				}
				return err
			})
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancelling := func() error {
		return s.write(cancelled, "test", func(ctx context.Context, w *work) error {
			cancel() // while its own statement is still to come
			_, err := w.raw.ExecContext(ctx, "INSERT INTO settings VALUES ('cancelled', 'v', 0)")
			return err
		})
	}
	ended := func() error { // ends the transaction under everybody's feet
		return s.write(t.Context(), "test", func(ctx context.Context, w *work) error {
			_, err := w.raw.ExecContext(ctx, "ROLLBACK")
			return err
		})
	}
	errs := queued(t, s, write("a", nil), write("b", boom), cancelling, write("c", nil))
	errs = append(errs, queued(t, s, write("d", nil), ended, write("e", boom), write("f", nil))...)
	for i, want := range []bool{true, false, true, true, true, false, false, true} {
		if (errs[i] == nil) != want {
			t.Errorf("member %d: %v", i, errs[i])
		}
	}
	if !errors.Is(errs[1], boom) {
		t.Errorf("the failing member got %v", errs[1])
	}
	for key, there := range map[string]bool{"a": true, "b": false, "c": true, "d": true, "e": false, "f": true, "cancelled": true} {
		if _, err := s.Setting(t.Context(), key); (err == nil) != there {
			t.Errorf("setting %s: %v", key, err)
		}
	}
}

func TestACancelledWriterThatWasNotTakenWritesNothing(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "pulse.db"))
	release := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.SaveSetting(ctx, "never", "v"); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled write: %v", err)
	}
	release()
	if _, err := s.Setting(t.Context(), "never"); !errors.Is(err, pulse.ErrNone) {
		t.Fatalf("it was written: %v", err)
	}
}

// TestAFullDiskHarmsOnlyWhatDoesNotFit bounds the file instead of the disk:
// SQLite answers the same.
func TestAFullDiskHarmsOnlyWhatDoesNotFit(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "pulse.db"))
	limit := func(pages int) {
		t.Helper()
		must(t, s.write(t.Context(), "limit", func(ctx context.Context, w *work) error {
			_, err := w.raw.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", pages))
			return err
		}))
	}
	must(t, s.SaveSetting(t.Context(), "before", "v"))
	limit(1) // SQLite makes that the present size
	save := func(key, value string) func() error {
		return func() error { return s.SaveSetting(t.Context(), key, value) }
	}
	errs := queued(t, s, save("before", "w"), save("huge", strings.Repeat("x", 1<<20)))
	if errs[0] != nil {
		t.Errorf("what fits: %v", errs[0])
	}
	var e *pulse.Error
	if !errors.As(errs[1], &e) || e.Code != pulse.CodeUnavailable || !strings.Contains(e.Message, "full") {
		t.Errorf("what does not fit: %v", errs[1])
	}
	limit(1 << 30)
	must(t, s.SaveSetting(t.Context(), "huge", strings.Repeat("x", 1<<20)))
	if v, err := s.Setting(t.Context(), "before"); err != nil || v != "w" {
		t.Errorf("the neighbour: %q, %v", v, err)
	}
}

func TestReadersCannotWrite(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "pulse.db"))
	if _, err := s.reads.ExecContext(t.Context(), "INSERT INTO settings VALUES ('a', 'b', 0)"); err == nil {
		t.Fatal("a reader wrote")
	}
}

func TestOlderThan(t *testing.T) {
	for version, older := range map[string]bool{"3.51.3": false, "3.51.2": true, "3.53.0": false, "3.9.9": true, "4.0.0": false, "3.51": true} {
		if olderThan(version, minSQLite) != older {
			t.Errorf("%s older than %s: want %v", version, minSQLite, older)
		}
	}
}
