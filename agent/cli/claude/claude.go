// Package claude drives Claude Code (`claude -p`) over its stream of JSON
// lines. It owns the argv, the environment and the decoding of that one CLI;
// it decides nothing about what a result means. A Backend is safe for
// concurrent use and keeps nothing of a run.
//
// The facts about the CLI come from runs of version 2.1.328, recorded under
// testdata.
package claude

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pulseloop/agent/cli"
)

const name = "claude"

// Config says how to run the CLI. The zero value takes it from PATH with its
// own defaults.
type Config struct {
	Path   string        // the program; "" is `claude` on PATH
	Model  string        // used where the run names none
	Args   []string      // put after the arguments of ours
	Env    []string      // "K=V", beside what is passed on
	Linger time.Duration // how long to wait for more after a result; 0 is cli.DefaultLinger
}

// Backend is Claude Code.
type Backend struct{ cfg Config }

// New makes a Backend; nothing is looked up yet.
func New(cfg Config) *Backend { return &Backend{cfg: cfg} }

// Name is "claude".
func (b *Backend) Name() string { return name }

// passed are the variables that tell the CLI who it is and whom to call.
// CLAUDECODE is not among them: it makes the CLI think it runs inside itself.
func passed() []string {
	return append([]string{
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN",
		"ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_MAX_RETRIES",
	}, cli.NetworkEnv()...)
}

// environment is what is set for every run. Work in the background would
// outlive the answer: the CLI gives its result, waits in silence, and answers
// again when the work is done.
func (b *Backend) environment() []string {
	env := []string{
		"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
	}
	for _, kv := range b.cfg.Env {
		if !strings.HasPrefix(kv, "CLAUDECODE=") {
			env = append(env, kv)
		}
	}
	return env
}

// readRules makes up for --setting-sources, which also turns off the reading
// of the project's instructions.
const readRules = "Before you begin, read CLAUDE.md and AGENTS.md in the working directory where they exist, and follow them."

// Command gives the argv of one run; the prompt is not part of it.
//
// acceptEdits with the tools below runs unattended as root too, where the CLI
// refuses bypassPermissions. Settings and servers that the repository brings
// are left out: its hooks would run, and its settings could send the key to
// another address.
func (b *Backend) Command(in cli.Input) (cli.Command, error) {
	path, err := cli.Find(b.cfg.Path, name)
	if err != nil {
		return cli.Command{}, err
	}
	args := []string{
		"-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages",
		"--permission-mode", "acceptEdits", "--allowedTools", "Bash,WebFetch,WebSearch",
		"--setting-sources", "user", "--strict-mcp-config",
		"--append-system-prompt", readRules,
	}
	if model := first(in.Model, b.cfg.Model); model != "" {
		args = append(args, "--model", model)
	}
	return cli.Command{Path: path, Args: append(args, b.cfg.Args...), Pass: cli.Set(passed()), Env: b.environment(), Home: b.home()}, nil
}

const configDir = "CLAUDE_CONFIG_DIR"

// home is where the CLI keeps its own things. Its file of settings lies
// beside the directory, unless a variable has moved that.
func (b *Backend) home() *cli.Home {
	dir := os.Getenv(configDir)
	for _, kv := range b.cfg.Env {
		if v, ok := strings.CutPrefix(kv, configDir+"="); ok {
			dir = v
		}
	}
	settings := filepath.Join(dir, ".claude.json")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil
		}
		dir, settings = filepath.Join(home, ".claude"), filepath.Join(home, ".claude.json")
	}
	return &cli.Home{Env: configDir, Dir: dir, Keep: []string{".credentials.json"},
		Share:  []string{"settings.json", "CLAUDE.md", "agents", "commands", "skills", "rules", "output-styles"},
		Copies: map[string]string{".claude.json": settings},
		// Other work, and servers with their keys, which --strict-mcp-config turns off anyway.
		Forget: []string{"projects", "mcpServers", "githubRepoPaths"}}
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// errEnough ends a conversation whose outcome is known.
var errEnough = errors.New("nothing more is to be expected")

// Converse feeds the prompt and decodes what comes back. Controls are not
// taken: with its input closed the CLI listens to signals alone.
func (b *Backend) Converse(ctx context.Context, w cli.Wire, in cli.Input, controls <-chan cli.Control, emit func(cli.Event)) error {
	fed := cli.Feed(w.Stdin, in.Prompt)
	d := newDecoder(in.Dir, emit)
	err := cli.Talk{
		OnLine:  d.line,
		Settled: func() bool { return d.result != nil },
		Linger:  b.cfg.Linger,
	}.Run(ctx, w.Stdout, controls)
	_ = w.Stdin.Close()
	<-fed
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if d.result == nil {
		return errors.New("claude ended without a result")
	}
	emit(cli.Event{Kind: cli.EventResult, Result: d.result})
	return nil
}
