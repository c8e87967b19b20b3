package proc

import (
	"os"
	"slices"
	"strings"
	"time"
)

// MarkerName is the environment variable that carries Spec.Marker.
const MarkerName = "PULSE_TASK_ID"

// runName is the environment variable by which one child's descendants are told from those of another child with the same
// marker, which another process may run: a task that was taken over has the marker of the run it replaces.
const runName = "PULSE_RUN"

const (
	defaultGrace     = 2 * time.Second
	defaultMaxOutput = 64 << 20
	stderrTail       = 64 << 10
)

// Spec is what to start. The zero value of every field but Path is usable.
type Spec struct {
	Path string // a name without a slash is looked up in this process's PATH
	Args []string
	Dir  string
	Env  []string // the whole environment; nothing is inherited. See BaseEnv

	// Stdin is fed to the child from a goroutine of its own and then closed.
	// Nil means nothing to read for Output, and a pipe for Start.
	Stdin []byte

	MaxOutput int64         // Output: most bytes of standard output; 0 is 64 MiB, more is an error
	Marker    string        // put into the environment as PULSE_TASK_ID, to find strays by
	Walls     Walls         // what the child is put behind
	Grace     time.Duration // how long each step of an escalation may take; 0 is 2 s
}

// Exit is how a child ended.
type Exit struct {
	Code   int    // -1 when a signal ended it
	Signal string // such as "SIGKILL"; empty when it exited by itself
	Err    error  // the end could not be observed, or did not come
	Stderr string // the last 64 KiB
}

// OK reports whether the child ended by itself with status 0.
func (e Exit) OK() bool { return e.Code == 0 && e.Signal == "" && e.Err == nil }

// baseNames are what a program needs to find itself at home. Anything that
// could carry a secret or change what a program loads has to be asked for.
var baseNames = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "TERM", "SHELL", "TZ"}

// BaseEnv gives the allow-listed part of this process's environment, followed
// by extra ("K=V"), which wins where both name the same variable.
func BaseEnv(extra ...string) []string {
	env := make([]string, 0, len(baseNames)+len(extra))
	for _, name := range baseNames {
		overridden := slices.ContainsFunc(extra, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		if v, ok := os.LookupEnv(name); ok && !overridden {
			env = append(env, name+"="+v)
		}
	}
	return append(env, extra...)
}

// environment is never nil: os/exec takes nil for "inherit everything".
func (s Spec) environment(run string) []string {
	env := make([]string, 0, len(s.Env)+2)
	for _, kv := range s.Env {
		if s.Marker != "" && (strings.HasPrefix(kv, MarkerName+"=") || strings.HasPrefix(kv, runName+"=")) {
			continue
		}
		env = append(env, kv)
	}
	if s.Marker != "" {
		env = append(env, MarkerName+"="+s.Marker, runName+"="+run)
	}
	return env
}

func (s Spec) grace() time.Duration {
	if s.Grace <= 0 {
		return defaultGrace
	}
	return s.Grace
}
