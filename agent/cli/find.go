package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

// The names every agent process gets from the daemon.
const (
	EnvRole      = "PULSE_ROLE"
	EnvSessionID = "PULSE_SESSION_ID"
	EnvIteration = "PULSE_ITERATION"
	EnvTaskID    = "PULSE_TASK_ID"
)

// NetworkEnv are the variables by which people behind a proxy or with a
// certificate authority of their own reach the network.
func NetworkEnv() []string {
	return []string{
		"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
	}
}

// Taken gives "K=V" for those names that are set in this process. An empty
// value counts as not set: a CLI may take an empty directory for the current
// one.
func Taken(names []string) []string {
	var env []string
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Set gives those names that Taken would take.
func Set(names []string) []string {
	var set []string
	for _, name := range names {
		if os.Getenv(name) != "" {
			set = append(set, name)
		}
	}
	return set
}

// Find gives the absolute path of a CLI: the configured one, else the first
// on PATH with that name.
func Find(configured, name string) (string, error) {
	if configured == "" {
		configured = name
	}
	if rest, ok := strings.CutPrefix(configured, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			configured = filepath.Join(home, rest)
		}
	}
	path, err := exec.LookPath(configured)
	if err != nil {
		return "", &pulse.Error{Code: pulse.CodeInvalid, Message: fmt.Sprintf("find %s: %v", configured, errors.Unwrap(err)), Hint: remedy(name)}
	}
	return filepath.Abs(path)
}

// remedy is what to do about a CLI that is not there; it is the fix of its probe.
func remedy(name string) string {
	switch name {
	case "claude":
		return "npm install -g @anthropic-ai/claude-code"
	case "codex":
		return "npm install -g @openai/codex"
	}
	return "set agents.command.command (PULSE_COMMAND) to a program that can be run"
}

var versionNumber = regexp.MustCompile(`\d+\.\d+(\.\d+)?[0-9A-Za-z.+-]*`)

// probeTime bounds one question to a CLI.
const probeTime = 5 * time.Second

// Ask runs a CLI with a question such as --version. env is what it needs
// beyond the base.
func Ask(ctx context.Context, path string, env []string, args ...string) (string, proc.Exit, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	out, exit, err := proc.Output(ctx, proc.Spec{
		Path: path, Args: args, Env: proc.BaseEnv(env...), MaxOutput: 1 << 20, Grace: 300 * time.Millisecond,
	})
	return Clean(string(out)), exit, err
}

// AskVersion fills in what is asked of every CLI: where it is and which
// version. The caller fills in the rest if Installed and no Problem.
func AskVersion(ctx context.Context, p *Probe, configured, name string, env []string) {
	path, err := Find(configured, name)
	if err != nil {
		p.Problem = name + " was not found on PATH"
		if configured != "" {
			p.Problem = fmt.Sprintf("%s is not a program that can be run", configured)
		}
		return
	}
	p.Path, p.Installed = path, true
	out, exit, err := Ask(ctx, path, env, "--version")
	p.Version = versionNumber.FindString(out)
	switch {
	case err != nil:
		p.Problem = fmt.Sprintf("%s --version did not answer: %v", name, err)
	case !exit.OK():
		p.Problem = fmt.Sprintf("%s --version failed with status %d: %s", name, exit.Code, OneLine(exit.Stderr))
	case p.Version == "":
		p.Problem = fmt.Sprintf("%s --version answered %q, which names no version", name, OneLine(out))
	}
}
