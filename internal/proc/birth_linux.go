//go:build linux && (amd64 || arm64)

package proc

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CanConfine tells whether a child can be put behind Walls by Start.
const CanConfine = true

// step is one system call that a child makes before it becomes its program.
// The assembly knows where its fields are.
type step struct {
	number uintptr
	args   [5]uintptr
	least  int64 // a result below it, or above most, ends the child
	most   int64
	result int64
	broken int64
	into   uintptr // where the result is written too: a file that was opened is the argument of what follows
}

// bear forks a child that makes the steps, the last of which never returns,
// and gives its id when it has become another program or has ended.
func bear(steps *step, flags uintptr) (pid, errno uintptr)

// birth is what a child does before it becomes its program. os/exec does as
// much of it as everybody needs; it has no place for what walls are made of,
// and a program of ours in between, to make them, would cost its own start.
type birth struct {
	steps []step
	names []string // of the steps, for errors
	keep  []any    // what the steps point to
	opens []int    // the steps whose result is the first argument of the next
	flags uintptr  // of the fork
}

// add appends a step that has to succeed.
func (b *birth) add(name string, number uintptr, args ...uintptr) {
	b.within(name, 0, math.MaxInt64, number, args...)
}

// try appends one that may fail.
func (b *birth) try(name string, number uintptr, args ...uintptr) {
	b.within(name, math.MinInt64, math.MaxInt64, number, args...)
}

func (b *birth) within(name string, least, most int64, number uintptr, args ...uintptr) {
	s := step{number: number, least: least, most: most}
	copy(s.args[:], args)
	b.steps, b.names = append(b.steps, s), append(b.names, name)
}

// at gives the address of what p points to, which lies on the heap because
// the birth keeps it, and so stays where it is.
func at[T any](b *birth, p *T) uintptr {
	b.keep = append(b.keep, p)
	return uintptr(unsafe.Pointer(p))
}

// text is a string as C has it.
func (b *birth) text(s string) (uintptr, error) {
	p, err := syscall.BytePtrFromString(s)
	if err != nil {
		return 0, fmt.Errorf("pass %q on: %w", s, err)
	}
	return at(b, p), nil
}

func (b *birth) texts(all []string) (uintptr, error) {
	p, err := syscall.SlicePtrFromStrings(all)
	if err != nil {
		return 0, fmt.Errorf("pass arguments on: %w", err)
	}
	b.keep = append(b.keep, p)
	return at(b, &p[0]), nil
}

// begin starts cmd behind the walls. What it reads of cmd is its path,
// arguments, environment, folder and files; the rest is as attributes has it.
func begin(cmd *exec.Cmd, w Walls) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	b := &birth{}
	b.add("start a session", unix.SYS_SETSID)
	b.add("tie it to its parent", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL))
	b.within("find its parent", int64(os.Getpid()), int64(os.Getpid()), unix.SYS_GETPPID)
	files, done, err := filesOf(cmd)
	if err != nil {
		return err
	}
	defer done()
	for i, f := range files {
		b.add("pass a file on", unix.SYS_DUP3, uintptr(f), uintptr(i), 0)
	}
	if err := b.dress(cmd, w); err != nil {
		return err
	}
	pid, err := b.bear()
	if err != nil {
		return err
	}
	cmd.Process, err = os.FindProcess(pid)
	return err
}

// filesOf gives the files that become 0, 1 and so on. They lie above those
// numbers, so that none is overwritten before its turn.
func filesOf(cmd *exec.Cmd) (files []int, done func(), err error) {
	done = func() {
		for _, fd := range files {
			_ = unix.Close(fd)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	all := make([]*os.File, 0, 3+len(cmd.ExtraFiles))
	for _, std := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		f, ok := std.(*os.File)
		if !ok {
			f = null
		}
		all = append(all, f)
	}
	all = append(all, cmd.ExtraFiles...)
	for _, f := range all {
		copied, err := copyAbove(f, len(all))
		if err != nil {
			done()
			return nil, nil, fmt.Errorf("pass a file on: %w", err)
		}
		files = append(files, copied)
	}
	return files, done, nil
}

// copyAbove copies a file for the child, to a number from least on. The copy
// blocks: the runtime has our pipes not block and waits elsewhere, but most
// programs take input that is not there yet for its end.
func copyAbove(f *os.File, least int) (copied int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if copied, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, least); failed != nil {
			return
		}
		if failed = unix.SetNonblock(copied, false); failed != nil {
			_ = unix.Close(copied)
		}
	})
	return copied, cmp.Or(err, failed)
}

// dress adds everything from the folder to the program itself.
func (b *birth) dress(cmd *exec.Cmd, w Walls) error {
	if cmd.Dir != "" {
		dir, err := b.text(cmd.Dir)
		if err != nil {
			return err
		}
		b.add("enter "+cmd.Dir, unix.SYS_CHDIR, dir)
	}
	if err := b.cover(w.Covers); err != nil {
		return err
	}
	if w.Group != nil {
		self, err := b.text("0")
		if err != nil {
			return err
		}
		b.add("enter its cgroup", unix.SYS_WRITE, w.Group.procs.Fd(), self, 1)
	}
	for _, l := range w.Limits.kernel() {
		b.add("limit "+l.name, unix.SYS_PRLIMIT64, 0, uintptr(l.resource), at(b, &unix.Rlimit{Cur: l.value, Max: l.value}))
	}
	if w.Unprivileged {
		b.dropPrivileges()
	}
	if w.Ruleset != nil {
		b.add("give up new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
		b.add("restrict it", unix.SYS_LANDLOCK_RESTRICT_SELF, w.Ruleset.Fd())
	}
	path, err := b.text(cmd.Path)
	if err != nil {
		return err
	}
	argv, err := b.texts(cmd.Args)
	if err != nil {
		return err
	}
	envp, err := b.texts(cmd.Environ())
	if err != nil {
		return err
	}
	b.hear()
	b.within("execute it", 1, 0, unix.SYS_EXECVE, path, argv, envp)
	return nil
}

// cover has the child see the file system with the paths covered. A mount that
// can neither be read nor filled is one call; bubblewrap takes a fifth of a
// millisecond for each, because it reads the list of all of them each time.
func (b *birth) cover(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	b.flags |= unix.CLONE_NEWNS
	if !mayMount() {
		if err := b.ownUsers(); err != nil {
			return err
		}
	}
	text := func(s string) uintptr { p, _ := b.text(s); return p } // constants
	root, tmpfs, none, options := text("/"), text("tmpfs"), text("none"), text("size=4k,mode=0555")
	b.add("keep its mounts to itself", unix.SYS_MOUNT, none, root, 0, unix.MS_REC|unix.MS_SLAVE)
	null, empty := text(os.DevNull), uintptr(0)
	for _, path := range paths {
		at, err := b.text(path)
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			return fmt.Errorf("cover %s: %w", path, err)
		case info.IsDir() && empty != 0: // the same once more: a mount costs less than a file system
			b.add("cover "+path, unix.SYS_MOUNT, empty, at, 0, unix.MS_BIND)
		case info.IsDir():
			empty = at
			b.add("cover "+path, unix.SYS_MOUNT, tmpfs, at, tmpfs, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options)
		default:
			b.add("cover "+path, unix.SYS_MOUNT, null, at, 0, unix.MS_BIND)
		}
	}
	return nil
}

// ownUsers gives the child a name space of users with itself in it alone,
// where it may mount.
func (b *birth) ownUsers() error {
	b.flags |= unix.CLONE_NEWUSER
	for _, one := range []struct{ file, text string }{
		{"setgroups", "deny"}, {"uid_map", fmt.Sprintf("%d %d 1", os.Geteuid(), os.Geteuid())}, {"gid_map", fmt.Sprintf("%d %d 1", os.Getegid(), os.Getegid())},
	} {
		path, err := b.text("/proc/self/" + one.file)
		if err != nil {
			return err
		}
		text, err := b.text(one.text)
		if err != nil {
			return err
		}
		b.opens = append(b.opens, len(b.steps))
		b.add("name its user", unix.SYS_OPENAT, ^uintptr(99), path, unix.O_WRONLY|unix.O_CLOEXEC)
		b.add("name its user", unix.SYS_WRITE, 0, text, uintptr(len(one.text)))
	}
	return nil
}

// mayMount reports whether this process may mount without that.
func mayMount() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	return unix.Capget(&head, &have[0]) == nil && have[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// dropPrivileges gives up what root may do beyond other users: it reaches
// disks, the kernel's memory and its modules without opening a file.
func (b *birth) dropPrivileges() {
	for c := range uintptr(unix.CAP_LAST_CAP) + 24 {
		// Fails for those that this kernel does not have, and for who may not
		// drop them, who has none to give on.
		b.try("drop a privilege", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c)
	}
	b.try("drop privileges", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL)
	head := at(b, &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3})
	b.add("drop privileges", unix.SYS_CAPSET, head, at(b, &[2]unix.CapUserData{}))
}

// sigset and sigaction are the kernel's, on the architectures of this file.
type sigset = uint64
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     sigset
}

// hear sets signals as a new program expects them: what this program handles
// has its default action, what it ignores stays ignored. Nothing is delivered
// before: all are blocked until the last step but one.
func (b *birth) hear() {
	action := at(b, &sigaction{})
	for sig := uintptr(1); sig <= 64; sig++ {
		now := new(sigaction)
		at(b, now)
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(now)), unsafe.Sizeof(now.mask), 0, 0)
		if errno == 0 && now.handler > 1 { // 0 is the default, 1 ignores
			b.add("reset signals", unix.SYS_RT_SIGACTION, sig, action, 0, unsafe.Sizeof(now.mask))
		}
	}
	b.add("hear signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, 0, 0, unsafe.Sizeof(sigset(0)))
}

// bear forks. The caller has locked its thread.
func (b *birth) bear() (int, error) {
	all, old := new(sigset), new(sigset)
	*all = math.MaxUint64
	at(b, all)
	mask := &b.steps[len(b.steps)-2]
	mask.args[1] = at(b, old)
	// As in the standard library: a file that is being opened by another thread
	// and not yet marked must not get into the child.
	syscall.ForkLock.Lock()
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(all)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(*all), 0, 0)
	for i := range b.steps {
		b.steps[i].into = uintptr(unsafe.Pointer(&b.steps[i].result))
	}
	for _, i := range b.opens {
		b.steps[i].into = uintptr(unsafe.Pointer(&b.steps[i+1].args[0]))
	}
	pid, errno := bear(&b.steps[0], b.flags|unix.CLONE_VM|unix.CLONE_VFORK|uintptr(syscall.SIGCHLD))
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(old)), 0, unsafe.Sizeof(*old), 0, 0)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(b)
	if errno != 0 {
		return 0, fmt.Errorf("fork: %w", syscall.Errno(errno))
	}
	for i, s := range b.steps {
		if s.broken == 0 {
			continue
		}
		_, _ = syscall.Wait4(int(pid), nil, 0, nil)
		if s.result < 0 {
			return 0, fmt.Errorf("%s: %w", b.names[i], syscall.Errno(-s.result))
		}
		return 0, fmt.Errorf("%s: it is not there any more", b.names[i])
	}
	return int(pid), nil
}
