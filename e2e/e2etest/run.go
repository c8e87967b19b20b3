package e2etest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// mostStop is how long the program may take to end: the grace it gives to agents, and some time of its own.
const mostStop = 20 * time.Second

// run is one life of the program.
type run struct {
	pid  int
	done chan struct{}
	exit *os.ProcessState // valid after done
	out  output
	err  output
}

func (r *run) both() string { return r.out.String() + "--- standard error ---\n" + r.err.String() }

// output keeps what a process prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Up starts the program and returns when it is ready. It is how to start it again after Stop or Kill.
func (p *Pulse) Up() {
	p.t.Helper()
	p.Launch()
	ready := func() bool { return p.Anonymous().Health(p.t.Context()) == nil }
	if p.opt.Command[0] == "daemon" {
		ready = func() bool { return strings.Contains(p.Output(), "Waiting for work") }
	}
	gone := false
	if !within(Patience, func() bool {
		select {
		case <-p.run.done:
			gone = true
		default:
		}
		return gone || ready()
	}) {
		p.t.Fatalf("the program is not ready after %s", Patience)
	}
	if gone {
		p.t.Fatalf("the program ended at the start: %v", p.run.exit)
	}
}

// Launch starts the program and does not wait until it is ready.
func (p *Pulse) Launch() {
	p.t.Helper()
	if p.run != nil {
		p.t.Fatal("the program runs already")
	}
	r := &run{done: make(chan struct{})}
	started := make(chan error, 1)
	cmd := p.command(p.opt.Command...)
	cmd.Stdout, cmd.Stderr = &r.out, &r.err
	cmd.WaitDelay = time.Second
	go func() {
		// The kernel ends the program when the thread that forked it ends, so that not even a killed test leaves it behind.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			r.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait()
			r.exit = cmd.ProcessState
			close(r.done)
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatalf("start the program: %v", err)
	}
	p.run = r
	p.runs = append(p.runs, r)
}

func (p *Pulse) command(args ...string) *exec.Cmd {
	cmd := exec.Command(Binary(p.t), args...)
	cmd.Dir, cmd.Env = p.Home, p.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Stop ends the program as an operator does, by SIGTERM, and wants status 0 in time.
func (p *Pulse) Stop() {
	p.t.Helper()
	r := p.run
	p.run = nil
	_ = syscall.Kill(r.pid, syscall.SIGTERM)
	limit := time.NewTimer(mostStop)
	defer limit.Stop()
	select {
	case <-r.done:
		if code := r.exit.ExitCode(); code != 0 {
			p.t.Errorf("the program ended with %v", r.exit)
		}
	case <-limit.C:
		_ = syscall.Kill(r.pid, syscall.SIGQUIT) // shows what every goroutine does
		_ = syscall.Kill(r.pid, syscall.SIGCONT) // a test that failed may have left it stopped
		p.t.Errorf("the program did not end within %s", mostStop)
		select {
		case <-r.done:
		case <-time.After(mostStop):
			_ = syscall.Kill(r.pid, syscall.SIGKILL)
			<-r.done
		}
	}
}

// Kill ends the program as a power cut would.
func (p *Pulse) Kill() {
	p.t.Helper()
	r := p.run
	p.run = nil
	_ = syscall.Kill(r.pid, syscall.SIGKILL)
	<-r.done
}

// Output is what the program has printed on standard output since the last start.
func (p *Pulse) Output() string {
	if len(p.runs) == 0 {
		return ""
	}
	return p.runs[len(p.runs)-1].out.String()
}

// Log is what it has printed on standard error since the last start.
func (p *Pulse) Log() string {
	if len(p.runs) == 0 {
		return ""
	}
	return p.runs[len(p.runs)-1].err.String()
}

// Invocation is one command line.
type Invocation struct {
	Args  []string
	Stdin string
	Dir   string   // default: the home
	Env   []string // K=V, wins
}

// Run runs a command in the program's surroundings and gives what it printed and its exit code.
func (p *Pulse) Run(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	return p.Invoke(Invocation{Args: args})
}

// Invoke is Run with more to say. A command that does not end by itself is ended, which fails the test.
func (p *Pulse) Invoke(in Invocation) (stdout, stderr string, code int) {
	p.t.Helper()
	cmd := p.command(in.Args...)
	var out, errs output
	cmd.Stdout, cmd.Stderr, cmd.Stdin = &out, &errs, strings.NewReader(in.Stdin)
	if in.Dir != "" {
		cmd.Dir = in.Dir
	}
	cmd.Env = append(slices.Clone(cmd.Env), in.Env...)
	cmd.WaitDelay = time.Second
	done := make(chan error, 1)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatalf("start pulse %s: %v", strings.Join(in.Args, " "), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		<-done
		p.t.Fatalf("pulse %s did not end within %s\n%s%s", strings.Join(in.Args, " "), Patience, &out, &errs)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("run pulse %s: %v", strings.Join(in.Args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Processes are all that live with this home in their environment: the program, its agents, and whatever those started.
func (p *Pulse) Processes() []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), "HOME="+p.Home) {
			continue // gone, or a zombie, or another's
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		found = append(found, filepath.Base(filepath.Dir(file))+" "+strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " "))
	}
	return found
}

func (p *Pulse) killLeftovers() {
	for _, line := range p.Processes() {
		id, _, _ := strings.Cut(line, " ")
		if pid, err := strconv.Atoi(id); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
