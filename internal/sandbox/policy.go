package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pulseloop/internal/proc"
)

// Level is a kind of walls.
type Level string

// The levels, from weak to strong. Auto is the strongest that works here.
const (
	None       Level = "none"
	Landlock   Level = "landlock"
	Bubblewrap Level = "bubblewrap"
	Auto       Level = "auto"
)

// Levels lists what may be configured.
func Levels() []Level { return []Level{Auto, None, Landlock, Bubblewrap} }

// Policy says what a command may do with files. Everything that is not named
// may be read and not written. Where several named paths contain a file, the
// deepest counts, and of equal ones the most permissive. Paths are absolute;
// symbolic links in them are followed once, before the start.
type Policy struct {
	Level  Level
	Write  []string // files and directories that may be read, changed, and filled; they must exist
	Read   []string // may be read, not changed, wherever they lie: in a hidden place, or in one that may be written
	Hidden []string // neither, with all that lies below

	// Temp is a directory that stands for the places of temporary files, which
	// are hidden otherwise. Empty: one is made, and removed by release.
	Temp string

	// Limits hold at every level, where proc.CanConfine.
	Limits proc.Limits
}

// access is what may be done with a path and all below it.
type access int

const (
	hidden access = iota
	read
	write
)

// zone is one named path.
type zone struct {
	path   string
	access access
}

// zones is a policy with all its paths resolved, outer before inner, each
// path once.
type zones []zone

// temporary are the places where every program may write, and so may leave
// something for another program or wait for it.
func temporary() []string { return []string{"/tmp", "/var/tmp", os.TempDir()} }

// runtimeKept is what ordinary programs need of /run: names of hosts, and on
// some systems the programs themselves. The rest is sockets of services that
// would run commands for whoever asks.
var runtimeKept = []string{
	"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf",
	"/run/netconfig", "/run/connman", "/run/nscd", "/run/current-system", "/run/opengl-driver",
}

// resolve gives the zones of p, and of program, which has to be readable.
func (p Policy) resolve(program string) (zones, error) {
	named, links := map[string]access{}, resolver{}
	name := func(a access, must bool, paths ...string) error {
		for _, path := range paths {
			at, err := links.real(path)
			if err == nil && must {
				_, err = os.Stat(at)
			}
			if err != nil {
				return fmt.Errorf("resolve %q: %w", path, err)
			}
			named[at] = max(a, named[at])
		}
		return nil
	}
	err := errors.Join(
		name(hidden, false, append(temporary(), "/run")...), name(hidden, false, p.Hidden...),
		name(read, false, runtimeKept...), name(read, false, p.Read...),
		name(write, true, p.Write...), name(write, true, p.Temp),
	)
	if err != nil {
		return nil, err
	}
	if _, ok := named["/"]; ok {
		return nil, errors.New("a policy cannot name the whole file system")
	}
	z := make(zones, 0, len(named)+2)
	for path, a := range named {
		z = append(z, zone{path, a})
	}
	z.sort()
	for _, path := range visible(z, program) {
		z = append(z, zone{path, read})
	}
	z.sort()
	return z, nil
}

func (z zones) sort() {
	slices.SortFunc(z, func(a, b zone) int { return comparePaths(a.path, b.path) })
}

// comparePaths orders by components, so that what lies in a directory follows
// it at once.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return int(a[i]) - int(b[i])
		}
	}
	return len(a) - len(b)
}

// visible gives what has to be readable for a hidden program to start: the
// folder it lies in, for its companions, unless that has something of its own
// to hide.
func visible(z zones, program string) []string {
	at, err := filepath.EvalSymlinks(program)
	if err != nil || z.of(at) != hidden {
		return nil
	}
	dir := filepath.Dir(at)
	for _, one := range z {
		if one.access == hidden && within(one.path, dir) {
			return []string{at}
		}
	}
	return []string{dir}
}

// of gives what may be done with a resolved path.
func (z zones) of(path string) access {
	a := read
	for _, one := range z {
		if within(path, one.path) {
			a = one.access // outer come before inner
		}
	}
	return a
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// real follows the links of the part of a path that exists.
func real(path string) (string, error) { return resolver{}.real(path) }

// resolver remembers where directories lie: those that a policy names have
// many in common.
type resolver map[string]string

func (r resolver) real(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errors.New("not an absolute path")
	}
	path = filepath.Clean(path)
	if path == "/" {
		return path, nil
	}
	dir, name := filepath.Split(path)
	dir = filepath.Clean(dir)
	at, ok := r[dir]
	if !ok {
		var err error
		if at, err = r.real(dir); err != nil {
			return "", err
		}
		r[dir] = at
	}
	at = filepath.Join(at, name)
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil
	}
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return at, err
	}
	end, err := filepath.EvalSymlinks(at)
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil // a link that leads nowhere
	}
	return end, err
}
