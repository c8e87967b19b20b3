package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"pulseloop/agent/cli"
	"pulseloop/configs"
	"pulseloop/internal/proc"
	"pulseloop/internal/scratch"
	"pulseloop/loop"
	"pulseloop/pulse"
)

// demoGoal is what the demonstration asks for.
const demoGoal = "Add a health endpoint with a test, and document it."

func newDemo(o *options) *cobra.Command {
	var keep bool
	var goal, agent string
	cmd := &cobra.Command{
		Use: "demo", Short: "Show a goal become a commit, in a sample project of its own", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.demonstrate(cmd.Context(), goal, agent, keep) },
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the sample project afterwards")
	cmd.Flags().StringVar(&goal, "goal", demoGoal, "the goal")
	cmd.Flags().StringVar(&agent, "agent", "", "agent (default: the first that is ready, else scripted)")
	return cmd
}

// demonstrate runs everything in one process over a sample project, and one
// goal through it.
func (o *options) demonstrate(ctx context.Context, goal, agent string, keep bool) (err error) {
	own, err := scratch.New("pulse-demo-")
	if err != nil {
		return fmt.Errorf("make the demonstration's directory: %w", err)
	}
	defer func() {
		if keep {
			_ = own.Keep()
			return
		}
		_ = own.Remove()
	}()
	dir := own.Path
	repo := filepath.Join(dir, "sample")
	if err := sampleProject(ctx, repo); err != nil {
		return err
	}
	cfg, err := o.demoConfig(dir, repo, agent)
	if err != nil {
		return err
	}
	name, probe := defaultAgent(ctx, cfg, backends(cfg), "scripted")
	o.sayDemo(repo, name, probe, keep)
	a, err := assemble(ctx, o, cfg, name, parts{front: true, agents: true, console: true})
	if err != nil {
		return err
	}
	defer a.Close()
	project, err := a.store.ProjectByName(ctx, "sample")
	if err != nil {
		return err
	}
	o.printf("\n› %s\n", goal)
	s, err := a.actions.Start(ctx, loop.StartRequest{Actor: loop.Actor{Origin: pulse.OriginCLI, Name: userName()},
		Project: project, Goal: goal, ConsoleID: consoleID})
	if err != nil {
		return err
	}
	watch := &demoWatch{o: o, a: a, id: s.ID, repo: repo, stay: o.tty}
	a.runs["watch"] = watch.run
	if err := a.Run(ctx); err != nil {
		return err
	}
	return watch.verdict()
}

// demoConfig is everything on defaults, in a directory of its own, on a port
// that is free.
func (o *options) demoConfig(dir, repo, agent string) (configs.Config, error) {
	env := func(name string) (string, bool) {
		switch name {
		case "PULSE_CONFIG", "PULSE_DATABASE_URL", "PULSE_TELEGRAM_TOKEN", "PULSE_TELEGRAM_WEBHOOK_URL", "PULSE_DATA_DIR":
			return "", false // the demonstration touches nothing that is in use
		}
		return o.env(name)
	}
	cfg, err := configs.Load(os.DevNull, env)
	if err != nil {
		return cfg, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return cfg, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	cfg.HTTP = configs.HTTP{Listen: l.Addr().String()}
	if _, set := env("PULSE_HTTP_LISTEN"); set {
		cfg.HTTP.Listen, _ = env("PULSE_HTTP_LISTEN")
	}
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.Projects = map[string]configs.Project{"sample": {Path: repo, BaseBranch: "main"}}
	cfg.Agent = agent
	return cfg, cfg.Validate()
}

func (o *options) sayDemo(repo, name string, p cli.Probe, keep bool) {
	note := " (removed at the end; --keep keeps it)"
	if keep {
		note = ""
	}
	o.printf("pulse %s\nSample project: %s%s\n", version, repo, note)
	if name == "scripted" {
		o.printf("Agent: scripted (no agent CLI is installed and logged in here, so a script plays its part)\n")
		return
	}
	o.printf("Agent: %s %s\n", p.Name, p.Version)
}

// sampleProject makes a small repository with one commit.
func sampleProject(ctx context.Context, repo string) error {
	files := map[string]string{
		"README.md": "# sample\n\nA tiny HTTP server.\n",
		"go.mod":    "module sample\n\ngo 1.22\n",
		"main.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"net/http\"\n)\n\nfunc main() {\n\thttp.HandleFunc(\"/\", func(w http.ResponseWriter, r *http.Request) {\n" +
			"\t\tfmt.Fprintln(w, \"hello\")\n\t})\n\thttp.ListenAndServe(\"127.0.0.1:8080\", nil)\n}\n",
	}
	if err := os.MkdirAll(repo, 0o755); err != nil {
		return fmt.Errorf("make the sample project: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(repo, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("make the sample project: %w", err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."},
		{"-c", "user.name=pulse demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "feat: a tiny server"}} {
		if err := git(ctx, repo, args...); err != nil {
			return err
		}
	}
	return nil
}

// git runs git in a directory, without the user's own settings.
func git(ctx context.Context, dir string, args ...string) error {
	env := proc.BaseEnv("GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	_, exit, err := proc.Output(ctx, proc.Spec{Path: "git", Args: args, Dir: dir, Env: env})
	if err != nil {
		return &pulse.Error{Code: pulse.CodeInvalid, Message: "git cannot be run", Hint: "install git 2.39.4 or newer", Err: err}
	}
	if exit.Code != 0 {
		return fmt.Errorf("git %s: exit code %d: %s", args[0], exit.Code, exit.Stderr)
	}
	return nil
}

// demoWatch waits for the end of the demonstration's session.
type demoWatch struct {
	o    *options
	a    *app
	id   pulse.SessionID
	repo string
	stay bool
	end  pulse.Session
}

func (w *demoWatch) run(ctx context.Context) error {
	wakes, stop := w.a.store.Wakes(pulse.TopicNotices)
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s, err := w.a.store.Session(ctx, w.id)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && resting(s.Status) && w.delivered(ctx) {
			w.end = s
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wakes:
		case <-tick.C:
		}
	}
	w.showCommit(ctx)
	if w.stay && w.end.Status != pulse.SessionAborted {
		w.a.say("\nThe sample project is yours to play with: type another goal, /help, or Ctrl-D to end.")
		<-ctx.Done()
		return nil
	}
	return errEnd
}

// delivered reports whether everything has been said.
func (w *demoWatch) delivered(ctx context.Context) bool {
	next, err := w.a.store.NextNoticeAt(ctx)
	return err == nil && next.IsZero()
}

// showCommit shows what the person's repository has gained.
func (w *demoWatch) showCommit(ctx context.Context) {
	out, exit, err := proc.Output(ctx, proc.Spec{Path: "git", Dir: w.repo, Env: proc.BaseEnv("GIT_CONFIG_GLOBAL=/dev/null"),
		Args: []string{"log", "--oneline", "--stat", "main.." + w.end.BranchName}})
	if err == nil && exit.Code == 0 {
		w.a.say("\n$ git log --stat main..%s\n%s", w.end.BranchName, out)
	}
}

// verdict is the demonstration's own outcome.
func (w *demoWatch) verdict() error {
	switch {
	case w.end.Status == pulse.SessionComplete || w.stay:
		return nil
	case w.end.ID == "":
		return exitError(exitFailure) // interrupted before the end
	}
	return fmt.Errorf("the demonstration's session is %s: %s", w.end.Status, w.end.StatusReason)
}
