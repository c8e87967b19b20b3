package e2etest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/pulse"
)

// Options say how the program is set up. The zero value is `pulse up` on SQLite, without a bot and without a project, with
// the scripted agent and its demonstration.
type Options struct {
	Command  []string             // default: up
	Database string               // as Databases gives it; empty: SQLite in the data directory
	Telegram *telegramtest.Server // the bot's other side
	Script   string               // YAML for the scripted agent; it is reread at every iteration
	Agent    string               // default: scripted. "-": none, the program looks for one
	Projects map[string]*Repository
	Config   string   // more of pulse.yaml
	Env      []string // K=V, wins over everything else
	Home     string   // default: a new one
}

// Pulse is the program with its surroundings: a home, a data directory, a port. It runs between Up and Stop or Kill, as
// often as a test likes.
type Pulse struct {
	t   testing.TB
	opt Options
	env []string

	Home    string
	DataDir string
	Addr    string // host:port of the API, the same at every start

	run  *run
	runs []*run
}

// Start sets the program up, starts it, and returns when it is ready for work.
func Start(t testing.TB, opt Options) *Pulse {
	t.Helper()
	p := New(t, opt)
	p.Up()
	return p
}

// New sets the program up without starting it, for commands that need no server, or come before it.
func New(t testing.TB, opt Options) *Pulse {
	t.Helper()
	if len(opt.Command) == 0 {
		opt.Command = []string{"up"}
	}
	if opt.Home == "" {
		opt.Home = filepath.Join(t.TempDir(), "home")
	}
	p := &Pulse{t: t, opt: opt, Home: opt.Home, DataDir: filepath.Join(opt.Home, "data"), Addr: freeAddr(t)}
	if err := os.MkdirAll(filepath.Join(p.Home, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.env = p.environment()
	t.Cleanup(p.end)
	return p
}

// environment is all that the program is told; nothing is inherited but the PATH.
func (p *Pulse) environment() []string {
	agent := p.opt.Agent
	switch agent {
	case "":
		agent = "scripted"
	case "-":
		agent = ""
	}
	env := append(base(p.Home), "TMPDIR="+filepath.Join(p.Home, "tmp"), "PULSE_DATA_DIR="+p.DataDir, "PULSE_HTTP_LISTEN="+p.Addr,
		"PULSE_AGENT="+agent, "PULSE_DATABASE_URL="+p.opt.Database, "PULSE_ALLOWED_ROOTS="+os.TempDir(), "PULSE_LOG_LEVEL=debug",
		"PULSE_SANDBOX=none") // the scripts leave in HOME what the tests look for
	if p.opt.Script != "" {
		env = append(env, "PULSE_SCRIPT="+p.WriteScript(p.opt.Script))
	}
	if t := p.opt.Telegram; t != nil {
		env = append(env, "PULSE_TELEGRAM_TOKEN="+t.Token(), "PULSE_TELEGRAM_API_URL="+t.URL())
	}
	config := p.opt.Config
	if len(p.opt.Projects) > 0 {
		config += "\nprojects:\n"
		for name, repo := range p.opt.Projects {
			config += fmt.Sprintf("  %s: {path: %q}\n", name, repo.Path)
		}
	}
	if config != "" {
		env = append(env, "PULSE_CONFIG="+p.write("pulse.yaml", config))
	}
	return append(env, p.opt.Env...)
}

// Setenv adds to the environment of every later start and command. It is for what depends on the address.
func (p *Pulse) Setenv(pairs ...string) { p.env = append(p.env, pairs...) }

// base is an environment that inherits nothing, so that a test does not see what is set up on this machine.
func base(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "NO_PROXY=*"}
}

func (p *Pulse) write(name, content string) string {
	p.t.Helper()
	file := filepath.Join(p.Home, name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// WriteScript replaces the script of the agent and gives its path.
func (p *Pulse) WriteScript(text string) string {
	p.t.Helper()
	return p.write("script.yaml", text)
}

// nextPort counts through ports below those that the system hands out by itself, so that nothing on this machine is given
// one between choosing it and listening on it. Where to begin differs by process.
var nextPort atomic.Int64

func freeAddr(t testing.TB) string {
	t.Helper()
	const first, many = 20000, 12000
	for range many {
		addr := fmt.Sprintf("127.0.0.1:%d", first+(int64(os.Getpid())*37+nextPort.Add(1))%many)
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// URL is the base of the API.
func (p *Pulse) URL() string { return "http://" + p.Addr }

// Token is that of the API; the first start makes it.
func (p *Pulse) Token() string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.DataDir, "token"))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Client speaks to the API with the token.
func (p *Pulse) Client() *client.Client { return p.client(p.Token()) }

// Anonymous speaks to the API as an agent could: without the token.
func (p *Pulse) Anonymous() *client.Client { return p.client("") }

func (p *Pulse) client(token string) *client.Client {
	p.t.Helper()
	c, err := client.New(client.Config{BaseURL: p.URL(), Token: token})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// AwaitSession returns the session with its iterations once it is in one of the states.
func (p *Pulse) AwaitSession(id string, states ...pulse.SessionStatus) wire.SessionDetail {
	p.t.Helper()
	var last wire.SessionDetail
	var err error
	ok := within(Patience, func() bool {
		last, err = p.Client().Get(p.t.Context(), id)
		for _, s := range states {
			if err == nil && last.Session.Status == s {
				return true
			}
		}
		return false
	})
	if !ok {
		p.t.Fatalf("session %s is %q (%s), waited for %v (%v)", id, last.Session.Status, last.Session.StatusReason, states, err)
	}
	return last
}

// Only is the one session there is.
func (p *Pulse) Only() wire.Session {
	p.t.Helper()
	list, err := p.Client().List(Context(p.t), client.Filter{})
	if err != nil || len(list) != 1 {
		p.t.Fatalf("%d sessions, want one (%v)", len(list), err)
	}
	return list[0]
}

var pairLine = regexp.MustCompile(`/pair (\S+)`)

// PairCode is the one-time code printed at the start.
func (p *Pulse) PairCode() string {
	p.t.Helper()
	m := pairLine.FindStringSubmatch(p.Output())
	if m == nil {
		p.t.Fatalf("no pairing code was printed:\n%s", p.Output())
	}
	return m[1]
}

// end stops what runs, shows what was printed if the test failed, and makes sure that nothing is left.
func (p *Pulse) end() {
	if p.run != nil {
		p.Stop()
	}
	if !within(10*time.Second, func() bool { return len(p.Processes()) == 0 }) {
		p.t.Errorf("processes are left: %v", p.Processes())
	}
	p.killLeftovers()
	if p.t.Failed() {
		for i, r := range p.runs {
			p.t.Logf("start %d of %s printed:\n%s", i+1, strings.Join(p.opt.Command, " "), r.both())
		}
	}
}
