package modeltest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCLIComesFromTheNamedDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(CLIDirVar, dir)
	want, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	want = filepath.Join(want, "claude")
	if err := os.WriteFile(want, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := CLI(t, "claude"); got != want {
		t.Errorf("CLI = %s, want %s", got, want)
	}
}

// missing notes how a test ended that found no CLI, in place of ending.
type missing struct {
	testing.TB
	skipped, failed bool
}

func (m *missing) Helper()      {}
func (m *missing) Skip(...any)  { m.skipped = true }
func (m *missing) Fatal(...any) { m.failed = true; panic(m) }

func TestMissingCLISkipsButFailsInCI(t *testing.T) {
	t.Setenv(CLIDirVar, t.TempDir())
	t.Setenv("CI", "")
	m := &missing{TB: t}
	CLI(m, "claude")
	if !m.skipped || m.failed {
		t.Errorf("without CI: %+v", m)
	}
	t.Setenv("CI", "true")
	m = &missing{TB: t}
	func() {
		defer func() { _ = recover() }()
		CLI(m, "claude")
	}()
	if m.skipped || !m.failed {
		t.Errorf("in CI: %+v", m)
	}
}

func TestEnvironmentsInheritNothingButThePath(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "from-outside")
	t.Setenv("PULSE_TELEGRAM_TOKEN", "from-outside")
	for name, env := range map[string][]string{
		"claude": ClaudeEnv(t, start(t, Anthropic)), "codex": CodexEnv(t, start(t, Responses)),
	} {
		if joined := strings.Join(env, "\n"); strings.Contains(joined, "from-outside") || !strings.Contains(joined, "="+StubKey) {
			t.Errorf("%s: %s", name, joined)
		}
	}
}
