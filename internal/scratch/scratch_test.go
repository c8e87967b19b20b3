package scratch_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pulseloop/internal/scratch"
)

// TestMain plays the owner that is killed.
func TestMain(m *testing.M) {
	if os.Getenv("SCRATCH_OWNER") != "" {
		d, err := scratch.New("pulse-")
		if err != nil {
			panic(err)
		}
		if err := os.MkdirAll(filepath.Join(d.Path, "a", "b"), 0o500); err != nil {
			panic(err)
		}
		os.Stdout.WriteString(d.Path + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// owner starts a process with a directory of its own, and gives what kills it.
func owner(t *testing.T) (dir string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SCRATCH_OWNER=1")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(func() { kill(); in.Close() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(line), kill
}

func TestOnlyWhatTheDeadLeftIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead, kill := owner(t)
	alive, _ := owner(t)
	kill()
	here, err := scratch.New("pulse-")
	must(t, err)
	// What others named alike, and what an agent might have put there.
	tmp := os.TempDir()
	foreign := filepath.Join(tmp, "pulse-PKdhtXMmr18n")
	must(t, os.Mkdir(foreign, 0o700))
	must(t, os.WriteFile(filepath.Join(tmp, "pulse-other.lock"), []byte("of another program"), 0o600))
	must(t, os.Mkdir(filepath.Join(tmp, "pulse-other"), 0o700))
	head, err := os.ReadFile(dead + ".lock")
	must(t, err)
	precious := t.TempDir()
	must(t, os.WriteFile(filepath.Join(tmp, "pulse-link.lock"), head, 0o600))
	must(t, os.Symlink(precious, filepath.Join(tmp, "pulse-link")))

	listed, err := scratch.Leftovers("pulse-")
	must(t, err)
	if !slices.Equal(listed, []string{dead}) {
		t.Errorf("listed %q, want %q", listed, dead)
	}
	removed, err := scratch.Sweep("pulse-")
	must(t, err)
	if !slices.Equal(removed, []string{dead}) {
		t.Errorf("removed %q, want %q", removed, dead)
	}
	for _, path := range []string{dead, dead + ".lock"} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	for _, path := range []string{alive, alive + ".lock", here.Path, foreign, filepath.Join(tmp, "pulse-other"), precious, filepath.Join(tmp, "pulse-link")} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s was removed: %v", path, err)
		}
	}
	must(t, here.Remove())
	if _, err := os.Lstat(here.Path); !os.IsNotExist(err) {
		t.Errorf("its owner's removal left it: %v", err)
	}
}

func TestWhatIsKeptIsNobodysLeftover(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	d, err := scratch.New("pulse-demo-")
	must(t, err)
	must(t, d.Keep())
	if left, err := scratch.Sweep("pulse-"); err != nil || len(left) != 0 {
		t.Errorf("swept %q, %v", left, err)
	}
	if _, err := os.Stat(d.Path); err != nil {
		t.Error(err)
	}
}

func TestOneHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, ok, err := scratch.Hold(path)
	must(t, err)
	if _, second, err := scratch.Hold(path); !ok || second || err != nil {
		t.Errorf("held %v, and by a second one %v, %v", ok, second, err)
	}
	must(t, release())
	if _, again, err := scratch.Hold(path); !again || err != nil {
		t.Errorf("free again: %v, %v", again, err)
	}
}
