package codex

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"pulseloop/agent/cli"
)

const (
	fixInstall = "npm install -g @openai/codex"
	fixLogin   = "run `codex login`, or set OPENAI_API_KEY"
)

// Probe looks for the program, its version and its credentials.
func (b *Backend) Probe(ctx context.Context) cli.Probe {
	p := cli.Probe{Name: name, Can: cli.Abilities{Tokens: true}}
	cli.AskVersion(ctx, &p, b.cfg.Path, name, append(cli.Taken(passed()), b.cfg.Env...))
	switch {
	case !p.Installed:
		p.Fix = fixInstall
	case p.Problem != "":
		p.Fix = "reinstall it: " + fixInstall
	default:
		if p.LoggedIn = b.home().loggedIn(); !p.LoggedIn {
			p.Problem, p.Fix = "codex is not logged in", fixLogin
		}
	}
	return p
}

// home is where Codex keeps its configuration and login. get reads the
// environment the CLI will have.
type home struct {
	dir string
	get func(string) string
}

func (b *Backend) home() home {
	get := func(key string) string {
		for i := len(b.cfg.Env) - 1; i >= 0; i-- {
			if v, ok := strings.CutPrefix(b.cfg.Env[i], key+"="); ok {
				return v
			}
		}
		return os.Getenv(key)
	}
	dir := get("CODEX_HOME")
	if dir == "" {
		dir = filepath.Join(get("HOME"), ".codex")
	}
	return home{dir: dir, get: get}
}

// loggedIn: a key in the environment, a login, or a provider of the person's
// own whose key is there. `codex login status` knows only the second.
func (h home) loggedIn() bool {
	if h.get("CODEX_API_KEY") != "" || h.get("OPENAI_API_KEY") != "" || h.hasLogin() {
		return true
	}
	for _, name := range h.keyNames() {
		if h.get(name) != "" {
			return true
		}
	}
	return false
}

func (h home) hasLogin() bool {
	info, err := os.Stat(filepath.Join(h.dir, "auth.json"))
	return err == nil && info.Size() > 2
}

// substituteKey gives exec the key under the name it reads: it takes
// CODEX_API_KEY, where people mostly have OPENAI_API_KEY.
func (h home) substituteKey() []string {
	key := h.get("OPENAI_API_KEY")
	if key == "" || h.get("CODEX_API_KEY") != "" || h.hasLogin() {
		return nil
	}
	return []string{"CODEX_API_KEY=" + key}
}

// envKey is the line of config.toml by which a provider names the variable
// that holds its key.
var envKey = regexp.MustCompile(`^\s*(?:[\w."'-]+\.)?env_key\s*=\s*["']([A-Za-z_][A-Za-z0-9_]*)["']`)

// keyNames are the variables that providers in the person's configuration
// take their keys from.
func (h home) keyNames() []string {
	f, err := os.Open(filepath.Join(h.dir, "config.toml"))
	if err != nil {
		return nil
	}
	defer f.Close()
	var names []string
	lines := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for lines.Scan() {
		if m := envKey.FindStringSubmatch(lines.Text()); m != nil {
			names = append(names, m[1])
		}
	}
	return names
}

// tomlString quotes a text as a basic string of TOML, whose escapes are those
// of JSON.
func tomlString(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(strings.ToValidUTF8(s, "\uFFFD")) != nil {
		return `""`
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\x7f", `\u007f`)
}
