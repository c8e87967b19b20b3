package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"pulseloop/agent/worktree"
	"pulseloop/api/client"
	"pulseloop/bot/telegram"
	"pulseloop/configs"
	"pulseloop/db"
	"pulseloop/internal/proc"
	"pulseloop/pulse"
)

// broken makes a finding of an error, with the fix it names.
func broken(err error, fix string) finding {
	var e *pulse.Error
	if errors.As(err, &e) {
		if e.Hint != "" {
			fix = e.Hint
		}
		return fail(e.Message, fix)
	}
	return fail(err.Error(), fix)
}

func checkDataDir(_ context.Context, cfg configs.Config) []finding {
	info, err := os.Stat(cfg.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return []finding{fail("cannot be made: "+err.Error(), "set data_dir (PULSE_DATA_DIR) to a directory you may write to")}
		}
		return []finding{ok(cfg.DataDir + " (made just now)")}
	}
	if err != nil {
		return []finding{fail(err.Error(), "set data_dir (PULSE_DATA_DIR) to a directory you may write to")}
	}
	if !info.IsDir() {
		return []finding{fail(cfg.DataDir+" is not a directory", "move the file away, or set data_dir (PULSE_DATA_DIR)")}
	}
	probe, err := os.CreateTemp(cfg.DataDir, ".doctor-*")
	if err != nil {
		return []finding{fail("cannot be written to: "+err.Error(), "`chown` it to yourself, or set data_dir (PULSE_DATA_DIR)")}
	}
	probe.Close()
	os.Remove(probe.Name())
	if info.Mode().Perm()&0o077 != 0 {
		return []finding{warn(fmt.Sprintf("%s may be entered by others (mode %04o)", cfg.DataDir, info.Mode().Perm()), "run `chmod 700 "+cfg.DataDir+"`")}
	}
	return []finding{ok(cfg.DataDir)}
}

// diskFloor is the free space below which a run is likely to end in the middle.
const diskFloor = 1 << 30

func checkDisk(_ context.Context, cfg configs.Config) []finding { return checkRoom(cfg, diskFloor) }

func checkRoom(cfg configs.Config, floor uint64) []finding {
	var st syscall.Statfs_t
	if err := syscall.Statfs(cfg.DataDir, &st); err != nil {
		return []finding{warn("free space is unknown: "+err.Error(), "make sure that data_dir exists")}
	}
	free := st.Bavail * uint64(st.Bsize)
	text := fmt.Sprintf("%.1f GiB free", float64(free)/(1<<30))
	if free < floor {
		return []finding{fail(text, "make room on the disk of "+cfg.DataDir+", or set data_dir to another one")}
	}
	return []finding{ok(text)}
}

func checkToken(_ context.Context, cfg configs.Config) []finding {
	if cfg.HTTP.Token != "" {
		return []finding{ok("from the configuration")}
	}
	_, err := readToken(cfg)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []finding{ok("made at the first start")}
	case err != nil:
		return []finding{broken(err, "remove "+tokenFile(cfg)+"; the next start makes a new one")}
	}
	return []finding{ok(tokenFile(cfg))}
}

// checkGit looks at git in a directory of its own: a data directory that
// cannot be used is not git's fault.
func checkGit(ctx context.Context, _ configs.Config) []finding {
	dir, err := os.MkdirTemp("", "pulse-doctor-")
	if err != nil {
		return []finding{warn("cannot be tried: "+err.Error(), "set TMPDIR to a directory you may write to")}
	}
	defer os.RemoveAll(dir)
	if _, err := worktree.New(worktree.Config{Dir: dir}); err != nil {
		return []finding{broken(err, "install git 2.39.4 or newer")}
	}
	out, exit, err := proc.Output(ctx, proc.Spec{Path: "git", Args: []string{"version"}, Dir: dir, Env: proc.BaseEnv()})
	if err != nil || exit.Code != 0 {
		return []finding{ok("found")}
	}
	return []finding{ok(strings.TrimPrefix(strings.TrimSpace(string(out)), "git version "))}
}

func checkDatabase(ctx context.Context, cfg configs.Config) []finding {
	what := "SQLite, " + sqliteFile(cfg)
	if cfg.DatabaseURL != "" {
		what = "PostgreSQL"
	} else if running(ctx, cfg) {
		return []finding{ok(what + ", in use by the pulse that is running")}
	} else if _, err := os.Stat(sqliteFile(cfg)); errors.Is(err, fs.ErrNotExist) {
		return []finding{ok(what + ", made at the first start")}
	}
	store, err := db.Open(ctx, db.Config{URL: cfg.DatabaseURL.Reveal(), Path: sqliteFile(cfg), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return []finding{unusableDatabase(err)}
	}
	defer store.Close()
	v, err := store.Version(ctx)
	if err != nil {
		return []finding{broken(err, "run `pulse migrate`")}
	}
	return append([]finding{ok(fmt.Sprintf("%s, schema version %d", what, v))}, refusingChats(ctx, store)...)
}

// refusingChats tells of the chats for which results and questions wait
// because the platform takes nothing for them.
func refusingChats(ctx context.Context, store *db.Store) []finding {
	held, err := store.HeldChats(ctx)
	if err != nil {
		return []finding{broken(err, "run `pulse migrate`")}
	}
	var out []finding
	for _, at := range slices.SortedFunc(maps.Keys(held), func(a, b pulse.Address) int { return cmp.Compare(a.Chat, b.Chat) }) {
		out = append(out, warn(fmt.Sprintf("chat %s on %s takes no messages: %s", at.Chat, at.Platform, held[at]),
			"let the bot in again there, or write to it: what waits is then sent"))
	}
	return out
}

// unusableDatabase says why, where the error knows.
func unusableDatabase(err error) finding {
	f := broken(err, "check database_url (PULSE_DATABASE_URL), and that the server runs")
	cause, fix := db.Cause(err)
	if cause != "" {
		f.Detail += ": " + cause
	}
	if fix != "" {
		f.Fix = fix
	}
	return f
}

// running reports whether a pulse answers at the configured address.
func running(ctx context.Context, cfg configs.Config) bool {
	// Another program may have the port, and listen without a word.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := client.New(client.Config{BaseURL: baseURL(cfg)})
	return err == nil && c.Health(ctx) == nil
}

func checkHTTP(ctx context.Context, cfg configs.Config) []finding {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.HTTP.Listen)
	if err == nil {
		l.Close()
		return []finding{ok(cfg.HTTP.Listen + " is free")}
	}
	if running(ctx, cfg) {
		return []finding{ok("pulse is running on " + cfg.HTTP.Listen)}
	}
	return []finding{fail("cannot listen on "+cfg.HTTP.Listen+": "+err.Error(), "set http.listen (PULSE_HTTP_LISTEN) to another port, or end the program that has this one")}
}

func checkAgents(ctx context.Context, cfg configs.Config) []finding {
	all := backends(cfg)
	var out []finding
	usable := 0
	for _, p := range probeAll(ctx, all) {
		switch {
		case p.Ready() && p.Name == "scripted" && cfg.Agent != "scripted":
			continue // always there, and of no use to a person
		case p.Ready():
			usable++
			out = append(out, ok(fmt.Sprintf("%s %s", p.Name, p.Version)))
		case p.Name == cfg.Agent:
			out = append(out, fail(p.Name+", the default: "+p.Problem, p.Fix))
		case p.Name != "scripted" && p.Installed, p.Name == "command" && hasCommand(cfg):
			out = append(out, warn(p.Name+": "+p.Problem, p.Fix))
		}
	}
	if usable == 0 {
		p := all[preference[0]].Probe(ctx)
		out = append(out, fail("no agent is ready to work; "+p.Name+": "+p.Problem, p.Fix+", or set PULSE_COMMAND to any program that reads a prompt"))
	}
	return out
}

func checkProjects(ctx context.Context, cfg configs.Config) []finding {
	if len(cfg.Projects) == 0 {
		return []finding{warn("none in the configuration", "run `pulse init` in a repository, or `pulse projects add PATH` while pulse runs")}
	}
	var out []finding
	for _, name := range slices.Sorted(maps.Keys(cfg.Projects)) {
		root, branch, err := worktree.CheckRepo(ctx, "", cfg.Projects[name].Path)
		if err != nil {
			f := broken(err, "correct projects."+name+".path")
			f.Detail = name + ": " + f.Detail
			out = append(out, f)
			continue
		}
		if want := filepath.Clean(cfg.Projects[name].Path); root != want {
			out = append(out, ok(fmt.Sprintf("%s: %s (from %s), branch %s", name, root, want, branch)))
			continue
		}
		out = append(out, ok(fmt.Sprintf("%s: %s, branch %s", name, root, branch)))
	}
	return out
}

func checkTelegram(ctx context.Context, cfg configs.Config) []finding {
	if cfg.Telegram.Token == "" {
		return []finding{warn("no bot", "make one with @BotFather and set telegram.token (PULSE_TELEGRAM_TOKEN), or use the terminal")}
	}
	c, err := telegram.New(telegram.Config{Token: cfg.Telegram.Token.Reveal(), APIURL: cfg.Telegram.APIURL, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return []finding{broken(err, "copy the token from @BotFather again")}
	}
	name, err := c.Check(ctx)
	if err != nil {
		return []finding{broken(err, "copy the token from @BotFather again")}
	}
	return []finding{ok("@" + name)}
}

func (o *options) checkPairing(ctx context.Context, cfg configs.Config) []finding {
	if cfg.Telegram.Token == "" {
		return []finding{ok("nothing to pair without a bot")}
	}
	if cfg.DatabaseURL == "" {
		if running(ctx, cfg) {
			return []finding{ok("run `pulse pair` to let somebody in")}
		}
		if _, err := os.Stat(sqliteFile(cfg)); err != nil {
			return []finding{warn("nobody may speak to the bot yet", "run `pulse up` and send the bot the code it prints")}
		}
	}
	store, err := db.Open(ctx, db.Config{URL: cfg.DatabaseURL.Reveal(), Path: sqliteFile(cfg), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return []finding{warn("unknown: the database cannot be read", "see the check of the database")}
	}
	defer store.Close()
	n, err := store.CountOperators(ctx, pulse.PlatformTelegram)
	if err != nil || n == 0 {
		return []finding{warn("nobody may speak to the bot yet", "run `pulse up` and send the bot the code it prints")}
	}
	return []finding{ok(fmt.Sprintf("%d may speak to the bot", n))}
}
