package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"pulseloop/internal/proc"
	"pulseloop/internal/scratch"
)

// Report is which walls hold on this machine.
type Report struct {
	Best Level            // the strongest that works; None if no other does
	Why  map[Level]string // of each level that does not work: the reason
	Gaps map[Level]string // of a level that works: what it leaves open here

	// Groups is why the kernel cannot keep the limits of all processes of a run
	// together, which are then looked at from time to time. Empty: it does.
	Groups string
}

// Works reports whether a level can be had.
func (r Report) Works(l Level) bool {
	_, failed := r.Why[l]
	return l == None || !failed && (l == Landlock || l == Bubblewrap)
}

// probeTime bounds the trial of one level. A laden machine is no reason to go
// without walls.
const probeTime = 20 * time.Second

// Probe tries each level with a command that reads a hidden file and writes
// where it may not. The answer of the first call that came to its end is kept.
func (s *Sandbox) Probe(ctx context.Context) (Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found != nil {
		return *s.found, nil
	}
	r := Report{Best: None, Why: map[Level]string{}, Gaps: map[Level]string{}}
	for _, l := range []Level{Landlock, Bubblewrap} {
		err := s.try(ctx, l)
		if l == Bubblewrap {
			// Where only bubblewrap may make name spaces it has to make all mounts,
			// and where it is installed with privileges it must not be kept from them.
			for _, less := range []*atomic.Bool{&s.uncovered, &s.second} {
				if err != nil && less.CompareAndSwap(false, true) && s.try(ctx, l) == nil {
					err = nil
				}
			}
		}
		if ctx.Err() != nil {
			return Report{}, fmt.Errorf("try the sandbox: %w", context.Cause(ctx))
		}
		if err != nil {
			r.Why[l] = err.Error()
			continue
		}
		r.Best = l
		if gap := gapOf(l); gap != "" {
			r.Gaps[l] = gap
		}
	}
	if err := proc.CheckGroups(); err != nil {
		r.Groups = err.Error()
	}
	s.found = &r
	return r, nil
}

// gapOf says what a level that works leaves open on this kernel.
func gapOf(l Level) string {
	abi := abiVersion()
	var open []string
	if l == Landlock {
		open = append(open, "change modes and times of files of its user", "write to its user's terminals")
		if !socketsScoped(abi) {
			open = append(open, "connect to sockets in the file system, such as a container service's")
		}
	}
	if !scoped(abi) {
		open = append(open, "connect to abstract sockets")
		if l == Landlock {
			open = append(open, "signal processes of its user")
		}
	}
	if len(open) == 0 {
		return ""
	}
	return "an agent can still " + strings.Join(open, ", and ")
}

// Resolve gives the level that is meant by a configured one. One that does not
// work is an error that names the reason; auto always has an answer.
func (s *Sandbox) Resolve(ctx context.Context, l Level) (Level, error) {
	if l == None {
		return None, nil
	}
	r, err := s.Probe(ctx)
	switch {
	case err != nil:
		return "", err
	case l == Auto || l == "":
		return r.Best, nil
	case r.Works(l):
		return l, nil
	case r.Why[l] == "":
		return "", fmt.Errorf("there is no sandbox %q: write %s, %s, %s or %s", l, Auto, None, Landlock, Bubblewrap)
	}
	return "", fmt.Errorf("the sandbox %s cannot be had: %s", l, r.Why[l])
}

// trial is a command whose exit code says which wall is missing.
const trial = `cat "$1" >/dev/null 2>&1 && exit 11
(: >"$2") 2>/dev/null && exit 12
(: >"$3/file" && : >"$TMPDIR/file") 2>/dev/null || exit 13
exit 10`

var trialFaults = map[int]string{
	11: "what was hidden could be read", 12: "what was not to be written could be", 13: "what was to be written could not be",
}

func (s *Sandbox) try(ctx context.Context, l Level) error {
	if l == Landlock {
		if err := checkLandlock(abiVersion()); err != nil {
			return err
		}
	}
	own, err := scratch.New("pulse-")
	if err != nil {
		return fmt.Errorf("try it: %w", err)
	}
	defer func() { _ = own.Remove() }()
	dir := own.Path
	secret, tree, open := filepath.Join(dir, "secret"), filepath.Join(dir, "tree"), filepath.Join(dir, "open")
	err = errors.Join(os.Mkdir(secret, 0o700), os.Mkdir(tree, 0o700), os.Mkdir(open, 0o700), os.WriteFile(filepath.Join(secret, "file"), []byte("x"), 0o600))
	if err != nil {
		return fmt.Errorf("try it: %w", err)
	}
	c, release, err := s.Wrap(Policy{Level: l, Write: []string{tree}, Read: []string{open}, Hidden: []string{secret}}, Command{
		Path: "/bin/sh", Args: []string{"-c", trial, "sh", filepath.Join(secret, "file"), filepath.Join(open, "file"), tree},
		Dir: tree, Env: proc.BaseEnv(),
	})
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, errors.New("it did not answer"))
	defer cancel()
	c.Grace = 100 * time.Millisecond
	_, exit, err := proc.Output(ctx, c)
	switch {
	case err != nil:
		return err
	case exit.Code == 10:
		return nil
	case trialFaults[exit.Code] != "":
		return errors.New(trialFaults[exit.Code])
	}
	reason := strings.TrimSpace(exit.Stderr)
	if reason == "" {
		reason = fmt.Sprintf("it ended with code %d %s", exit.Code, exit.Signal)
	}
	return errors.New(reason)
}
