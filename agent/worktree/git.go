package worktree

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"pulseloop/internal/proc"
)

// settings stand on every command line, where no config file of any
// repository can outrank them. Each either switches off something that runs
// another program or fixes how content is read.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.alternateRefsCommand=true",
	"core.untrackedCache=false", "core.splitIndex=false", "core.sparseCheckout=false",
	"core.attributesFile=/dev/null", "core.excludesFile=/dev/null",
	"core.autocrlf=false", "core.safecrlf=false", "core.fileMode=true", "core.symlinks=true",
	"core.ignoreCase=false", "core.trustctime=true", "core.checkStat=default",
	"core.protectHFS=true", "core.protectNTFS=true", "core.useReplaceRefs=false",
	"advice.graftFileDeprecated=false", "core.editor=:", "core.pager=cat", "core.askPass=true", "credential.helper=",
	"diff.ignoreSubmodules=all", "submodule.recurse=false", "fetch.recurseSubmodules=false",
	"fetch.writeCommitGraph=false", "fetch.prune=false", "fetch.pruneTags=false",
	"core.fsync=committed,reference", "core.fsyncMethod=batch", "gc.auto=0", "maintenance.auto=false", "protocol.allow=never", "commit.gpgSign=false",
	"i18n.commitEncoding=UTF-8", "i18n.logOutputEncoding=UTF-8",
}

// runner starts git with an environment of our own.
type runner struct {
	path       string
	who, email string   // committer
	base       []string // settings as arguments
	env        []string
}

// call is one git command. gitDir is always given except while looking for a
// repository, so that git never discovers one an agent put in its way.
type call struct {
	gitDir, workTree, index string
	dir                     string // working directory; empty: gitDir
	stdin                   []byte
	max                     int64 // cap on output, 0: the default
	local                   bool  // may talk to another repository on this machine
	with                    []string
	args                    []string
}

// gitError is a git command that ended with a status other than 0.
type gitError struct {
	verb   string
	code   int
	stderr string
}

func (e *gitError) Error() string {
	return fmt.Sprintf("git %s: status %d: %s", e.verb, e.code, firstLines(e.stderr))
}

// firstLines keeps messages short: git says the cause first and advice later.
func firstLines(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 600 {
		s = s[:600] + "..."
	}
	return strings.ReplaceAll(s, "\n", "; ")
}

func newRunner(name, emptyHome, who, email string) (runner, error) {
	path, err := findGit(name)
	if err != nil {
		return runner{}, err
	}
	r := runner{path: path, who: who, email: email}
	for _, s := range settings {
		r.base = append(r.base, "-c", s)
	}
	for _, kv := range proc.BaseEnv() {
		if strings.HasPrefix(kv, "PATH=") || strings.HasPrefix(kv, "TMPDIR=") {
			r.env = append(r.env, kv)
		}
	}
	// HOME is empty because git reads ignore and attribute files there even
	// with its global config switched off.
	r.env = append(r.env,
		"HOME="+emptyHome, "XDG_CONFIG_HOME="+emptyHome, "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true", "GIT_EDITOR=:", "GIT_PAGER=cat",
		"GIT_PROTOCOL_FROM_USER=0", "GIT_GRAFT_FILE=/dev/null",
		"GIT_AUTHOR_NAME="+who, "GIT_AUTHOR_EMAIL="+email,
		"GIT_COMMITTER_NAME="+who, "GIT_COMMITTER_EMAIL="+email)
	return r, nil
}

// run gives what git printed, and its error output for the few who read it.
func (r runner) run(ctx context.Context, c call) ([]byte, string, error) {
	args := append([]string{}, r.base...)
	for _, s := range c.with {
		args = append(args, "-c", s)
	}
	env := append([]string{}, r.env...)
	if c.gitDir != "" {
		args = append(args, "--git-dir="+c.gitDir)
	}
	if c.workTree != "" {
		args = append(args, "--work-tree="+c.workTree)
	}
	if c.index != "" {
		env = append(env, "GIT_INDEX_FILE="+c.index)
	}
	// This variable outranks protocol.* of every config, also in the children.
	if c.local {
		env = append(env, "GIT_ALLOW_PROTOCOL=file")
	} else {
		env = append(env, "GIT_ALLOW_PROTOCOL=none")
	}
	out, exit, err := proc.Output(ctx, proc.Spec{
		Path: r.path, Args: append(args, c.args...), Dir: or(c.dir, c.gitDir),
		Env: env, Stdin: c.stdin, MaxOutput: c.max,
	})
	if err != nil {
		return nil, exit.Stderr, fmt.Errorf("run git %s: %w", c.args[0], err)
	}
	if exit.Code != 0 {
		return out, exit.Stderr, &gitError{verb: c.args[0], code: exit.Code, stderr: exit.Stderr}
	}
	return out, exit.Stderr, nil
}

// do runs git for its effect.
func (r runner) do(ctx context.Context, c call) error {
	_, _, err := r.run(ctx, c)
	return err
}

// text gives the trimmed output.
func (r runner) text(ctx context.Context, c call) (string, error) {
	out, _, err := r.run(ctx, c)
	return strings.TrimSpace(string(out)), err
}

// list gives the NUL-terminated records of the output.
func (r runner) list(ctx context.Context, c call) ([]string, error) {
	out, _, err := r.run(ctx, c)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// exitCode is git's status, 0 for no error and -1 for any other error.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var g *gitError
	if errors.As(err, &g) {
		return g.code
	}
	return -1
}

func stderrOf(err error) string {
	var g *gitError
	if errors.As(err, &g) {
		return g.stderr
	}
	return ""
}
