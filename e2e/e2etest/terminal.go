package e2etest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Terminal is a program that runs on a terminal of its own, with a person at
// the keys.
type Terminal struct {
	t    testing.TB
	keys *os.File // the side where the person sits
	cmd  *exec.Cmd
	done chan struct{} // the program has ended, and what it printed is read
	out  output
}

// Terminal starts a command on a terminal. What still runs when the test ends is killed.
func (p *Pulse) Terminal(args ...string) *Terminal {
	p.t.Helper()
	keys, screen, err := openTerminal()
	if err != nil {
		p.t.Fatalf("open a terminal: %v", err)
	}
	cmd := p.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	v := &Terminal{t: p.t, keys: keys, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go v.run(started)
	err = <-started
	_ = screen.Close()
	if err != nil {
		_ = keys.Close()
		p.t.Fatalf("start pulse %s: %v", strings.Join(args, " "), err)
	}
	p.t.Cleanup(v.end)
	return v
}

// run starts the program on a thread that stays, because the kernel ends the program with it, and reads until it has ended.
func (v *Terminal) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := v.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := v.keys.Read(b)
			_, _ = v.out.Write(b[:n])
			if err != nil {
				return // EIO: nobody has the other side open any more
			}
		}
	}()
	_ = v.cmd.Wait() // the exit code is in the state
	<-read
	close(v.done)
}

func (v *Terminal) end() {
	select {
	case <-v.done:
	default:
		_ = v.cmd.Process.Kill()
		<-v.done
	}
	_ = v.keys.Close()
	if v.t.Failed() {
		v.t.Logf("the terminal shows:\n%s", v.Screen())
	}
}

// Type presses keys.
func (v *Terminal) Type(text string) {
	v.t.Helper()
	if _, err := v.keys.WriteString(text); err != nil {
		v.t.Fatalf("type %q: %v", text, err)
	}
}

// EndOfInput presses Ctrl-D.
func (v *Terminal) EndOfInput() { v.Type("\x04") }

// Signal sends the program a signal.
func (v *Terminal) Signal(s syscall.Signal) { _ = v.cmd.Process.Signal(s) }

// Raw is everything that was printed, control sequences included.
func (v *Terminal) Raw() string { return v.out.String() }

// Screen is what stands on the terminal, everything that scrolled away included.
func (v *Terminal) Screen() string { return Screen(v.Raw()) }

// Shows waits until a text stands on the screen.
func (v *Terminal) Shows(text string) {
	v.t.Helper()
	if !within(Patience, func() bool { return strings.Contains(v.Screen(), text) }) {
		v.t.Fatalf("the terminal does not come to show %q", text)
	}
}

// Wait waits for the end of the program and gives its exit code.
func (v *Terminal) Wait() int {
	v.t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case <-v.done:
	case <-limit.C:
		v.t.Fatalf("the program did not end within %s", Patience)
	}
	return v.cmd.ProcessState.ExitCode()
}

// openTerminal makes a pseudo-terminal of 100 columns.
func openTerminal() (keys, screen *os.File, err error) {
	fd, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	keys = os.NewFile(uintptr(fd), "/dev/ptmx")
	var number, locked int32
	size := [4]uint16{40, 100}
	for _, call := range []struct {
		request uintptr
		arg     unsafe.Pointer
	}{
		{syscall.TIOCGPTN, unsafe.Pointer(&number)},
		{syscall.TIOCSPTLCK, unsafe.Pointer(&locked)},
		{syscall.TIOCSWINSZ, unsafe.Pointer(&size)},
	} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), call.request, uintptr(call.arg)); e != 0 {
			_ = keys.Close()
			return nil, nil, fmt.Errorf("set up the terminal: %w", e)
		}
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		_ = keys.Close()
		return nil, nil, fmt.Errorf("open the terminal: %w", err)
	}
	return keys, screen, nil
}
