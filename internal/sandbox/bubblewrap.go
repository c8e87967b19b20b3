package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"pulseloop/internal/proc"
)

// selfInside is where our own program is found behind the walls.
const selfInside = "/run/pulse-sandboxed"

// deaf starts what follows so that it ignores the signals that ask for an end.
// Bubblewrap stands between us and the command, in the same group: it would
// die of them at once, and the command with it, which wants to end in order.
const deaf = `trap "" INT TERM HUP QUIT; exec "$@"`

// inside starts what follows with the input and output that bubblewrap was
// given to pass on. It keeps none itself, so the command can close its own. The
// limit of processes counts those of a user in a name space: in one of its own
// no others, outside all that a person runs. Shells differ in what they call it.
const inside = `[ "$0" = sh ] || ulimit -p "$0" 2>/dev/null || ulimit -u "$0"
exec "$@" <&3 >&4 3<&- 4>&-`

// bubblewrap starts bwrap, to start c. What bwrap cannot do is done before it
// begins: its child keeps signals and abstract sockets inside.
func (s *Sandbox) bubblewrap(z zones, temp string, tasks int, c Command) (proc.Spec, error) {
	bwrap, err := s.findBubblewrap()
	if err != nil {
		return proc.Spec{}, err
	}
	if c.Dir == "" {
		if c.Dir, err = os.Getwd(); err != nil {
			return proc.Spec{}, err
		}
	}
	c.Env = withTemp(c.Env, "/tmp")
	if s.cfg.SecondStart || s.second.Load() || !proc.CanConfine {
		return s.bubblewrapTwice(bwrap, z, temp, c)
	}
	scope, err := scopes()
	if err != nil {
		return proc.Spec{}, err
	}
	most := "sh"
	if tasks > 0 && ownUserNamespace() {
		most = strconv.Itoa(tasks)
	}
	covers := []string{}
	if !s.uncovered.Load() {
		z, covers = covered(z)
	}
	args := slices.Concat(spaces(), mounts(z, temp), []string{"--chdir", c.Dir, "--", "/bin/sh", "-c", inside, most, c.Path}, c.Args)
	spec := Command{Path: bwrap, Args: args, Dir: c.Dir, Env: c.Env}.Spec()
	spec.Walls.Ruleset, spec.Walls.Covers, spec.Walls.Wrapper = scope, covers, true
	return spec, nil
}

// bubblewrapTwice has our own program started inside, to keep signals and
// abstract sockets there, to listen to signals again and become c.
func (s *Sandbox) bubblewrapTwice(bwrap string, z zones, temp string, c Command) (proc.Spec, error) {
	self, err := filepath.EvalSymlinks(s.cfg.Self[0])
	if err != nil {
		return proc.Spec{}, err
	}
	inner, err := s.through(orders{Signals: true}, append([]string{selfInside}, s.cfg.Self[1:]...), c)
	if err != nil {
		return proc.Spec{}, err
	}
	args := slices.Concat([]string{"-c", deaf, "sh", bwrap}, spaces(), mounts(z, temp, "--ro-bind", self, selfInside),
		[]string{"--chdir", c.Dir, "--", inner.Path}, inner.Args)
	return Command{Path: "/bin/sh", Args: args, Dir: c.Dir, Env: c.Env}.Spec(), nil
}

// spaces are what the command has to itself, and the file system below the
// mounts.
func spaces() []string {
	args := []string{"--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"}
	if ownUserNamespace() {
		args = append(args, "--unshare-user")
	}
	return append(args, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
		// Root writes the kernel's settings without any privilege, and with them what runs outside.
		"--ro-bind", "/proc/sys", "/proc/sys")
}

func (s *Sandbox) findBubblewrap() (string, error) {
	name := s.cfg.Bubblewrap
	if name == "" {
		name = "bwrap"
	}
	path, err := lookUp(name)
	if err != nil {
		return "", errors.New("bwrap is not installed (on Debian: the package bubblewrap)")
	}
	return path, nil
}

// covered takes out the hidden zones that have nothing visible in them, which
// the child covers by itself, before bubblewrap begins: what that mounts takes
// their mounts along.
func covered(z zones) (rest zones, covers []string) {
	places := map[string]bool{}
	for _, path := range append(temporary(), "/run") {
		if at, err := real(path); err == nil {
			places[at] = true
		}
	}
	for i, one := range z {
		// What lies in a place follows it at once.
		last := i+1 == len(z) || !within(z[i+1].path, one.path)
		info, err := os.Lstat(one.path)
		if one.access != hidden || places[one.path] || !last || err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			rest = append(rest, one)
			continue
		}
		covers = append(covers, one.path)
	}
	return rest, covers
}

// mounts turns zones into what lies over the file system. A place that is
// hidden is an empty one, which nobody can fill; more is mounted before that.
func mounts(z zones, temp string, more ...string) []string {
	var args, sealed []string
	places := map[string]bool{}
	for _, path := range temporary() {
		if at, err := real(path); err == nil {
			places[at] = true
		}
	}
	for _, one := range z {
		info, err := os.Lstat(one.path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink != 0:
			continue
		case one.path == temp && places[filepath.Dir(temp)]:
			continue // it is /tmp
		case places[one.path] && one.access == hidden:
			args = append(args, "--bind", temp, one.path)
		case one.access == write:
			args = append(args, "--bind", one.path, one.path)
		case one.access == read:
			args = append(args, "--ro-bind", one.path, one.path)
		case info != nil && !info.IsDir():
			// A device file behind walls that know no devices: it cannot be opened.
			args = append(args, "--ro-bind", "/dev/null", one.path)
		default:
			args = append(args, "--tmpfs", one.path)
			sealed = append(sealed, one.path)
		}
	}
	args = append(args, more...)
	for _, path := range slices.Backward(sealed) {
		args = append(args, "--remount-ro", path)
	}
	return args
}
