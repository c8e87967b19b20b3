package configs

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

var (
	// Without its length: 63 copies of the class take longer to compile than all else at the start.
	projectName   = regexp.MustCompile(`^[\p{L}\p{N}][\p{L}\p{N}._-]*$`)
	webhookSecret = regexp.MustCompile(`^[A-Za-z0-9_-]{16,256}$`)
)

// minToken is the shortest token of the API that is no invitation to guess.
const minToken = 32

// Validate checks every value and reports all that is wrong at once, each
// with its key and what to write instead.
func (c Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{key}, args...)...))
	}
	if c.DataDir == "" {
		bad("data_dir", "is empty; give a directory")
	}
	if u := c.DatabaseURL.Reveal(); u != "" && !strings.HasPrefix(u, "postgres://") && !strings.HasPrefix(u, "postgresql://") {
		bad("database_url", "must begin with postgres:// (or be empty for SQLite)")
	}
	if _, _, err := net.SplitHostPort(c.HTTP.Listen); err != nil {
		bad("http.listen", "%q is no address; write host:port, such as 127.0.0.1:3002", c.HTTP.Listen)
	}
	if t := c.HTTP.Token; t != "" && len(t) < minToken {
		bad("http.token", "has %d characters; use at least %d random ones (such as `openssl rand -hex 32` gives), or leave it empty and one is made", len(t), minToken)
	}
	c.validateProjects(bad)
	c.validateAgents(bad)
	c.validateTelegram(bad)
	c.validateLimits(bad)
	if c.Loop.MaxIterations < 1 || c.Loop.MaxIterations > 1000 {
		bad("loop.max_iterations", "is %d; write a number from 1 to 1000", c.Loop.MaxIterations)
	}
	if c.Loop.SilenceLimit < time.Second {
		bad("loop.silence_limit", "is %s; write a duration of at least 1s, such as 5m", c.Loop.SilenceLimit)
	}
	if c.Loop.ToolSilenceLimit < time.Second {
		bad("loop.tool_silence_limit", "is %s; write a duration of at least 1s, such as 30m", c.Loop.ToolSilenceLimit)
	}
	if c.Loop.IterationLimit != 0 && c.Loop.IterationLimit < time.Second {
		bad("loop.iteration_limit", "is %s; write a duration of at least 1s, such as 12h, or 0 for no limit", c.Loop.IterationLimit)
	}
	if c.Daemon.Linger < 100*time.Millisecond || c.Daemon.Linger > 10*time.Minute {
		bad("daemon.linger", "is %s; write a duration from 100ms to 10m, such as 20s", c.Daemon.Linger)
	}
	if c.Daemon.Slots < 1 || c.Daemon.Slots > 256 {
		bad("daemon.slots", "is %d; write a number from 1 to 256", c.Daemon.Slots)
	}
	if c.Daemon.ShutdownGrace < 0 {
		bad("daemon.shutdown_grace", "is negative; write a duration such as 10s")
	}
	if c.Daemon.Lease < 2*time.Second || c.Daemon.Lease > 10*time.Minute {
		bad("daemon.lease", "is %s; write a duration from 2s to 10m, such as 30s", c.Daemon.Lease)
	}
	c.Retention.validate(bad)
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		bad("log.level", "is %q; write debug, info, warn or error", c.Log.Level)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad("log.format", "is %q; write text or json", c.Log.Format)
	}
	return errors.Join(errs...)
}

func (c Config) validateProjects(bad func(string, string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(c.Projects)) {
		p := c.Projects[name]
		if !projectName.MatchString(name) || utf8.RuneCountInString(name) > 64 {
			bad("projects", "%q cannot be a project's name; use letters, digits, '.', '_' and '-', at most 64", name)
		}
		if p.Path == "" {
			bad("projects."+name+".path", "is missing; give the path of the repository")
		}
		c.validateAgentName("projects."+name+".agent", p.Agent, bad)
	}
	c.validateAgentName("agent", c.Agent, bad)
	for _, name := range slices.Sorted(maps.Keys(c.Projects)) {
		if s := c.Projects[name].Sandbox; s != "" {
			validateSandbox("projects."+name+".sandbox", s, bad)
		}
	}
	validateSandbox("sandbox", c.Sandbox, bad)
}

func (c Config) validateAgentName(key, name string, bad func(string, string, ...any)) {
	if _, ok := c.Agents[name]; name != "" && !ok {
		bad(key, "there is no agent %q; use one of %s", name, strings.Join(slices.Sorted(maps.Keys(c.Agents)), ", "))
	}
}

// sandboxes are the levels, from what is best to say to what is strongest.
var sandboxes = []string{"auto", "none", "landlock", "bubblewrap"}

func validateSandbox(key, level string, bad func(string, string, ...any)) {
	if !slices.Contains(sandboxes, level) {
		bad(key, "there is no sandbox %q; write one of %s", level, strings.Join(sandboxes, ", "))
	}
}

func (c Config) validateAgents(bad func(string, string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		a := c.Agents[name]
		if !slices.Contains(knownAgents, name) {
			bad("agents", "%q is no agent this version knows; use one of %s", name, strings.Join(knownAgents, ", "))
		}
		if len(a.Command) > 0 && name != "command" {
			bad("agents."+name+".command", "only the agent \"command\" takes a command; use path and args")
		}
		if a.Script != "" && name != "scripted" {
			bad("agents."+name+".script", "only the agent \"scripted\" takes a script")
		}
	}
}

func (c Config) validateTelegram(bad func(string, string, ...any)) {
	t := c.Telegram
	if t.APIURL != "" {
		if u, err := url.Parse(t.APIURL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			bad("telegram.api_url", "is no http(s) address")
		}
	}
	if t.WebhookURL != "" {
		if u, err := url.Parse(t.WebhookURL); err != nil || u.Host == "" || u.Scheme != "https" && !isLoopback(u) {
			bad("telegram.webhook_url", "must be an https address")
		}
		if !webhookSecret.MatchString(t.WebhookSecret.Reveal()) {
			bad("telegram.webhook_secret", "with webhook_url a secret of 16 to 256 letters, digits, '_' and '-' is needed")
		}
		if t.Token == "" {
			bad("telegram.token", "is missing, but webhook_url is set")
		}
	}
}

func isLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
