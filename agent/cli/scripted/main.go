package scripted

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"pulseloop/agent/cli"
)

// maxPrompt bounds how much of standard input is read.
const maxPrompt = 16 << 20

// The statuses of the program, beside those a script asks for.
const (
	statusMisuse      = 2
	statusInterrupted = 130
)

// Main is the program: it plays the script for this iteration in the working
// directory. env is the whole environment; args must be empty. What is wrong
// goes to stderr with a status other than 0, and nothing is guessed.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	err := play(ctx, args, stdin, stdout, stderr, env)
	var exit exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case ctx.Err() != nil:
		return statusInterrupted
	}
	fmt.Fprintf(stderr, "scripted agent: %v\n", err)
	return statusMisuse
}

// exitStatus ends the program as a script says.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func play(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: the script is named by %s", args[0], EnvScript)
	}
	s, err := load(lookup(env, EnvScript))
	if err != nil {
		return err
	}
	iteration := 1
	if v := lookup(env, cli.EnvIteration); v != "" {
		if iteration, err = strconv.Atoi(v); err != nil {
			return fmt.Errorf("%s is %q, which is no number", cli.EnvIteration, v)
		}
	}
	var prompt []byte
	if !s.skipPrompt {
		if prompt, err = io.ReadAll(io.LimitReader(stdin, maxPrompt)); err != nil {
			return fmt.Errorf("read prompt: %w", err)
		}
	}
	about := readPrompt(string(prompt), iteration)
	steps, err := s.pick(about.goal, iteration)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(".")
	if err != nil {
		return fmt.Errorf("open working directory: %w", err)
	}
	defer root.Close()
	p := &player{about: about, root: root, env: env, stdout: stdout, stderr: stderr}
	return p.play(ctx, steps, lookup(env, cli.EnvSessionID))
}

// lookup gives the last value of a variable, as the kernel's users do.
func lookup(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}
