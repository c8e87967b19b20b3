package e2e

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/db/dbtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// shell runs commands and remembers which ones.
type shell struct {
	t    *testing.T
	p    *e2etest.Pulse
	used map[string]bool
}

// run wants the exit code and gives what was printed: standard output where the command did its work, else standard error.
func (s *shell) run(want int, args ...string) string {
	s.t.Helper()
	s.used[args[0]] = true
	out, errs, code := s.p.Run(args...)
	if code != want {
		s.t.Fatalf("pulse %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
	}
	if want != 0 && errs != "" {
		return errs
	}
	if want == 0 && errs != "" {
		s.t.Errorf("pulse %s prints on standard error: %s", strings.Join(args, " "), errs)
	}
	return out
}

// data runs a command with --json and gives what it printed, parsed.
func (s *shell) data(args ...string) any {
	s.t.Helper()
	out := s.run(0, append(args, "--json")...)
	var v any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		s.t.Fatalf("pulse %s --json: %v\n%s", strings.Join(args, " "), err, out)
	}
	return v
}

// says runs a command and wants all the parts in what it prints, in order.
func (s *shell) says(args []string, parts ...string) {
	s.t.Helper()
	oneAfterTheOther(s.t, s.run(0, args...), parts...)
}

// refused runs a command that cannot be done: the exit code, and words that name what is wrong and what to do.
func (s *shell) refused(want int, args []string, parts ...string) {
	s.t.Helper()
	oneAfterTheOther(s.t, s.run(want, args...), append([]string{"pulse: "}, parts...)...)
}

// offered are the commands of the program, as it lists them itself.
func offered(t *testing.T, p *e2etest.Pulse) []string {
	t.Helper()
	out, errs, code := p.Run("__complete", "")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var names []string
	for _, line := range strings.Split(out, "\n") {
		if name, _, ok := strings.Cut(line, "\t"); ok {
			names = append(names, name)
		}
	}
	return names
}

func TestEveryCommand(t *testing.T) {
	t.Parallel()
	repo := e2etest.Repo(t)
	p := e2etest.Start(t, e2etest.Options{Projects: one(repo), Script: asks, Telegram: telegramtest.Start(t, telegramtest.Options{})})
	s := &shell{t: t, p: p, used: map[string]bool{}}

	// What runs for as long as one likes, and what sets up, have tests of their own; that they are there is seen here.
	for _, name := range []string{"up", "serve", "daemon", "demo", "init", "doctor"} {
		s.says([]string{name, "--help"}, "Usage:", "pulse "+name)
	}
	s.says([]string{"help", "start"}, "Start a session for a goal", "pulse start --project my-app --wait")
	s.says([]string{"version"}, "pulse ")
	if v := s.data("version"); in(v, "os") != "linux" || in(v, "version") == "" {
		t.Errorf("version: %v", v)
	}
	s.says([]string{"config"}, "pulse.yaml", "my-app")
	if v := s.data("config"); in(v, "projects.my-app.path") != repo.Path || in(v, "data_dir") != p.DataDir {
		t.Errorf("config: %v", v)
	}
	s.says([]string{"projects"}, "NAME", "my-app", repo.Path)
	site := e2etest.RepoAt(t, filepath.Join(t.TempDir(), "my site"))
	s.says([]string{"projects", "add", site.Path}, "my-site is the repository at "+site.Path+", branch main")
	if v := s.data("projects", "add", site.Path, "my-site"); in(v, "name") != "my-site" {
		t.Errorf("projects add: %v", v)
	}
	if v := s.data("projects").([]any); len(v) != 2 {
		t.Errorf("projects: %v", v)
	}
	s.says([]string{"pair"}, "Send this to the bot within 10 minutes; ", "/pair ")
	if v := s.data("pair", "--role", "owner"); in(v, "role") != "owner" || in(v, "code") == nil {
		t.Errorf("pair: %v", v)
	}
	sessionCommands(s, repo)
	s.says([]string{"clean", "--dry-run"}, "worktree")
	if _, ok := s.data("clean", "--dry-run").([]any); !ok {
		t.Error("clean --json is no list")
	}
	completion(s)

	names := offered(t, p)
	p.Stop()
	s.says([]string{"migrate"}, "0 migrations applied; the schema is at version ")
	if v := s.data("migrate"); in(v, "applied") != 0.0 {
		t.Errorf("migrate: %v", v)
	}
	for _, name := range names {
		if !s.used[name] {
			t.Errorf("`pulse %s` is offered and not called here", name)
		}
	}
}

var startedLine = regexp.MustCompile(`Started ([0-9a-f]{8}) in my-app on branch (\S+)`)

// sessionCommands takes one session through every command that speaks of it.
func sessionCommands(s *shell, repo *e2etest.Repository) {
	s.t.Helper()
	s.says([]string{"list"}, "No sessions. Start one: pulse start")
	m := startedLine.FindStringSubmatch(s.run(0, "start", "--project", "my-app", "--max-iterations", "7", "find", "the", "way"))
	if m == nil {
		s.t.Fatal("start does not say what it started")
	}
	id, branch := m[1], m[2]
	s.p.AwaitSession(id, pulse.SessionBlocked)
	s.says([]string{"list"}, "ID", "STATUS", "GOAL", id, "? blocked", "1/7", "my-app", "find the way")
	if v := s.data("list", "--status", "blocked,failed", "--project", "my-app", "--limit", "3").([]any); len(v) != 1 || in(v[0], "goal") != "find the way" {
		s.t.Errorf("list: %v", v)
	}
	if v := s.data("list", "--status", "complete").([]any); len(v) != 0 {
		s.t.Errorf("list: %v", v)
	}
	s.says([]string{"show", id}, "? blocked", "iteration 1 of 7", "goal     find the way", "branch "+branch, "1. ", "BLOCKED",
		"Waiting for you: Left or right?", "→ pulse answer "+id)
	if v := s.data("show", id); in(v, "session.status") != "blocked" || in(v, "gate.status") != "open" {
		s.t.Errorf("show: %v", v)
	}
	s.says([]string{"show", id, "--prompt"}, "find the way")
	s.says([]string{"logs", id}, "▶ find the way", "● iteration 1 of 7", "· write_file  one.txt", "BLOCKED", "? blocked: Left or right?", "→ pulse answer "+id)
	s.says([]string{"logs", "-f", id}, "▶ find the way", "? blocked")
	frames := strings.Split(strings.TrimSpace(s.run(0, "logs", id, "--json")), "\n")
	for _, line := range frames {
		if !json.Valid([]byte(line)) {
			s.t.Errorf("logs --json: %s", line)
		}
	}
	if len(frames) < 8 {
		s.t.Errorf("logs --json prints %d frames", len(frames))
	}

	s.says([]string{"answer", id, "to", "the", "left"}, "● "+id+": running")
	s.p.AwaitSession(id, pulse.SessionComplete)
	if got := repo.File(branch, "two.txt"); got != "to the left" {
		s.t.Errorf("the agent was told %q", got)
	}
	story := s.run(0, "logs", id)
	oneAfterTheOther(s.t, story, "? blocked", "→ pulse answer "+id+" \"your answer\"", "! decided by ", "› to the left", "✓ complete", "→ pulse say "+id)
	if strings.Contains(story, "› find the way") {
		s.t.Errorf("the goal is told twice:\n%s", story)
	}
	s.says([]string{"show", id}, "2 commits,", "1 file ", "→ pulse say "+id)
	s.refused(4, []string{"answer", id, "again"}, "\n  → ", "`pulse say SESSION ...`")
	s.refused(4, []string{"pause", id}, "complete")
	s.says([]string{"say", id, "and", "back"}, id+": running")
	s.p.AwaitSession(id, pulse.SessionBlocked)
	if v := s.data("resume", id, "ask", "the", "map"); in(v, "status") != "running" {
		s.t.Errorf("resume: %v", v)
	}
	s.p.AwaitSession(id, pulse.SessionComplete)

	held, _ := in(s.data("start", "--project", "my-app", "--branch", "topic/hold", "hold on"), "id").(string)
	s.p.AwaitHeld("work")
	s.says([]string{"say", held, "mind the gap"}, "running")
	s.says([]string{"pause", held}, "running, pauses after this iteration")
	s.p.Open("work")
	s.p.AwaitSession(held, pulse.SessionPaused)
	s.says([]string{"resume", held}, "● "+held[len(held)-8:]+": running")
	s.says([]string{"abort", held}, "⊗ "+held[len(held)-8:]+": aborted")
	s.refused(4, []string{"resume", held}, "aborted")
	if !strings.Contains(repo.Git("branch", "--list", "topic/hold"), "topic/hold") {
		s.t.Error("the branch that was asked for is not there")
	}
}

// completion wants scripts that the shells accept, and commands and flags completed.
func completion(s *shell) {
	s.t.Helper()
	for _, sh := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := s.run(0, "completion", sh); !strings.Contains(out, "__complete") {
			s.t.Errorf("completion %s: %s", sh, out)
		}
	}
	if bash, err := exec.LookPath("bash"); err == nil {
		script := s.run(0, "completion", "bash") + "\ncomplete -p pulse\n"
		cmd := exec.CommandContext(e2etest.Context(s.t), bash, "--norc", "-s")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "__start_pulse pulse") {
			s.t.Errorf("bash does not take its completion: %v\n%s", err, out)
		}
	}
	out, _, code := s.p.Run("__complete", "st")
	if code != 0 || !strings.HasPrefix(out, "start\t") {
		s.t.Errorf("completion of `st`: %s", out)
	}
	if out, _, _ := s.p.Run("__complete", "start", "--max"); !strings.HasPrefix(out, "--max-iterations") {
		s.t.Errorf("completion of `start --max`: %s", out)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	repo, other := e2etest.Repo(t), e2etest.Repo(t)
	p := e2etest.New(t, e2etest.Options{Projects: one(repo), Script: `
sessions:
  ask: {iterations: [[{say: "Which one?"}, {signal: BLOCKED}]]}
  break: {iterations: [[{fail: {error: "the model is gone"}}]]}
  crash: {iterations: [[{crash: {code: 3}}]]}
iterations: [[{write: {path: a.txt, content: a}}, {say: Done.}, {signal: COMPLETE}]]
`})
	s := &shell{t: t, p: p, used: map[string]bool{}}
	for _, args := range [][]string{{"list"}, {"show", "x"}, {"logs", "x"}, {"logs", "-f", "x"}, {"start", "--project", "my-app", "x"}, {"answer", "x", "y"},
		{"say", "x", "y"}, {"pause", "x"}, {"resume", "x"}, {"abort", "x"}, {"projects"}, {"projects", "add", repo.Path}, {"pair"}} {
		s.refused(6, args, "nothing runs at http://"+p.Addr, "→ start it with `pulse up`")
	}
	p.Up()
	for _, c := range []struct {
		code  int
		args  []string
		parts []string
	}{
		{2, []string{"nonsense"}, []string{"unknown command"}},
		{2, []string{"list", "--bogus"}, []string{"unknown flag: --bogus"}},
		{2, []string{"list", "-z"}, []string{"unknown shorthand flag"}},
		{2, []string{"list", "--limit", "many"}, []string{"invalid argument"}},
		{2, []string{"list", "--status", "sleeping"}, []string{`"sleeping" is no status`, "→ use one of: pending, "}},
		{2, []string{"show"}, []string{"accepts 1 arg(s)"}},
		{2, []string{"start"}, []string{"requires at least 1 arg"}},
		{2, []string{"start", "--project"}, []string{"flag needs an argument"}},
		{2, []string{"start", "--project", "my-app", "--max-iterations", "-1", "x"}, []string{"--max-iterations cannot be -1", "→ use a whole number"}},
		{2, []string{"start", "--project", "my-app", "--agent", "nobody", "x"}, []string{"nobody", "→ "}},
		{2, []string{"start", "--project", "other", "--path", "/", "x"}, []string{"/"}},
		{2, []string{"projects", "add", filepath.Join(p.Home, "nowhere")}, []string{"nowhere", "→ "}},
		{2, []string{"pair", "--role", "king"}, []string{"king"}},
		{2, []string{"pair"}, []string{"no bot to pair with", "→ configure a bot first: pulse init, or telegram.token"}},
		{2, []string{"show", ""}, []string{"the session is missing", "→ ", "`pulse list`"}},
		{2, []string{"logs", " "}, []string{"the session is missing"}},
		{2, []string{"abort", ""}, []string{"the session is missing"}},
		{2, []string{"pause", ".."}, []string{"the session is missing"}},
		{2, []string{"answer", "", "yes"}, []string{"the session is missing"}},
		{2, []string{"say", "", "yes"}, []string{"the session is missing"}},
		{2, []string{"resume", ""}, []string{"the session is missing"}},
		{2, []string{"list", "--config", "/nonexistent.yaml"}, []string{"/nonexistent.yaml"}},
		{2, []string{"daemon"}, []string{"a daemon of its own needs PostgreSQL", "→ set database_url"}},
		{3, []string{"show", "ffffffff"}, []string{"ffffffff", "pulse list"}},
		{3, []string{"logs", "-f", "ffffffff"}, []string{"ffffffff"}},
		{3, []string{"abort", "ffffffff"}, []string{"ffffffff"}},
		{4, []string{"projects", "add", other.Path, "my-app"}, []string{"my-app", repo.Path}},
	} {
		s.refused(c.code, c.args, c.parts...)
	}
	waiting(s)
	tokens(s)
}

// waiting shows the end of `start --wait` for each way in which a session comes to rest.
func waiting(s *shell) {
	s.t.Helper()
	start := func(goal string) []string { return []string{"start", "--wait", "--project", "my-app", goal} }
	s.says(start("do it"), "▶ do it", "● iteration 1 of 10", "COMPLETE Done.", "✓ complete")
	broken := s.run(1, start("break it")...)
	oneAfterTheOther(s.t, broken, "▶ break it", "✗ failed: the model is gone")
	if n := strings.Count(broken, "the model is gone"); n != 1 {
		s.t.Errorf("the reason is told %d times:\n%s", n, broken)
	}
	oneAfterTheOther(s.t, s.run(1, start("crash it")...), "✗ failed: ", "ended with exit code 3")
	oneAfterTheOther(s.t, s.run(7, start("ask me")...), "● iteration 1", "? blocked: Which one?", "→ pulse answer ")
	var last wire.Frame
	for _, line := range strings.Split(strings.TrimSpace(s.run(7, append(start("ask me"), "--json")...)), "\n") {
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			s.t.Errorf("start --wait --json: %v: %s", err, line)
		}
	}
	if last.Type != string(pulse.EventGateOpened) {
		s.t.Errorf("the last frame that --wait prints is %+v", last)
	}
}

// tokens shows what each broken token file means.
func tokens(s *shell) {
	s.t.Helper()
	file := filepath.Join(s.p.DataDir, "token")
	right, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	id := string(s.p.AwaitSession(string(blockedSession(s)), pulse.SessionBlocked).Session.ID)
	write := func(content string, mode os.FileMode) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			s.t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			s.t.Fatal(err)
		}
	}
	write(strings.Repeat("0", 64), 0o600)
	for _, args := range [][]string{{"answer", id, "me"}, {"resume", id}, {"say", id, "me"}, {"pair"}, {"projects", "add", "/"}, {"list"}, {"pause", id}} {
		s.refused(5, args, "token")
	}
	if err := os.Remove(file); err != nil {
		s.t.Fatal(err)
	}
	s.refused(5, []string{"answer", id, "me"}, "token", "→ ")
	s.run(0, "list") // needs none on loopback
	write(string(right), 0o644)
	s.refused(2, []string{"list"}, "others may read the token file", "→ run `chmod 600")
	write("short", 0o600)
	s.refused(2, []string{"list"}, "is damaged", "→ remove it")
	write(string(right), 0o600)
	s.run(0, "answer", id, "me")
}

func blockedSession(s *shell) pulse.SessionID {
	s.t.Helper()
	for _, v := range s.data("list", "--status", "blocked").([]any) {
		return pulse.SessionID(in(v, "id").(string))
	}
	s.t.Fatal("no session is blocked")
	return ""
}

func TestServeAndDaemonAreTwoProcesses(t *testing.T) {
	t.Parallel()
	database := dbtest.NewPostgres(t).Config.URL
	repo := e2etest.Repo(t)
	front := e2etest.Start(t, e2etest.Options{Command: []string{"serve"}, Database: database, Projects: one(repo)})
	s := &shell{t: t, p: front, used: map[string]bool{}}
	m := startedLine.FindStringSubmatch(s.run(0, "start", "--project", "my-app", "write it down"))
	if m == nil {
		t.Fatal("start does not say what it started")
	}
	e2etest.Await(t, "the task of the session", func() bool {
		return front.Count("SELECT count(*) FROM inbox_tasks WHERE status = 'queued'") == 1
	})
	hands := e2etest.Start(t, e2etest.Options{Command: []string{"daemon"}, Database: database, Projects: one(repo)})
	done := front.AwaitSession(m[1], pulse.SessionComplete)
	if got := repo.Subjects(m[2]); len(got) != 1 || done.Session.TotalCommits != 1 {
		t.Errorf("commits: %q", got)
	}
	for dir, want := range map[string]bool{front.DataDir: false, hands.DataDir: true} {
		if trees, _ := filepath.Glob(filepath.Join(dir, "worktrees", "*")); (len(trees) > 0) != want {
			t.Errorf("worktrees in %s: %q", dir, trees)
		}
	}
	if out := hands.Output(); strings.Contains(out, "Listening") {
		t.Errorf("the daemon listens: %s", out)
	}
	// The daemon hands over what it has when it goes; the next one goes on.
	hands.Stop()
	again := s.run(0, "say", m[1], "and more")
	if !strings.Contains(again, "running") {
		t.Errorf("say: %s", again)
	}
	hands.Up()
	front.AwaitSession(m[1], pulse.SessionComplete)
	if got := repo.Subjects(m[2]); len(got) != 2 {
		t.Errorf("commits: %q", got)
	}
}

func TestStartFindsTheProject(t *testing.T) {
	t.Parallel()
	repo, site := e2etest.Repo(t), e2etest.RepoAt(t, filepath.Join(t.TempDir(), "my-site"))
	site.Write("pages/deep/index.html", "<p>hello</p>\n")
	p := e2etest.Start(t, e2etest.Options{})
	start := func(dir string, args ...string) (out, errs string, code int) {
		return p.Invoke(e2etest.Invocation{Args: append([]string{"start"}, args...), Dir: dir})
	}
	for _, c := range []struct {
		dir   string
		args  []string
		code  int
		words string
	}{
		{p.Home, []string{"x"}, 2, "there is no project yet"},
		{site.Path + "/pages/deep", []string{"tell", "a", "story"}, 0, " in my-site on branch pulse/tell-a-story-"},
		{p.Home, []string{"x"}, 0, " in my-site on branch pulse/x-"}, // the only one there is
		{p.Home, []string{"--path", repo.Path, "x"}, 0, " in my-app on branch "},
		{p.Home, []string{"x"}, 2, "it is not clear which project is meant"},
		{site.Path, []string{"x"}, 0, " in my-site on branch "},
		{repo.Path, []string{"--project", "my-site", "x"}, 0, " in my-site on branch "},
		{p.Home, []string{"--project", "nobodys", "x"}, 3, "there is no project"},
	} {
		out, errs, code := start(c.dir, c.args...)
		if code != c.code || !strings.Contains(out+errs, c.words) {
			t.Errorf("start %q in %s: exit code %d\n%s%s", c.args, c.dir, code, out, errs)
		}
	}
	for _, s := range sessionsOf(t, p) {
		p.AwaitSession(string(s.ID), pulse.SessionComplete)
	}
}

func sessionsOf(t *testing.T, p *e2etest.Pulse) []wire.Session {
	t.Helper()
	list, err := p.Client().List(e2etest.Context(t), client.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{})
	l, err := net.Listen("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, errs, code := p.Run("up")
	if code != 6 || !strings.Contains(errs, "cannot listen on "+p.Addr) || !strings.Contains(errs, "→ set http.listen (PULSE_HTTP_LISTEN), or end the program that has it") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

func TestServeSpeaksOfNoAgent(t *testing.T) {
	t.Parallel()
	p := e2etest.Start(t, e2etest.Options{Command: []string{"serve"}})
	if out := p.Output(); strings.Contains(out, "Agent") {
		t.Errorf("serve runs no agent:\n%s", out)
	}
}

func TestUpTellsOfACommandThatCannotRun(t *testing.T) {
	t.Parallel()
	env := append([]string{"PULSE_COMMAND=/nonexistent --now"}, programs(t, true, nil))
	p := e2etest.Start(t, e2etest.Options{Agent: "-", Env: env, Projects: one(e2etest.Repo(t))})
	oneAfterTheOther(t, p.Output(), "Agent: command cannot run yet: ", "/nonexistent", "→ set ", "PULSE_COMMAND")
	s, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "x", Agent: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	p.AwaitSession(string(s.ID), pulse.SessionFailed)
	out, _, _ := p.Run("logs", string(s.ID))
	oneAfterTheOther(t, out, "find claude: executable file not found", "→ npm install -g @anthropic-ai/claude-code")
}

func TestADataDirectoryIsClosedToOthers(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{})
	if err := os.MkdirAll(p.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.Up()
	if info, err := os.Stat(p.DataDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// What the command line starts is told in the terminal of `pulse up`, and so is what its end leaves to the next start.
func TestTheTerminalTellsWhatGoesOn(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{Projects: one(e2etest.Repo(t)), Config: "daemon: {shutdown_grace: 2s}\n", Script: `
sessions:
  ask: {iterations: [[{say: "Which one?"}, {signal: BLOCKED}]]}
  hold: {iterations: [[{run: '` + e2etest.Hold("work") + `'}, {signal: COMPLETE}]]}
`})
	s := &shell{t: t, p: p, used: map[string]bool{}}
	term := p.Terminal("up")
	term.Shows("Listening on")
	s.run(0, "start", "--project", "my-app", "ask me")
	term.Shows("⏸️ [my-app] Blocked: Which one?")
	s.run(0, "start", "--project", "my-app", "hold on")
	p.AwaitHeld("work")
	term.EndOfInput()
	term.Shows("Waiting up to 2 s for the agent at work; press Ctrl-C again to stop now.")
	if code := term.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	oneAfterTheOther(t, term.Screen(), "Waiting up to 2 s", "Waiting for you: ", " Which one?", "Goes on at the next start: ", " hold on, iteration 1/10")
	again := p.Terminal("up")
	again.Shows("Going on: ")
	p.Open("work")
	again.Shows("✅ [my-app] Session complete")
	again.EndOfInput()
	if code := again.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	oneAfterTheOther(t, again.Screen(), "Listening on", "Waiting for you: ", " Which one?", "Going on: ", " hold on, iteration 1/10")
}

func TestCtrlCEndsTheWaitForAnAgent(t *testing.T) {
	t.Parallel()
	p := e2etest.New(t, e2etest.Options{Projects: one(e2etest.Repo(t)), Config: "daemon: {shutdown_grace: 5m}\n", Script: `
iterations: [[{ignore_sigterm: true}, {run: 'trap : TERM INT; ` + e2etest.Hold("work") + `'}, {hang: true}]]
`})
	term := p.Terminal("up")
	term.Shows("Listening on")
	if _, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "never end"}); err != nil {
		t.Fatal(err)
	}
	p.AwaitHeld("work")
	term.EndOfInput() // Ctrl-D, so that the Ctrl-C is the first signal
	term.Shows("Waiting up to 5 minutes for the agent at work")
	term.Type("\x03")
	ends(t, term, -1, 5*time.Second)
	e2etest.Await(t, "the end of the agent", func() bool { return len(p.Processes()) == 0 })
}

func TestTheListOfCommandsIsThatOfTheDocumentation(t *testing.T) {
	t.Parallel()
	root, err := e2etest.Root()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, m := range regexp.MustCompile("(?m)^\\| `pulse ([a-z]+)").FindAllStringSubmatch(string(doc), -1) {
		described = append(described, m[1])
	}
	names := offered(t, e2etest.New(t, e2etest.Options{}))
	for _, name := range names {
		if name != "help" && !slices.Contains(described, name) {
			t.Errorf("docs/commands.md does not describe `pulse %s`", name)
		}
	}
	for _, name := range described {
		if !slices.Contains(names, name) {
			t.Errorf("docs/commands.md describes `pulse %s`, which is not there", name)
		}
	}
}
