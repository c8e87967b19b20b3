package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Defaults is the tree of a fresh installation for the user with that home
// directory.
func Defaults(home string) Config {
	return Config{
		DataDir: filepath.Join(home, ".local", "share", "pulse"), AllowedRoots: []string{home}, Sandbox: "auto",
		Limits:    defaultLimits(),
		HTTP:      HTTP{Listen: "127.0.0.1:3002"},
		Loop:      Loop{MaxIterations: 10, SilenceLimit: 5 * time.Minute, ToolSilenceLimit: 30 * time.Minute, IterationLimit: 12 * time.Hour},
		Daemon:    Daemon{Slots: 2, ShutdownGrace: 10 * time.Second, Lease: 30 * time.Second, Linger: 20 * time.Second},
		Retention: Retention{Events: "90d", Turns: "365d", Prompts: "30d", Messages: "90d", Deltas: "1m", Worktrees: "1d"},
		Log:       Log{Level: "info", Format: "text"},
	}
}

// Env looks up environment variables; os.LookupEnv is the real one.
type Env func(name string) (string, bool)

// Load finds and reads the configuration: explicit (the --config flag) if
// not empty, else $PULSE_CONFIG, ./pulse.yaml, $XDG_CONFIG_HOME/pulse/pulse.yaml
// (or ~/.config/pulse/pulse.yaml); then the environment; then it validates.
// A file that is named but missing is an error; without any file the
// defaults stand.
func Load(explicit string, env Env) (Config, error) {
	home, _ := env("HOME")
	if home == "" {
		home = "/"
	}
	c := Defaults(home)
	file, named := find(explicit, env, home)
	if file != "" {
		if err := c.read(file, named); err != nil {
			return c, err
		}
	}
	if err := c.override(env); err != nil {
		return c, err
	}
	c.expand(home)
	return c, c.Validate()
}

// find gives the file to read, and whether somebody named it.
func find(explicit string, env Env, home string) (file string, named bool) {
	if explicit != "" {
		return explicit, true
	}
	if f, ok := env("PULSE_CONFIG"); ok && f != "" {
		return f, true
	}
	for _, f := range []string{"pulse.yaml", Home(env, home)} {
		if _, err := os.Stat(f); err == nil {
			return f, false
		}
	}
	return "", false
}

// Home is where the user's own configuration file belongs.
func Home(env Env, home string) string {
	base, ok := env("XDG_CONFIG_HOME")
	if !ok || base == "" {
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "pulse", "pulse.yaml")
}

func (c *Config) read(file string, named bool) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	c.File, _ = filepath.Abs(file)
	if empty(b) {
		return nil // decoding nothing would wipe the defaults
	}
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict(), yaml.DisallowUnknownField())
	// The excerpt that the library offers stays out: the lines around a
	// mistake may hold a token, and people paste what doctor says.
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %s", file, explain(err, b))
	}
	return c.checkMode(file)
}

var (
	position  = regexp.MustCompile(`^\[(\d+):(\d+)\] `)
	keyBefore = regexp.MustCompile(`([A-Za-z_][\w-]*)\s*:`)
)

// explain says what is wrong with the file and where: line, column and the
// key in front of it.
func explain(err error, file []byte) string {
	text, _, _ := strings.Cut(strings.TrimSpace(yaml.FormatError(err, false, false)), "\n")
	at := position.FindStringSubmatch(text)
	if at == nil {
		return text
	}
	line, _ := strconv.Atoi(at[1])
	column, _ := strconv.Atoi(at[2])
	text = fmt.Sprintf("line %s, column %s: %s", at[1], at[2], text[len(at[0]):])
	lines := strings.Split(string(file), "\n")
	if line < 1 || line > len(lines) {
		return text
	}
	if keys := keyBefore.FindAllStringSubmatch(lines[line-1][:min(max(column-1, 0), len(lines[line-1]))], -1); len(keys) > 0 {
		text += fmt.Sprintf(" (key %s)", keys[len(keys)-1][1])
	}
	return text
}

// empty reports whether a file holds nothing but white space and comments.
func empty(b []byte) bool {
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// checkMode refuses a file with secrets in it that others may read.
func (c *Config) checkMode(file string) error {
	if c.Telegram.Token == "" && c.HTTP.Token == "" && c.Telegram.WebhookSecret == "" && PasswordOf(c.DatabaseURL.Reveal()) == "" {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("look at the configuration: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s holds secrets and others may read it (mode %04o): run `chmod 600 %s`", file, info.Mode().Perm(), file)
	}
	return nil
}

// PasswordOf gives the password in a database address, from either of the
// places where it may stand; "" without one.
func PasswordOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	if p, ok := u.User.Password(); ok && p != "" {
		return p
	}
	return u.Query().Get("password")
}

// expand makes the paths absolute, with ~ for the home directory.
func (c *Config) expand(home string) {
	c.DataDir = expandPath(c.DataDir, home)
	for i, r := range c.AllowedRoots {
		c.AllowedRoots[i] = expandPath(r, home)
	}
	for name, p := range c.Projects {
		p.Path = expandPath(p.Path, home)
		c.Projects[name] = p
	}
}

func expandPath(p, home string) string {
	if p == "~" || strings.HasPrefix(p, "~/") {
		p = home + p[1:]
	}
	if p == "" {
		return p
	}
	if abs, err := filepath.Abs(p); err == nil {
		return abs
	}
	return p
}
