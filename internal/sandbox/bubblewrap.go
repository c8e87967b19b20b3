package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// selfInside is where our own program is found behind the walls.
const selfInside = "/run/pulse-sandboxed"

// deaf starts what follows so that it ignores the signals that ask for an end.
// Bubblewrap stands between us and the command, in the same group: it would
// die of them at once, and the command with it, which wants to end in order.
const deaf = `trap "" INT TERM HUP QUIT; exec "$@"`

// bubblewrap starts bwrap, to start ourselves, to listen to signals again and
// become c.
func (s *Sandbox) bubblewrap(z zones, temp string, c Command) (Command, error) {
	bwrap, err := s.findBubblewrap()
	if err != nil {
		return Command{}, err
	}
	self, err := filepath.EvalSymlinks(s.cfg.Self[0])
	if err != nil {
		return Command{}, err
	}
	dir := c.Dir
	if dir == "" {
		if dir, err = os.Getwd(); err != nil {
			return Command{}, err
		}
	}
	inner, err := s.through(orders{Signals: true}, append([]string{selfInside}, s.cfg.Self[1:]...), c)
	if err != nil {
		return Command{}, err
	}
	args := []string{"-c", deaf, "sh", bwrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"}
	if needsUserNamespace() {
		args = append(args, "--unshare-user")
	}
	args = append(args, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
		// Root writes the kernel's settings without any privilege, and with them what runs outside.
		"--ro-bind", "/proc/sys", "/proc/sys")
	args = append(args, mounts(z, temp, self)...)
	args = append(args, "--chdir", dir, "--", inner.Path)
	return Command{Path: "/bin/sh", Args: append(args, inner.Args...), Dir: dir, Env: withTemp(c.Env, "/tmp")}, nil
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

// mounts turns zones into what lies over the file system. A place that is
// hidden is an empty one, which nobody can fill.
func mounts(z zones, temp, self string) []string {
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
	args = append(args, "--ro-bind", self, selfInside)
	for _, path := range slices.Backward(sealed) {
		args = append(args, "--remount-ro", path)
	}
	return args
}
