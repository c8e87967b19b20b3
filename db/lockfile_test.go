package db

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestLockOfADeadHolder has the lock held by a child of a process that is dead, as between fork and exec. It is waited for; one
// whose holder lives is not.
func TestLockOfADeadHolder(t *testing.T) {
	database := filepath.Join(t.TempDir(), "pulse.db")
	first, err := lockFile(database)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.mark(stateOpen); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := lockFile(database); err == nil || time.Since(began) > time.Second {
		t.Fatalf("a lock whose holder lives was taken, or waited for: %v", err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(database+".lock", []byte("open   "+strconv.Itoa(gone.Process.Pid)+"          \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = first.release() })
	second, err := lockFile(database)
	if err != nil {
		t.Fatalf("the lock of a dead holder: %v", err)
	}
	if second.before != stateOpen {
		t.Errorf("state %q", second.before)
	}
	if err := second.release(); err != nil {
		t.Fatal(err)
	}
}
