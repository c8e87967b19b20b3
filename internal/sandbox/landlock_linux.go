package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// oldestABI is the first version of Landlock whose promise is worth having:
// before it, any file could be cut to nothing (Linux 6.2).
const oldestABI = 3

// scopingABI is the first that keeps signals and abstract sockets inside (Linux 6.12).
const scopingABI = 6

// socketABI is the first that keeps sockets of the file system inside: those
// that were made behind the same walls can be connected to, no others.
const socketABI = 9

const (
	toRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	ofFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// toWrite has no device files among what may be made: one of a disk would
	// be a way around all the rest.
	toWrite = toRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	toUse = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// devices are those that stand for nothing of this machine.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"}

// handled is every right over files that an ABI knows.
func handled(abi int) uint64 {
	rights := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM)<<1 - 1
	for _, later := range []struct {
		abi   int
		right uint64
	}{{2, unix.LANDLOCK_ACCESS_FS_REFER}, {3, unix.LANDLOCK_ACCESS_FS_TRUNCATE}, {5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV}, {socketABI, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX}} {
		if abi >= later.abi {
			rights |= later.right
		}
	}
	return rights
}

// abiVersion asks the kernel. 0 is none.
func abiVersion() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// checkLandlock says why this kernel's Landlock will not do, nil if it will.
func checkLandlock(abi int) error {
	switch {
	case abi == 0:
		return errors.New("the kernel has no Landlock, or it is not switched on (the boot parameter lsm=)")
	case abi < oldestABI:
		return fmt.Errorf("the kernel's Landlock is version %d; %d is needed (Linux 6.2)", abi, oldestABI)
	}
	return nil
}

// scoped tells whether signals and abstract sockets are kept inside.
func scoped(abi int) bool { return abi >= scopingABI }

// socketsScoped tells the same of sockets in the file system.
func socketsScoped(abi int) bool { return abi >= socketABI }

// promise is a ruleset that is being made, on the calling thread.
type promise struct {
	fd     int
	rights uint64
}

// newPromise handles files if asked to, and scopes what can be scoped. It is
// nil where there would be nothing to promise.
func newPromise(abi int, files bool) (*promise, error) {
	var attr unix.LandlockRulesetAttr
	if files {
		attr.Handled_access_fs = handled(abi)
	}
	size := unsafe.Offsetof(attr.Handled_access_net)
	if scoped(abi) {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size = unsafe.Sizeof(attr)
	}
	if attr.Handled_access_fs == 0 && attr.Scoped == 0 {
		return nil, nil
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return nil, fmt.Errorf("create a Landlock ruleset: %w", errno)
	}
	return &promise{fd: int(fd), rights: attr.Handled_access_fs}, nil
}

// allow grants rights over path and all below. What has gone meanwhile needs
// no rule.
func (p *promise) allow(path string, rights uint64) error {
	return p.allowAt(unix.AT_FDCWD, path, path, rights)
}

// allowAt does it for a name in an open directory.
func (p *promise) allowAt(dir int, name, path string, rights uint64) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	errno := p.add(fd, rights)
	if errno == unix.EINVAL {
		// Rights of directories for something else: only those of files are left.
		// A link takes none at all: what it leads to has a rule of its own, or none.
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return fmt.Errorf("look at %s: %w", path, err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return nil
		}
		errno = p.add(fd, rights&ofFiles)
	}
	if errno != 0 {
		return fmt.Errorf("add a rule for %s: %w", path, errno)
	}
	return nil
}

func (p *promise) add(fd int, rights uint64) unix.Errno {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights & p.rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(p.fd), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	return errno
}

// make takes effect on the calling thread and all that comes from it.
func (p *promise) make() error {
	defer unix.Close(p.fd)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(p.fd), 0, 0); errno != 0 {
		return fmt.Errorf("restrict this process: %w", errno)
	}
	return nil
}

// ruleset gives the rules of zones, for a child to put itself under.
func ruleset(z zones) (*os.File, error) {
	abi := abiVersion()
	if err := checkLandlock(abi); err != nil {
		return nil, err
	}
	p, err := newPromise(abi, true)
	if err != nil {
		return nil, err
	}
	if err := p.files(z); err != nil {
		_ = unix.Close(p.fd)
		return nil, err
	}
	return os.NewFile(uintptr(p.fd), "ruleset"), nil
}

// scopes is one without rules for files. It is nil where nothing can be
// scoped.
func scopes() (*os.File, error) {
	p, err := newPromise(abiVersion(), false)
	if p == nil || err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(p.fd), "scopes"), nil
}

// files turns zones into rules. A rule holds for all below a path and nothing
// can be taken out of it again, so beside a named path every sibling gets a
// rule of its own.
func (p *promise) files(z zones) error {
	at, err := real("/dev")
	if err != nil {
		return err
	}
	z = append(zones{{at, hidden}}, z...)
	z.sort()
	for _, name := range devices {
		if err := p.allow(filepath.Join(at, name), toUse); err != nil {
			return err
		}
	}
	return p.walk("/", read, z)
}

// walk grants a on dir and all below, but for the zones below it.
func (p *promise) walk(dir string, a access, z zones) error {
	var inner zones
	for _, one := range z {
		if one.path == dir {
			a = one.access
		} else if within(one.path, dir) {
			inner = append(inner, one)
		}
	}
	if len(inner) == 0 {
		if a == hidden {
			return nil
		}
		return p.allow(dir, rightsOf(a))
	}
	next := map[string]zones{}
	for _, one := range inner {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(one.path, dir), "/"), "/")
		next[name] = append(next[name], one)
	}
	if a != hidden {
		if err := p.siblings(dir, rightsOf(a), next); err != nil {
			return err
		}
	}
	for name, z := range next {
		if err := p.walk(filepath.Join(dir, name), a, z); err != nil {
			return err
		}
	}
	return nil
}

func rightsOf(a access) uint64 {
	if a == write {
		return toWrite
	}
	return toRead
}

// siblings grants rights on all in dir but what is named. Relative to the open
// directory, because there may be hundreds.
func (p *promise) siblings(dir string, rights uint64, named map[string]zones) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	at := int(d.Fd())
	for _, name := range names {
		if _, ok := named[name]; ok {
			continue
		}
		if err := p.allowAt(at, name, dir+"/"+name, rights); err != nil {
			return err
		}
	}
	return nil
}
