package modeltest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// CLIDirVar names the environment variable with the directory that holds the agent CLIs under test.
const CLIDirVar = "PULSE_TEST_CLI_DIR"

// CLI returns the absolute path of an agent CLI ("claude", "codex"). Where it is not installed the test is skipped, or
// fails when CI=true, because there everything has to run.
func CLI(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv(CLIDirVar)
	if dir == "" {
		root, err := moduleRoot()
		if err != nil {
			t.Fatalf("find %s: %v", name, err)
		}
		dir = filepath.Join(root, ".cache", "cli", "bin")
	}
	// The target of the link is what is started: codex looks for its companions beside itself.
	path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		return path
	}
	msg := fmt.Sprintf("the %s CLI is not installed in %s (set %s to a directory that has it)", name, dir, CLIDirVar)
	if os.Getenv("CI") == "true" {
		t.Fatal(msg)
	}
	t.Skip(msg)
	return ""
}

// moduleRoot is the nearest directory upwards that holds go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("get working directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = up
	}
}

// ClaudeEnv is a complete environment in which claude talks to srv and to nobody else, with a home of its own.
func ClaudeEnv(t testing.TB, srv *Server) []string {
	t.Helper()
	return append(baseEnv(t.TempDir()),
		"ANTHROPIC_BASE_URL="+srv.URL,
		"ANTHROPIC_API_KEY="+StubKey,
		"DISABLE_AUTOUPDATER=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	)
}

// CodexEnv is a complete environment in which codex talks to srv and to nobody else, with a home and a config.toml of its own.
func CodexEnv(t testing.TB, srv *Server) []string {
	t.Helper()
	home := t.TempDir()
	dir := filepath.Join(home, ".codex")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatalf("make the codex home: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(CodexConfig(srv)), 0o600); err != nil {
		t.Fatalf("write the codex configuration: %v", err)
	}
	// Below the place for temporary files codex makes no helpers beside its configuration, and without them its sandbox
	// does not work with an installed bubblewrap before 0.9.
	temp := filepath.Join(home, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatalf("make a place for temporary files: %v", err)
	}
	return append(baseEnv(home), "CODEX_HOME="+dir, "TMPDIR="+temp, "OPENAI_API_KEY="+StubKey)
}

// StubKey is the credential the environments carry. It opens nothing.
const StubKey = "stub-key-for-loopback"

// CodexConfig is the config.toml that points codex at srv, with the retries of a fault kept short.
func CodexConfig(srv *Server) string {
	return fmt.Sprintf(`model = %q
model_provider = "scripted"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = %q
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
`, ResponsesModel, srv.URL+"/v1")
}

// baseEnv has a git identity, because the agents' own commits need one and the home is empty. Proxies are switched off so
// that nothing leaves loopback by way of them.
func baseEnv(home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + home,
		"TMPDIR=" + os.TempDir(),
		"LANG=C.UTF-8",
		"NO_PROXY=*",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=agent", "GIT_AUTHOR_EMAIL=agent@example.invalid",
		"GIT_COMMITTER_NAME=agent", "GIT_COMMITTER_EMAIL=agent@example.invalid",
	}
}
