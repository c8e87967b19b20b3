package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"pulseloop/agent"
	"pulseloop/agent/cli"
	"pulseloop/agent/tracing"
	"pulseloop/agent/worktree"
	"pulseloop/api"
	"pulseloop/bot"
	"pulseloop/bot/console"
	"pulseloop/configs"
	"pulseloop/db"
	"pulseloop/internal/secret"
	"pulseloop/loop"
	"pulseloop/loop/recall"
	"pulseloop/notify"
	"pulseloop/pulse"
)

// parts says what a process runs.
type parts struct {
	front   bool // bots, API, Runner, notifications
	agents  bool // the daemon
	console bool // the conversation in this terminal
	onReady func(net.Addr)
}

// app is everything that runs in one process, wired together.
type app struct {
	o        *options
	cfg      configs.Config
	log      *slog.Logger
	redactor *secret.Redactor
	token    string
	store    *db.Store
	backends map[string]cli.Backend
	actions  *loop.Actions
	projects *loop.Registrar
	adapters []bot.Adapter
	senders  []notify.Sender
	terminal *console.Console // the conversation, where there is one
	runs     map[string]func(context.Context) error
	closers  []func() error
}

// assemble opens what is needed and wires the parts; Close undoes it.
func assemble(ctx context.Context, o *options, cfg configs.Config, agentName string, p parts) (a *app, err error) {
	a = &app{o: o, cfg: cfg, runs: map[string]func(context.Context) error{}, backends: backends(cfg)}
	begun := a
	defer func() {
		if err != nil {
			begun.Close()
		}
	}()
	if a.token, err = ensureDataDir(cfg, o.caution); err != nil {
		return nil, err
	}
	a.redactor = secret.New(secretsOf(cfg, a.token)...)
	if a.log, err = a.openLog(p.console); err != nil {
		return nil, err
	}
	if a.store, err = a.openStore(ctx); err != nil {
		return nil, err
	}
	a.wireLoop(agentName, p)
	if err := a.syncProjects(ctx); err != nil {
		return nil, err
	}
	a.runs["settling"] = a.settle
	if p.agents {
		if err := a.wireDaemon(); err != nil {
			return nil, err
		}
	}
	if p.front {
		return a, a.wireFront(ctx, p)
	}
	return a, nil
}

// openLog writes to standard error, or to a file where a conversation has
// the terminal.
func (a *app) openLog(toFile bool) (*slog.Logger, error) {
	o := *a.o
	t := *a.o.terminal
	o.terminal = &t
	if toFile {
		f, err := os.OpenFile(filepath.Join(a.cfg.DataDir, "pulse.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the log: %w", err)
		}
		a.closers = append(a.closers, f.Close)
		t.err = io.Writer(f)
	}
	return o.logger(a.cfg.Log, a.redactor.String), nil
}

func (a *app) openStore(ctx context.Context) (*db.Store, error) {
	store, err := db.Open(ctx, db.Config{URL: a.cfg.DatabaseURL.Reveal(), Path: sqliteFile(a.cfg), Log: a.log})
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, store.Close)
	_, err = store.Migrate(ctx)
	return store, err
}

// sqliteFile is where the embedded database lies.
func sqliteFile(c configs.Config) string { return filepath.Join(c.DataDir, "pulse.db") }

func (a *app) wireLoop(agentName string, p parts) {
	cfg := loop.Config{Log: a.log, MaxIterations: a.cfg.Loop.MaxIterations, SilenceLimit: a.cfg.Loop.SilenceLimit,
		ToolSilenceLimit: a.cfg.Loop.ToolSilenceLimit, IterationLimit: a.cfg.Loop.IterationLimit, DefaultAgent: agentName, Lease: a.cfg.Daemon.Lease,
		Agents: slices.Sorted(maps.Keys(a.backends))}
	a.actions = loop.NewActions(a.store, notify.Words{}, cfg)
	inspect := func(ctx context.Context, path string) (string, string, error) {
		return worktree.CheckRepo(ctx, "", path)
	}
	a.projects = loop.NewRegistrar(a.store, inspect, a.cfg.AllowedRoots, nil)
	if !p.front {
		return
	}
	pace := a.pace()
	wakes, stop := pace.waker.Wakes(pulse.TopicSessions)
	a.closers = append(a.closers, func() error { stop(); return nil })
	runner := loop.NewRunner(loop.RunnerConfig{Config: cfg, Store: a.store, Reaper: a.store, Words: notify.Words{},
		Prompts: recall.New(a.store, recall.Config{}), Wakes: wakes, Poll: pace.due})
	a.runs["runner"] = runner.Run
	a.runs["purge"] = a.purging
}

// syncProjects brings the projects of the configuration into the database.
// They were named by whoever runs the program, so they may lie anywhere, and
// a new path is one that moved. A broken one is left out, and said.
func (a *app) syncProjects(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(a.cfg.Projects)) {
		err := a.syncProject(ctx, name, a.cfg.Projects[name])
		var e *pulse.Error
		switch {
		case err == nil:
		case errors.As(err, &e):
			a.o.printf("Project %s is left out: %s\n  → %s (projects.%s.path)\n", name, e.Message, e.Hint, name)
			a.log.Warn("project left out", "project", name, "err", err)
		default:
			return fmt.Errorf("project %s of the configuration: %w", name, err)
		}
	}
	return nil
}

func (a *app) syncProject(ctx context.Context, name string, c configs.Project) error {
	root, head, err := worktree.CheckRepo(ctx, "", c.Path)
	if err != nil {
		return err
	}
	known, err := a.store.ProjectByName(ctx, name)
	want := pulse.Project{ID: known.ID, Name: name, Path: root, BaseBranch: cmp.Or(c.BaseBranch, head), Agent: c.Agent, CreatedAt: known.CreatedAt}
	switch {
	case pulse.CodeOf(err) == pulse.CodeNotFound:
		now := time.Now().UTC()
		want.ID, want.CreatedAt = pulse.ProjectID(pulse.NewUUID(now)), now
	case err != nil:
		return fmt.Errorf("read the project: %w", err)
	case known == want:
		return nil
	}
	if err := a.store.Apply(ctx, pulse.Guard{}, pulse.Change{Project: &want}); err != nil {
		return fmt.Errorf("store the project: %w", err)
	}
	return nil
}

func (a *app) wireDaemon() error {
	trees, err := worktree.New(worktree.Config{Dir: a.cfg.DataDir, Log: a.log})
	if err != nil {
		return err
	}
	a.tidies(trees)
	id, err := daemonID(a.cfg)
	if err != nil {
		return err
	}
	models := map[string]string{}
	for name, c := range a.cfg.Agents {
		models[name] = c.Model
	}
	traces, err := a.traces()
	if err != nil {
		return err
	}
	w := walls{cfg: a.cfg, box: newSandbox(), projects: a.store.Projects}
	host, _ := os.Hostname()
	d := agent.New(agent.Config{ID: id, Host: host, Version: version, Queue: a.store, Registry: a.store, Waker: a.store, Trees: trees,
		Backends: a.backends, Confine: w.confine, Sandbox: w.box, Caches: filepath.Join(a.cfg.DataDir, "caches"),
		StateDir: filepath.Join(a.cfg.DataDir, "run"), Models: models, Redactor: a.redactor, Log: a.log,
		Slots: a.cfg.Daemon.Slots, Poll: a.pace().poll, ShutdownGrace: a.cfg.Daemon.ShutdownGrace, Lease: a.cfg.Daemon.Lease, ExitGrace: min(a.cfg.Daemon.Linger, 10*time.Second),
		Observers: traces.Observe})
	a.runs["daemon"], a.runs["sandbox"] = d.Run, func(ctx context.Context) error { return w.tryOut(ctx, a.log) }
	return nil
}

// traces is where runs are told of as spans: nowhere, unless the usual
// variable names a collector.
func (a *app) traces() (*tracing.Exporter, error) {
	endpoint, _ := a.o.env("OTEL_EXPORTER_OTLP_ENDPOINT")
	e, err := tracing.New(context.Background(), tracing.Config{Endpoint: endpoint, ServiceVersion: version, Log: a.log})
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return e.Shutdown(ctx)
	})
	return e, nil
}

// daemonID is the same at every start: the worktrees in the data directory
// belong to this daemon.
func daemonID(c configs.Config) (pulse.DaemonID, error) {
	file := filepath.Join(c.DataDir, "daemon-id")
	b, err := os.ReadFile(file)
	if err == nil && pulse.ValidUUID(string(b)) {
		return pulse.DaemonID(b), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the daemon's id: %w", err)
	}
	id := pulse.NewUUID(time.Now())
	if err := os.WriteFile(file, []byte(id), 0o600); err != nil {
		return "", fmt.Errorf("store the daemon's id: %w", err)
	}
	return pulse.DaemonID(id), nil
}

// wireFront wires everything that people and programs speak to.
func (a *app) wireFront(ctx context.Context, p parts) error {
	hooks, err := a.wireTelegram(ctx)
	if err != nil {
		return err
	}
	if p.console {
		if err := a.wireConsole(ctx); err != nil {
			return err
		}
	}
	pace := a.pace()
	router := bot.New(bot.Config{Inbox: a.store, People: a.store, Reader: a.store, Store: a.store, Doer: a.actions,
		Adapters: a.adapters, Waker: pace.waker, Poll: pace.poll, Log: a.log})
	a.runs["router"] = router.Run
	// A crash in the middle of a delivery silences its chat until the lease ends, so it is no longer than a task's.
	a.runs["dispatcher"] = notify.NewDispatcher(a.store, notify.Config{Senders: a.senders, Waker: a.store, Redact: a.redactor.String,
		Poll: pace.poll, SendTimeout: a.cfg.Daemon.Lease * 2 / 3, Lease: a.cfg.Daemon.Lease, Log: a.log}).Run
	a.runs["progress"] = notify.NewProgress(a.store, notify.ProgressConfig{Waker: pace.waker, Poll: pace.poll, Log: a.log, Interval: a.progressInterval()}).Run
	server, err := api.New(api.Config{Doer: a.doer(), Reader: a.store, Feed: a.store, Registrar: a.projects, Pairer: a.pairer(),
		Token: a.token, TokenFile: tokenFile(a.cfg), Listen: a.cfg.HTTP.Listen, Listening: p.onReady, AllowedHosts: a.cfg.HTTP.AllowedHosts,
		Ready: a.store.Ping, Counts: a.counts, Redact: a.redactor.String, Hooks: hooks, Version: version, Log: a.log})
	if err != nil {
		return err
	}
	a.runs["api"] = server.Run
	return nil
}

// progressInterval is how often a live message is written anew at most. How
// often it is sent is each platform's own limit: what waits there is to be
// news when its turn comes. A terminal of one's own shows each step.
func (a *app) progressInterval() time.Duration {
	if a.terminal != nil && a.cfg.Telegram.Token == "" {
		return 100 * time.Millisecond
	}
	return 500 * time.Millisecond
}

// say tells the person in front of the program something, beside the line
// that they may be typing.
func (a *app) say(format string, args ...any) {
	if a.terminal == nil {
		a.o.printf(format, args...)
		return
	}
	a.terminal.Print(fmt.Sprintf(format, args...))
}

func (a *app) counts(ctx context.Context) ([]api.Count, error) {
	counts, err := a.store.Counts(ctx)
	var out []api.Count
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, api.Count{Name: "pulse_rows", Help: "Rows by table and state.", Labels: map[string]string{"what": name}, Value: float64(counts[name])})
	}
	return out, err
}

// pairer is nil where nobody could send a code to anything.
func (a *app) pairer() api.Pairer {
	if a.cfg.Telegram.Token == "" {
		return nil
	}
	return pairer{a.store}
}

// pairer makes one-time codes.
type pairer struct{ store *db.Store }

func (p pairer) NewCode(ctx context.Context, role pulse.OperatorRole) (string, time.Time, error) {
	code, pc := bot.NewCode(time.Now().UTC(), role)
	err := p.store.Apply(ctx, pulse.Guard{}, pulse.Change{NewCode: &pc})
	return code, pc.ExpiresAt, err
}

// Run runs every part until ctx ends or one of them fails. The console's end
// ends the rest.
func (a *app) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range slices.Sorted(maps.Keys(a.runs)) {
		run := a.runs[name]
		g.Go(func() error {
			if err := run(ctx); err != nil {
				if errors.Is(err, errEnd) {
					return err
				}
				return fmt.Errorf("%s: %w", name, a.taken(err))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil && !errors.Is(err, errEnd) {
		return err
	}
	return nil
}

// taken says what to do where another program has the port.
func (a *app) taken(err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	return &pulse.Error{Code: pulse.CodeUnavailable, Message: "cannot listen on " + a.cfg.HTTP.Listen + ": another program has the port",
		Hint: "set http.listen (PULSE_HTTP_LISTEN), or end the program that has it", Err: err}
}

// errEnd is how a part says that the program has done its work.
var errEnd = errors.New("the end")

// Close closes what assemble opened, last first.
func (a *app) Close() error {
	var errs []error
	for _, c := range slices.Backward(a.closers) {
		errs = append(errs, c())
	}
	a.closers = nil
	return errors.Join(errs...)
}

// secretsOf lists the values that must never leave the process.
func secretsOf(c configs.Config, token string) []string {
	out := []string{token, c.HTTP.Token.Reveal(), c.Telegram.Token.Reveal(), c.Telegram.WebhookSecret.Reveal(), configs.PasswordOf(c.DatabaseURL.Reveal())}
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "XAI_API_KEY", "CURSOR_API_KEY"} {
		out = append(out, os.Getenv(name))
	}
	return out
}
