package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"pulseloop/agent/worktree"
	"pulseloop/bot/telegram"
	"pulseloop/configs"
	"pulseloop/pulse"
)

// setup is what init asks for.
type setup struct {
	token, api, repo, agent, file string
	yes, force                    bool
}

func newInit(o *options) *cobra.Command {
	var s setup
	cmd := &cobra.Command{
		Use: "init", Short: "Set everything up: bot, repository, agent; writes pulse.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.initialise(cmd.Context(), s) },
	}
	f := cmd.Flags()
	f.StringVar(&s.token, "telegram-token", "", "token from @BotFather, or \"none\" (better: PULSE_TELEGRAM_TOKEN, which does not show in the process list)")
	f.StringVar(&s.api, "telegram-api-url", "", "another Bot API server")
	f.StringVar(&s.repo, "repo", "", "repository (default: the one in the current directory)")
	f.StringVar(&s.agent, "agent", "", "agent CLI (default: the first that is ready)")
	f.StringVar(&s.file, "file", "", "file to write (default: the one that every command reads: --config, $PULSE_CONFIG, ./pulse.yaml if there, ~/.config/pulse/pulse.yaml)")
	f.BoolVar(&s.yes, "yes", false, "ask nothing: take the defaults")
	f.BoolVar(&s.force, "force", false, "replace a file that is there")
	return cmd
}

func (o *options) initialise(ctx context.Context, s setup) error {
	read, err := o.configFile()
	if err != nil {
		return err
	}
	if s.file == "" {
		s.file = read
	}
	if s.file, err = filepath.Abs(s.file); err != nil {
		return fmt.Errorf("find the configuration: %w", err)
	}
	if _, err := os.Stat(s.file); err == nil && !s.force {
		return pulse.Conflict(s.file+" is there already", "edit it, or run `pulse init --force` to replace it")
	}
	name, err := o.settle(ctx, &s)
	if ctx.Err() != nil {
		o.printf("\n")
		return exitError(exitInterrupted)
	}
	if err != nil {
		return err
	}
	if err := writeSetup(s, name); err != nil {
		return err
	}
	if _, err := configs.Load(s.file, o.env); err != nil {
		return fmt.Errorf("check what was written: %w", err)
	}
	up := "pulse up"
	if s.file != read || o.config != "" {
		up += " --config " + s.file // nothing else would find it
	}
	o.printf("Wrote %s\n\nNow run:\n\n    %s\n", s.file, up)
	return nil
}

// configFile is the file that every other command reads, or would read if it
// were there: writing another one would change nothing.
func (o *options) configFile() (string, error) {
	if o.config != "" {
		return filepath.Abs(o.config)
	}
	if f, ok := o.env("PULSE_CONFIG"); ok && f != "" {
		return filepath.Abs(f)
	}
	if _, err := os.Stat("pulse.yaml"); err == nil {
		return filepath.Abs("pulse.yaml")
	}
	home, _ := o.env("HOME")
	return filepath.Abs(configs.Home(o.env, home))
}

// settle asks for everything, and gives the project's name. Nothing is written yet.
func (o *options) settle(ctx context.Context, s *setup) (name string, err error) {
	ask := &asker{o: o, lines: bufio.NewScanner(o.in), yes: s.yes}
	if err := o.askToken(ctx, ask, s); err != nil {
		return "", err
	}
	if name, err = o.askRepo(ctx, ask, s); err != nil {
		return "", err
	}
	return name, o.chooseAgent(ctx, s)
}

// asker asks one question after the other.
type asker struct {
	o     *options
	lines *bufio.Scanner
	yes   bool
}

// ask waits for an answer or the end of ctx. A read cannot be taken back: its
// goroutine then ends with the program. An input that is over answers
// nothing, not even with the defaults, unless somebody has said so.
func (a *asker) ask(ctx context.Context, question, otherwise string) (string, error) {
	if a.yes {
		return otherwise, nil
	}
	if otherwise != "" {
		question += " [" + otherwise + "]"
	}
	a.o.printf("%s: ", question)
	answered := make(chan bool, 1)
	go func() { answered <- a.lines.Scan() }()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case answer := <-answered:
		if !answer {
			a.o.printf("\n")
			return "", pulse.Invalid("nobody answers: the input is over, and nothing was written",
				"run `pulse init` in a terminal, or use --yes to take the defaults")
		}
	}
	if t := strings.TrimSpace(a.lines.Text()); t != "" {
		return t, nil
	}
	return otherwise, nil
}

// askToken gets a bot token that works, or none.
func (o *options) askToken(ctx context.Context, a *asker, s *setup) error {
	if s.token == "" {
		s.token, _ = o.env("PULSE_TELEGRAM_TOKEN")
	}
	if s.api == "" {
		s.api, _ = o.env("PULSE_TELEGRAM_API_URL")
	}
	given := s.token != ""
	for {
		if !given {
			var err error
			if s.token, err = a.ask(ctx, "Telegram bot token (make a bot with @BotFather; empty for none)", ""); err != nil {
				return err
			}
		}
		if s.token == "" || s.token == "none" {
			s.token = ""
			o.printf("No bot: goals come from the terminal and the API.\n")
			return nil
		}
		name, err := botName(ctx, s.token, s.api)
		switch {
		case err == nil:
			o.printf("Bot: @%s\n", name)
			return nil
		case pulse.CodeOf(err) == pulse.CodeUnavailable:
			o.printf("Telegram is out of reach, so the token could not be tried; it is kept.\n")
			return nil
		case given || a.yes:
			return err
		}
		report(o.out, err)
	}
}

func botName(ctx context.Context, token, api string) (string, error) {
	c, err := telegram.New(telegram.Config{Token: token, APIURL: api, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", err
	}
	return c.Check(ctx)
}

// askRepo finds the repository that goals are for.
func (o *options) askRepo(ctx context.Context, a *asker, s *setup) (name string, err error) {
	given, question, found := s.repo != "", "Repository to work on (empty for none yet)", ""
	if !given {
		here, err := os.Getwd()
		if err == nil {
			found, _, _ = worktree.CheckRepo(ctx, "", here) // none here: the question has no default
		}
		if found != "" {
			question = "Repository to work on (\"none\" for none yet)"
		}
	}
	for {
		if !given {
			if s.repo, err = a.ask(ctx, question, found); err != nil {
				return "", err
			}
			if s.repo == "none" {
				s.repo = ""
			}
		}
		if s.repo == "" {
			o.printf("No repository yet: add one with `pulse projects add PATH`.\n")
			return "", nil
		}
		if home, ok := o.env("HOME"); ok && strings.HasPrefix(s.repo, "~/") {
			s.repo = filepath.Join(home, s.repo[2:])
		}
		abs, err := filepath.Abs(s.repo)
		if err != nil {
			return "", fmt.Errorf("find %s: %w", s.repo, err)
		}
		root, branch, err := worktree.CheckRepo(ctx, "", abs)
		if err == nil {
			s.repo = root
			o.printf("Project: %s, at %s, branch %s\n", nameFor(root), root, branch)
			return nameFor(root), nil
		}
		if given || a.yes {
			return "", err
		}
		report(o.out, err)
	}
}

// chooseAgent takes the agent CLI that is there. None is no failure: what is
// missing is said, with the fix.
func (o *options) chooseAgent(ctx context.Context, s *setup) error {
	cfg, err := configs.Load(os.DevNull, o.env)
	if err != nil {
		return unusable(err)
	}
	all := backends(cfg)
	if s.agent == "" {
		name, p := defaultAgent(ctx, cfg, all, "")
		if name != "" && p.Ready() {
			o.printf("Agent: %s %s\n", p.Name, p.Version)
			return nil
		}
		for _, n := range preference {
			if n == "command" && !hasCommand(cfg) {
				continue
			}
			p := all[n].Probe(ctx)
			o.printf("Agent %s is not ready: %s\n  → %s\n", n, p.Problem, p.Fix)
		}
		o.printf("Any other program that reads a prompt can be the agent too.\n  → set PULSE_COMMAND to it\n")
		return nil
	}
	b, ok := all[s.agent]
	if !ok {
		return pulse.Invalid(fmt.Sprintf("there is no agent %q", s.agent), "use one of: "+strings.Join(preference, ", "))
	}
	if p := b.Probe(ctx); !p.Ready() {
		o.printf("Agent %s is not ready yet: %s\n  → %s\n", p.Name, p.Problem, p.Fix)
	}
	return nil
}

// writeSetup writes the file, readable by its user alone.
func writeSetup(s setup, name string) error {
	doc := yaml.MapSlice{}
	if s.agent != "" {
		doc = append(doc, yaml.MapItem{Key: "agent", Value: s.agent})
	}
	if name != "" {
		doc = append(doc, yaml.MapItem{Key: "projects", Value: yaml.MapSlice{{Key: name, Value: yaml.MapSlice{{Key: "path", Value: s.repo}}}}})
	}
	if s.token != "" {
		t := yaml.MapSlice{{Key: "token", Value: s.token}}
		if s.api != "" {
			t = append(t, yaml.MapItem{Key: "api_url", Value: s.api})
		}
		doc = append(doc, yaml.MapItem{Key: "telegram", Value: t})
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if len(doc) == 0 {
		text = nil
	}
	head := "# Written by `pulse init`. Every key is shown in configs/pulse.example.yaml of the source.\n"
	return replaceFile(s.file, append([]byte(head), text...))
}

// replaceFile puts a file in place of another at once. It may hold a token,
// so that it is never readable by others, whatever the old one was.
func replaceFile(file string, content []byte) error {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the directory of the configuration: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".pulse-*.yaml") // with mode 0600
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}
