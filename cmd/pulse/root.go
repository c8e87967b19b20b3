package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"pulseloop/configs"
	"pulseloop/pulse"
)

// terminal is where a command reads and writes.
type terminal struct {
	in    io.Reader
	out   io.Writer
	err   io.Writer
	tty   bool // out is a terminal, and in too
	width func() int
	env   configs.Env
	// atOnce makes the next Ctrl-C end the program without an order of things.
	atOnce func()
}

func systemTerminal() *terminal {
	t := &terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv, atOnce: func() {}}
	t.tty = term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
	t.width = func() int {
		w, _, err := term.GetSize(int(os.Stdout.Fd()))
		if err != nil || w < 20 {
			return 80
		}
		return w
	}
	return t
}

// options are the flags that every command has.
type options struct {
	*terminal
	config string
	json   bool
}

// load reads the configuration; what is wrong with it is the user's to fix.
func (o *options) load() (configs.Config, error) {
	c, err := configs.Load(o.config, o.env)
	return c, unusable(err)
}

// unusable tells what is wrong with a configuration.
func unusable(err error) error {
	if err == nil {
		return nil
	}
	return &pulse.Error{Code: pulse.CodeInvalid, Message: "the configuration cannot be used:\n" + err.Error(),
		Hint: "pulse.example.yaml shows every key; `pulse doctor` checks the whole set-up"}
}

// logger writes to standard error as the configuration says.
func (o *options) logger(c configs.Log, redact func(string) string) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // validated with the configuration
	h := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case string:
			a.Value = slog.StringValue(redact(v))
		case error:
			a.Value = slog.StringValue(redact(v.Error()))
		}
		return a
	}}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(o.err, h))
	}
	return slog.New(slog.NewTextHandler(o.err, h))
}

// printJSON writes a value as indented JSON.
func (o *options) printJSON(v any) error {
	enc := json.NewEncoder(o.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// caution says on standard error what is no reason to stop.
func (o *options) caution(text string) { fmt.Fprint(o.err, "pulse: "+text) }

func (o *options) printf(format string, args ...any) { fmt.Fprintf(o.out, format, args...) }

// Exit codes. They are documented in docs/commands.md.
const (
	exitOK = iota
	exitFailure
	exitUsage
	exitNotFound
	exitConflict
	exitDenied
	exitUnavailable
	exitBlocked // start --wait: the session waits for a person

	exitInterrupted = 130 // as shells have it for SIGINT
)

var exitCodes = map[pulse.Code]int{
	pulse.CodeInvalid: exitUsage, pulse.CodeUnprocessed: exitUsage, pulse.CodeTooLarge: exitUsage,
	pulse.CodeNotFound: exitNotFound, pulse.CodeConflict: exitConflict,
	pulse.CodeUnauthorized: exitDenied, pulse.CodeForbidden: exitDenied,
	pulse.CodeUnavailable: exitUnavailable, pulse.CodeRateLimited: exitUnavailable,
}

// exitError ends the program with a code and no further words.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// run executes a command line and gives the exit code.
func run(ctx context.Context, t *terminal, args []string) int {
	o := &options{terminal: t}
	root := newRoot(o)
	root.SetArgs(args)
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.err)
	err := root.ExecuteContext(ctx)
	var code exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	return report(t.err, err)
}

// inCommands says in commands and flags what the API says in its own terms.
var inCommands = strings.NewReplacer(
	"GET /api/pulse lists them", "`pulse list` lists them",
	"GET /api/pulse/{id} shows the open gate", "`pulse show SESSION` shows the open gate",
	"say what else is to be done and it goes on as a follow-up", "`pulse say SESSION ...` lets it go on with what else is to be done",
	"it was decided already, or the session went on without it", "it was decided already, or the session went on without it; `pulse say SESSION ...` speaks to it all the same",
	"answer its question, or abort it", "`pulse answer SESSION ...` answers its question, `pulse abort SESSION` ends it",
	"resume it, or abort it", "`pulse resume SESSION` lets it go on, `pulse abort SESSION` ends it",
	"pause it or abort it first", "`pulse pause SESSION` pauses it, `pulse abort SESSION` ends it",
	"send Authorization: Bearer TOKEN; the token is in ", "set http.token (PULSE_HTTP_TOKEN), or read access to ",
	"send Authorization: Bearer TOKEN with the token in ", "set http.token (PULSE_HTTP_TOKEN) as the server has it; it may be in ",
	"give projectPath with the path of its repository", "give --path with its repository",
	"give projectPath to register one", "give --path to register one",
	"choose another projectName for ", "give another --project for ",
	"maxIterations", "--max-iterations", "projectName", "--project", "projectPath", "--path", "branchName", "--branch",
	"contextStrategy", "--context",
)

// report tells a person what went wrong and what to do.
func report(w io.Writer, err error) int {
	var e *pulse.Error
	if !errors.As(err, &e) {
		fmt.Fprintf(w, "pulse: %v\n", err)
		if isUsage(err) {
			return exitUsage
		}
		return exitFailure
	}
	fmt.Fprintf(w, "pulse: %s\n", inCommands.Replace(e.Message))
	if e.Hint != "" {
		fmt.Fprintf(w, "  → %s\n", inCommands.Replace(e.Hint))
	}
	if code, ok := exitCodes[e.Code]; ok {
		return code
	}
	if e.Err != nil {
		fmt.Fprintf(w, "  (%v)\n", e.Err)
	}
	return exitFailure
}

// isUsage recognises what the flag parser says; it has no error types.
func isUsage(err error) bool {
	s := err.Error()
	for _, p := range []string{"unknown command", "unknown flag", "unknown shorthand", "accepts ", "requires ", "flag needs an argument", "invalid argument", "required flag"} {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

func newRoot(o *options) *cobra.Command {
	root := &cobra.Command{
		Use:           "pulse",
		Short:         "Coding agents that work while you are away, and ask only when it matters",
		SilenceErrors: true, SilenceUsage: true,
		Version: version,
	}
	root.PersistentFlags().StringVar(&o.config, "config", "", "configuration file (default: $PULSE_CONFIG, ./pulse.yaml, ~/.config/pulse/pulse.yaml)")
	root.PersistentFlags().BoolVar(&o.json, "json", false, "print data as JSON")
	for _, make := range []func(*options) *cobra.Command{
		newUp, newServe, newDaemon, newDemo, newInit, newDoctor,
		newStart, newList, newShow, newLogs, newAnswer, newSay, newPause, newResume, newAbort,
		newProjects, newPair, newClean, newMigrate, newConfig, newVersion, newScripted,
	} {
		root.AddCommand(make(o))
	}
	return root
}
