package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"pulseloop/internal/proc"
	"pulseloop/internal/scratch"
)

// Command is what to start.
type Command struct {
	Path string // a name without a slash is looked up in this process's PATH
	Args []string
	Dir  string
	Env  []string // the whole environment
}

// Config says what walls are made with.
type Config struct {
	// Self starts this program so that it calls Main with the arguments that
	// follow: the path of the program, and what comes before them.
	Self []string

	Bubblewrap string // the program; "" is `bwrap` on PATH

	// SecondStart makes the promise to the kernel always in a second start of
	// this program, as it is made where a child cannot make it by itself.
	SecondStart bool
}

// Sandbox makes walls.
type Sandbox struct {
	cfg Config

	mu    sync.Mutex // held while the levels are tried
	found *Report

	second    atomic.Bool // bubblewrap works with a second start only
	uncovered atomic.Bool // bubblewrap works if it makes all mounts itself

	groupMu sync.Mutex
	asked   bool         // whether there are cgroups
	groups  *proc.Groups // nil: there are none
}

// New makes a Sandbox; nothing is tried yet.
func New(cfg Config) *Sandbox { return &Sandbox{cfg: cfg} }

// Wrap gives what starts c behind the walls of p, and what clears away after
// it has ended. What is started is the head of its process group, passes its
// exit code on, and leaves signals to c. A level that cannot be had is an
// error, here or at the start.
func (s *Sandbox) Wrap(p Policy, c Command) (wrapped proc.Spec, release func(), err error) {
	if p.Level == None {
		return s.limited(p.Limits, c.Spec(), func() {})
	}
	if len(s.cfg.Self) == 0 {
		return proc.Spec{}, nil, errors.New("make a sandbox: this program cannot start itself")
	}
	if c.Path, err = lookUp(c.Path); err != nil {
		return proc.Spec{}, nil, fmt.Errorf("make a sandbox: %w", err)
	}
	remove := func() {}
	if p.Temp == "" {
		// Below the system's own place, so that names of sockets in it stay
		// within the 107 bytes they may have.
		temp, err := scratch.New("pulse-")
		if err != nil {
			return proc.Spec{}, nil, fmt.Errorf("make a sandbox: %w", err)
		}
		p.Temp = temp.Path
		remove = func() { _ = temp.Remove() }
	}
	if wrapped, err = s.wrap(p, c); err != nil {
		remove()
		return proc.Spec{}, nil, fmt.Errorf("make a sandbox: %w", err)
	}
	return s.limited(p.Limits, wrapped, func() {
		if rules := wrapped.Walls.Ruleset; rules != nil {
			_ = rules.Close()
		}
		remove()
	})
}

// limited has the limits kept, where that can be: those of one process by the
// child, those of all together by a cgroup.
func (s *Sandbox) limited(l proc.Limits, spec proc.Spec, release func()) (proc.Spec, func(), error) {
	if !proc.CanConfine {
		return spec, release, nil
	}
	spec.Walls.Limits = l
	if l.Memory == 0 && l.Tasks == 0 {
		return spec, release, nil
	}
	s.groupMu.Lock()
	defer s.groupMu.Unlock()
	if !s.asked {
		s.asked = true
		if groups, err := proc.FindGroups(); err == nil {
			s.groups = groups
		}
	}
	if s.groups == nil {
		return spec, release, nil
	}
	group, err := s.groups.New(l)
	if err != nil {
		release()
		return proc.Spec{}, nil, fmt.Errorf("limit what it may take: %w", err)
	}
	spec.Walls.Group = group
	return spec, func() { _ = group.Close(); release() }, nil
}

func (s *Sandbox) wrap(p Policy, c Command) (proc.Spec, error) {
	z, err := p.resolve(c.Path)
	if err != nil {
		return proc.Spec{}, err
	}
	temp, err := real(p.Temp)
	if err != nil {
		return proc.Spec{}, err
	}
	switch p.Level {
	case Landlock:
		return s.landlock(z, temp, c)
	case Bubblewrap:
		return s.bubblewrap(z, temp, p.Limits.Tasks, c)
	}
	return proc.Spec{}, fmt.Errorf("there is no level %q: %s, %s and %s can be made", p.Level, None, Landlock, Bubblewrap)
}

// landlock has the promise made by the child itself before it becomes c, or
// by a second start of ourselves.
func (s *Sandbox) landlock(z zones, temp string, c Command) (proc.Spec, error) {
	c.Env = withTemp(c.Env, temp)
	if s.cfg.SecondStart || !proc.CanConfine {
		o := orders{Parent: os.Getpid(), Files: true}
		for _, one := range z {
			o.Zones = append(o.Zones, order{Path: one.path, Access: one.access})
		}
		c, err := s.through(o, s.cfg.Self, c)
		return c.Spec(), err
	}
	rules, err := ruleset(z)
	if err != nil {
		return proc.Spec{}, err
	}
	spec := c.Spec()
	spec.Walls.Ruleset, spec.Walls.Unprivileged = rules, true
	return spec, nil
}

// Spec starts the command without walls.
func (c Command) Spec() proc.Spec {
	return proc.Spec{Path: c.Path, Args: c.Args, Dir: c.Dir, Env: c.Env}
}

// through gives the command that starts ourselves, as self says, with orders
// and the command that follows.
func (s *Sandbox) through(o orders, self []string, c Command) (Command, error) {
	text, err := o.encode()
	if err != nil {
		return Command{}, err
	}
	return Command{Path: self[0], Args: slices.Concat(self[1:], []string{text, "--", c.Path}, c.Args), Dir: c.Dir, Env: c.Env}, nil
}

func withTemp(env []string, dir string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "TMPDIR" || name == "TMP" || name == "TEMP"
	})
	return append(out, "TMPDIR="+dir)
}

func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
