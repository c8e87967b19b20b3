package proc

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// guardScript outlives this process by a moment. It reads which children
// live, and when its input ends with some of them left, this process was
// killed: then it ends their sessions' groups and whatever carries their
// tokens. The kernel has by then killed the children themselves, but not
// what they had started.
const guardScript = `
trap '' INT TERM HUP
live=
while read -r op pid marker; do
	case $op in
	+) live="$live $pid:$marker" ;;
	-) rest=
	   for one in $live; do [ "${one%%:*}" = "$pid" ] || rest="$rest $one"; done
	   live=$rest ;;
	esac
done
[ -n "$live" ] || exit 0
for round in 1 2 3; do
	for one in $live; do
		kill -KILL -- "-${one%%:*}"
		marker=${one#*:}
		[ -n "$marker" ] || continue
		for file in $(grep -lszxF "$0=$marker" /proc/[0-9]*/environ); do
			pid=${file#/proc/}
			kill -KILL "${pid%/environ}"
		done
	done
done
`

// guard is the process that runs guardScript while marked children live. A
// system without a shell goes without: what is left is then found by
// KillMarked in the next life.
type guard struct {
	stdin   *os.File
	cmd     *exec.Cmd
	started chan struct{} // closed: cmd is running, or err says why not
	err     error
}

func startGuard() *guard {
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	cmd := exec.Command("/bin/sh", "-c", guardScript, runName)
	cmd.Stdin, cmd.Env, cmd.Dir = r, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	g := &guard{stdin: w, cmd: cmd, started: make(chan struct{})}
	// Not before the child may go on: what the guard is told waits in its pipe.
	go func() {
		defer close(g.started)
		defer r.Close()
		g.err = cmd.Start()
	}()
	return g
}

// tell notes a child's beginning (+) or end (-). A guard that is gone is not
// missed before the next one.
func (g *guard) tell(op string, p *Process) {
	if g == nil {
		return
	}
	_ = g.stdin.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = fmt.Fprintf(g.stdin, "%s %d %s\n", op, p.pid, p.token)
}

// leave ends the guard, which has nothing left to do. It is killed first, so
// that the end of its input cannot be taken for ours.
func (g *guard) leave() {
	if g == nil {
		return
	}
	<-g.started
	if g.err == nil {
		_ = g.cmd.Process.Kill()
	}
	_ = g.stdin.Close()
	if g.err == nil {
		_ = g.cmd.Wait()
	}
}
