package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// failed is the exit code of a command that could not be started behind the
// walls, as shells have it for one that cannot be executed.
const failed = 126

// Main is the part of the work that is done in the process that becomes the
// command. args are what Config.Self is followed by. It returns only if that
// failed, with the exit code, having said why on stderr.
func Main(args []string, stderr io.Writer) int {
	err := become(args)
	fmt.Fprintf(stderr, "pulse: start in the sandbox: %v\n", err)
	return failed
}

func become(args []string) error {
	if len(args) < 3 || args[1] != "--" {
		return errors.New("it is for pulse's own use, with ORDERS -- PROGRAM [ARGUMENT...]")
	}
	var o orders
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	// What follows holds for one thread; the one that executes is it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := o.obey(); err != nil {
		return err
	}
	if err := unix.Exec(args[2], args[2:], os.Environ()); err != nil {
		return fmt.Errorf("execute %s: %w", args[2], err)
	}
	return nil
}

func (o orders) obey() error {
	if o.Parent != 0 {
		// Asked for by the parent already, but for another thread of ours.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("tie the command to its parent: %w", err)
		}
		if os.Getppid() != o.Parent {
			return errors.New("the program that started this one has ended")
		}
	}
	abi := abiVersion()
	if o.Files {
		if err := checkLandlock(abi); err != nil {
			return err
		}
	}
	p, err := newPromise(abi, o.Files)
	if err != nil {
		return err
	}
	if o.Files {
		if err := errors.Join(p.files(o.zones()), dropPrivileges()); err != nil {
			return err
		}
	}
	if p != nil {
		if err := p.make(); err != nil {
			return err
		}
	}
	if o.Signals {
		listen()
	}
	return nil
}

// listen makes signals that were ignored when we started take effect again.
// A handler becomes the default action when the program is replaced.
func listen() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
}

// dropPrivileges gives up what root may do beyond other users: it reaches
// disks, the kernel's memory and its modules without opening a file.
func dropPrivileges() error {
	for c := 0; ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // there are no more of them
		}
		if errors.Is(err, unix.EPERM) {
			break // whoever may not drop them has none to give on
		}
		if err != nil {
			return fmt.Errorf("drop privileges: %w", err)
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("drop privileges: %w", err)
	}
	return nil
}

// ownUserNamespace reports whether bwrap has to be told to make one. It takes
// root for a user who can do without; where others are concerned and bwrap is
// installed with privileges, it does without too.
func ownUserNamespace() bool {
	if os.Geteuid() != 0 {
		return true
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	return unix.Capget(&head, &have[0]) != nil || have[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0
}
