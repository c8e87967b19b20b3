package configs

import (
	"log/slog"
	"time"
)

// Config is the whole tree. Every key can also be set by an environment
// variable: PULSE_ and the path of the key in capitals, joined by '_'.
type Config struct {
	DataDir      string             `yaml:"data_dir"`
	DatabaseURL  Secret             `yaml:"database_url"` // empty: SQLite in the data dir
	AllowedRoots []string           `yaml:"allowed_roots"`
	Agent        string             `yaml:"agent"`   // the default backend; empty: the first that is ready
	Sandbox      string             `yaml:"sandbox"` // of agents: auto, none, landlock, bubblewrap
	Limits       Limits             `yaml:"limits"`  // of one run of an agent
	Projects     map[string]Project `yaml:"projects"`
	Agents       map[string]Agent   `yaml:"agents"`
	HTTP         HTTP               `yaml:"http"`
	Telegram     Telegram           `yaml:"telegram"`
	Loop         Loop               `yaml:"loop"`
	Daemon       Daemon             `yaml:"daemon"`
	Retention    Retention          `yaml:"retention"`
	Log          Log                `yaml:"log"`

	// File is where the tree was read from, "" if there was no file.
	File string `yaml:"-"`
}

// Project is a repository.
type Project struct {
	Path       string `yaml:"path"`
	BaseBranch string `yaml:"base_branch"`
	Agent      string `yaml:"agent"`
	Sandbox    string `yaml:"sandbox"` // empty: as everywhere
}

// Agent is how to run one agent CLI.
type Agent struct {
	Path    string   `yaml:"path"`    // of the program; empty: looked up by name
	Model   string   `yaml:"model"`   // empty: the CLI's own default
	Args    []string `yaml:"args"`    // put behind our own
	Command []string `yaml:"command"` // the agent "command" alone: program and arguments
	Script  string   `yaml:"script"`  // the agent "scripted" alone: the YAML file; empty: a small demonstration
}

// HTTP is the listener of API, WebSocket and page.
type HTTP struct {
	Listen       string   `yaml:"listen"`
	Token        Secret   `yaml:"token"` // empty: made at the first start, in <data_dir>/token
	AllowedHosts []string `yaml:"allowed_hosts"`
}

// Telegram is the bot.
type Telegram struct {
	Token         Secret `yaml:"token"`
	APIURL        string `yaml:"api_url"`
	WebhookURL    string `yaml:"webhook_url"`    // empty: the bot asks for updates itself
	WebhookSecret Secret `yaml:"webhook_secret"` // with webhook_url: 16 to 256 of A-Z a-z 0-9 _ -
}

// Loop is the limits of sessions.
type Loop struct {
	MaxIterations int           `yaml:"max_iterations"`
	SilenceLimit  time.Duration `yaml:"silence_limit"`

	ToolSilenceLimit time.Duration `yaml:"tool_silence_limit"`
	IterationLimit   time.Duration `yaml:"iteration_limit"` // 0: none
}

// Daemon is how agents are run on this machine.
type Daemon struct {
	Slots         int           `yaml:"slots"`
	ShutdownGrace time.Duration `yaml:"shutdown_grace"`
	// Lease is how long what a process holds (tasks, steps, messages on their way) stays held after its last sign. The
	// programs on one database must agree on it.
	Lease  time.Duration `yaml:"lease"`
	Linger time.Duration `yaml:"linger"` // how long an agent may be silent after its result
}

// Log is what the program says of itself, on standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error
	Format string `yaml:"format"` // text or json
}

// Secret is a value that never prints itself.
type Secret string

const mask = "[redacted]"

// Reveal gives the text.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString keeps %#v from showing it.
func (s Secret) GoString() string { return s.String() }

// LogValue keeps slog from showing it.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps encoders from showing it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the text as it is.
func (s *Secret) UnmarshalText(b []byte) error {
	*s = Secret(b)
	return nil
}
