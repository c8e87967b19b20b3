package proc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// errLingers is what Exit says of a child that even SIGKILL did not end, such
// as one in an uninterruptible wait of the kernel.
var errLingers = errors.New("the process did not end after SIGKILL")

// Process is a child that was started. It needs no closing: everything held
// for it is released when it has ended and its output was read to the end.
type Process struct {
	spec   Spec
	token  string // of this child alone, carried by all that descend from it
	cmd    *exec.Cmd
	pid    int
	stdin  *inlet
	stdout *outlet
	stderr tail

	stop      sync.Once
	hurryOnce sync.Once
	hurry     chan struct{} // closed: no more patience, kill
	gone      chan struct{} // closed: the child itself is dead
	done      chan struct{} // closed: so are its leftovers, exit is valid
	exit      Exit
	family    family

	idMu   sync.RWMutex // held while the pid is used as a name
	reaped bool         // from here on the pid may name another process
}

// Start starts a child. The caller reads Stdout to its end, and waits for
// Done or calls Stop.
func Start(s Spec) (*Process, error) {
	if s.Path == "" {
		return nil, errors.New("start process: no program named")
	}
	p := &Process{
		spec: s, token: rand.Text(),
		hurry: make(chan struct{}), gone: make(chan struct{}), done: make(chan struct{}),
		stderr: tail{max: stderrTail},
	}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Path, err)
	}
	return p, nil
}

// Pid is the child's process id, and the id of its group and session.
func (p *Process) Pid() int { return p.pid }

// Stdin is the child's standard input. Writes block while the child does not
// read, until it ends or the input is closed.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Stdout is the child's standard output, raw; the reader has to bound it. It
// ends soon after the child, whoever else holds the pipe.
func (p *Process) Stdout() io.Reader { return p.stdout }

// Done is closed when the child and all it left behind have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Gone is closed when the child itself is dead; what it left behind may live
// for a moment.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Exit is how the child ended; valid after Done.
func (p *Process) Exit() Exit {
	select {
	case <-p.done:
		return p.exit
	default:
		return Exit{Code: -1, Err: errors.New("the process has not ended")}
	}
}

// run is the child's whole life. The thread that forks must outlive the
// child, because the kernel sends the parent-death signal when that thread
// ends, not when the process does; hence the lock.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	errPipe, err := p.launch()
	if err != nil {
		started <- err
		return
	}
	if p.spec.Marker != "" {
		p.offerFirst()
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { _, _ = io.Copy(&p.stderr, errPipe) })
	if p.spec.Stdin != nil {
		pumps.Go(func() {
			_, _ = p.stdin.Write(p.spec.Stdin)
			_ = p.stdin.Close()
		})
	}
	started <- nil

	p.awaitEnd()
	close(p.gone)
	_ = p.stdin.Close()
	// The child stays a zombie while its leftovers are ended, so that its id,
	// which names the group and the session, cannot come to mean another.
	p.endFamily()
	waitErr := p.reap()
	p.stdout.finish()
	errPipe.finish()
	pumps.Wait()
	p.exit = exitOf(p.cmd.ProcessState, waitErr, p.stderr.String())
	close(p.done)
}

// launch opens the pipes and forks; on failure nothing stays open.
func (p *Process) launch() (errPipe *outlet, err error) {
	var open []*os.File
	pipe := func() (r, w *os.File) {
		if err == nil {
			if r, w, err = os.Pipe(); err == nil {
				open = append(open, r, w)
			}
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err != nil {
		closeAll(open)
		return nil, fmt.Errorf("open pipes: %w", err)
	}
	p.cmd = exec.Command(p.spec.Path, p.spec.Args...)
	p.cmd.Dir, p.cmd.Env = p.spec.Dir, p.spec.environment(p.token)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
	if p.spec.Walls.Wrapper {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.ExtraFiles = nil, nil, []*os.File{inR, outW}
	}
	p.cmd.SysProcAttr = attributes()
	if err := forkAndRegister(p); err != nil {
		closeAll(open)
		return nil, err
	}
	closeAll([]*os.File{inR, outW, errW})
	p.stdin, p.stdout = &inlet{file: inW}, &outlet{file: outR}
	return &outlet{file: errR}, nil
}

// start makes the child. The calling thread is the one that outlives it.
func (p *Process) start() error {
	if p.spec.Walls.direct() {
		return begin(p.cmd, p.spec.Walls)
	}
	return p.cmd.Start()
}

// ask sends a signal that asks for an end.
func (p *Process) ask(sig syscall.Signal) {
	if p.spec.Walls.Wrapper {
		p.signalBehind(sig)
		return
	}
	p.signal(sig)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Stop ends the child and everything it started: SIGINT, closed input,
// SIGTERM, SIGKILL, each given Spec.Grace to work. The end of ctx skips to
// the last. It returns when the child is gone, and in any case within a
// bounded time; called again, it waits for the same end.
func (p *Process) Stop(ctx context.Context) Exit {
	select {
	case <-p.done:
		return p.exit
	default:
		p.stop.Do(func() { go p.escalate() })
	}
	select {
	case <-p.done:
		return p.exit
	case <-ctx.Done():
		p.hurryOnce.Do(func() { close(p.hurry) })
	}
	// SIGKILL for the child, then for its leftovers.
	limit := time.NewTimer(2*killBound + time.Second)
	defer limit.Stop()
	select {
	case <-p.done:
		return p.exit
	case <-limit.C:
		return Exit{Code: -1, Err: errLingers, Stderr: p.stderr.String()}
	}
}

// escalate ends the child itself; run ends its leftovers.
func (p *Process) escalate() {
	p.learnFamily()
	steps := []func(){
		func() { p.ask(sigInterrupt) },
		func() { _ = p.stdin.Close() },
		func() { p.ask(sigTerminate); p.ask(sigContinue) },
	}
	for _, step := range steps {
		step()
		if p.awaitGone(p.spec.grace()) {
			return
		}
	}
	p.learnFamily()
	for range int(killBound / killPoll) {
		p.signal(sigKill)
		select {
		case <-p.gone:
			return
		case <-time.After(killPoll):
		}
	}
}

// awaitGone waits for the child's death, for d or until there is a hurry.
func (p *Process) awaitGone(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.gone:
		return true
	case <-p.hurry:
		return false
	case <-t.C:
		return false
	}
}
