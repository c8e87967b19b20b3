package claude

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pulseloop/agent/cli"
)

const (
	fixInstall = "npm install -g @anthropic-ai/claude-code"
	fixLogin   = "run `claude` once and log in, or set ANTHROPIC_API_KEY"
)

// Probe looks for the program, its version and its credentials.
func (b *Backend) Probe(ctx context.Context) cli.Probe {
	p := cli.Probe{Name: name, Can: cli.Abilities{Cost: true, Tokens: true}}
	env := append(cli.Taken(passed()), b.environment()...)
	cli.AskVersion(ctx, &p, b.cfg.Path, name, env)
	switch {
	case !p.Installed:
		p.Fix = fixInstall
	case p.Problem != "":
		p.Fix = "reinstall it: " + fixInstall
	default:
		if p.LoggedIn = hasKey(env) || hasLogin(env) || b.saysLoggedIn(ctx, p.Path, env); !p.LoggedIn {
			p.Problem, p.Fix = "claude is not logged in", fixLogin
		}
	}
	return p
}

func hasKey(env []string) bool {
	return slices.ContainsFunc(env, func(kv string) bool {
		k, v, _ := strings.Cut(kv, "=")
		return v != "" && (k == "ANTHROPIC_API_KEY" || k == "ANTHROPIC_AUTH_TOKEN" || k == "CLAUDE_CODE_OAUTH_TOKEN")
	})
}

// hasLogin looks for what `claude` writes when somebody logs in.
func hasLogin(env []string) bool {
	dir := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "CLAUDE_CONFIG_DIR="); ok {
			dir = v
		}
	}
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return false
		}
		dir = filepath.Join(home, ".claude")
	}
	info, err := os.Stat(filepath.Join(dir, ".credentials.json"))
	return err == nil && info.Size() > 2
}

// saysLoggedIn asks the CLI itself, which also knows key chains and helpers.
// It answers without the network.
func (b *Backend) saysLoggedIn(ctx context.Context, path string, env []string) bool {
	out, exit, err := cli.Ask(ctx, path, env, "auth", "status")
	var status struct {
		LoggedIn bool `json:"loggedIn"`
	}
	return err == nil && exit.OK() && cli.Decode([]byte(strings.TrimSpace(out)), &status) && status.LoggedIn
}
