package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pulseloop/api/client"
	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// writes tells, once, that somebody writes to a file of a directory: the kernel says so in the middle of the work.
type writes struct {
	fd   int
	file *os.File
}

func watchWrites(t *testing.T, dir string) *writes {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	must(t, err)
	_, err = syscall.InotifyAddWatch(fd, dir, syscall.IN_MODIFY)
	w := &writes{fd: fd, file: os.NewFile(uintptr(fd), "inotify")}
	t.Cleanup(func() { _ = w.file.Close() })
	must(t, err)
	return w
}

// await returns true at the n-th write to the file, and false when the time is over first.
func (w *writes) await(name string, n int, limit time.Duration) bool {
	if err := w.file.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return false
	}
	buf := make([]byte, 4096)
	for {
		k, err := w.file.Read(buf)
		if err != nil {
			return false
		}
		for b := buf[:k]; len(b) >= syscall.SizeofInotifyEvent; {
			size := int(uint32(b[12]) | uint32(b[13])<<8 | uint32(b[14])<<16 | uint32(b[15])<<24)
			of := string(bytes.TrimRight(b[syscall.SizeofInotifyEvent:syscall.SizeofInotifyEvent+size], "\x00"))
			if of == name {
				if n--; n <= 0 {
					return true
				}
			}
			b = b[syscall.SizeofInotifyEvent+size:]
		}
	}
}

// hurt is how often each place of TestKilledInTheDatabase is hit.
func hurt() int {
	if *longFlag {
		return 60
	}
	return 4
}

// TestKilledInTheDatabase is F21, its first half: the program is killed while SQLite writes a commit to its log, while it moves
// the log into the file, and while it makes the schema.
func TestKilledInTheDatabase(t *testing.T) {
	t.Parallel()
	t.Run("commit", func(t *testing.T) { t.Parallel(); killedInCommit(t) })
	t.Run("checkpoint", func(t *testing.T) { t.Parallel(); killedInCheckpoint(t) })
	t.Run("migration", func(t *testing.T) { t.Parallel(); killedInMigration(t) })
}

func killedInCommit(t *testing.T) {
	r := dice(newSeed(t), 4)
	node, l, hits := lite(t), &ledger{acked: map[string]bool{}}, 0
	for n := range hurt() {
		node.Up()
		w := watchWrites(t, node.DataDir)
		_, end := l.pour(node, fmt.Sprintf("life %d", n), "", 1)
		if w.await("pulse.db-wal", 1+r.IntN(20), 5*time.Second) {
			hits++
		}
		node.Kill()
		end()
		node.Forget(1)
	}
	node.Up()
	node.Stop()
	t.Logf("killed %d times in a write to the log", hits)
	if hits == 0 {
		t.Error("nothing was hit")
	}
	l.check(t, node)
}

// killedInCheckpoint kills when the file itself is written: what is told to end moves the log into it, and so does who writes much.
func killedInCheckpoint(t *testing.T) {
	r := dice(newSeed(t), 5)
	node, l, hits := lite(t), &ledger{acked: map[string]bool{}}, 0
	for n := range hurt() {
		node.Up()
		w := watchWrites(t, node.DataDir)
		padding := ""
		if n%2 == 0 {
			padding = strings.Repeat(" and on", 6000)
		}
		enough, end := l.pour(node, fmt.Sprintf("life %d", n), padding, 8)
		if n%2 == 1 {
			await(t, "goals to be acknowledged", enough)
			node.Signal(syscall.SIGTERM)
		}
		if w.await("pulse.db", 1+r.IntN(5), 10*time.Second) {
			hits++
		}
		node.Kill()
		end()
		node.Forget(1)
	}
	node.Up()
	node.Stop()
	t.Logf("killed %d times in a write to the file", hits)
	if hits == 0 {
		t.Error("nothing was hit")
	}
	l.check(t, node)
}

// killedInMigration kills the first start at a write, of the log or of the file, and lets the next one go on.
func killedInMigration(t *testing.T) {
	r := dice(newSeed(t), 6)
	hits := 0
	for range hurt() {
		node := lite(t)
		must(t, os.MkdirAll(node.DataDir, 0o700))
		w := watchWrites(t, node.DataDir)
		node.Launch()
		file, many := "pulse.db-wal", 8 // the kernel makes one of what follows closely
		if r.IntN(3) == 0 {
			file, many = "pulse.db", 2
		}
		if w.await(file, 1+r.IntN(many), 2*time.Second) {
			hits++
		}
		node.Kill()
		node.Up()
		l := &ledger{acked: map[string]bool{}}
		tag := l.ask("first")
		_, err := node.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: tag})
		must(t, err)
		l.ack(tag)
		node.Stop()
		l.check(t, node)
	}
	t.Logf("killed %d times in a write of the first start", hits)
	if hits == 0 {
		t.Error("nothing was hit")
	}
}

// filled is a server on SQLite that has 40 goals on record and was ended: killed, or in order.
func filled(t *testing.T, killed bool) (*e2etest.Pulse, *ledger) {
	t.Helper()
	node, l := lite(t), &ledger{acked: map[string]bool{}}
	node.Up()
	for range 40 {
		tag := l.ask("kept")
		_, err := node.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: tag + strings.Repeat(" and on", 100)})
		must(t, err)
		l.ack(tag)
	}
	if killed {
		node.Kill()
	} else {
		node.Stop()
	}
	return node, l
}

// harm is one thing that happens to the files while the program does not run.
type harm struct {
	name   string
	killed bool // the program before; else it ended in order
	do     func(t *testing.T, file string)
	says   []string // in the refusal; none: it is not noticed at once, and nobody is told that there is nothing
}

var harms = []harm{
	{"log deleted after a kill", true, func(t *testing.T, file string) { must(t, os.Remove(file+"-wal")) }, []string{"with its last writes is gone", "→ put it back"}},
	{"file deleted", false, func(t *testing.T, file string) { must(t, os.Remove(file)) }, []string{"is gone or empty", "→ restore it"}},
	{"file deleted after a kill", true, func(t *testing.T, file string) { must(t, os.Remove(file)) }, []string{"is gone or empty", "→ restore it"}},
	{"file and log deleted after a kill", true, func(t *testing.T, file string) { must(t, os.Remove(file)); must(t, os.Remove(file+"-wal")) }, []string{"is gone or empty", "→ restore it"}},
	{"file cut to nothing", false, func(t *testing.T, file string) { must(t, os.Truncate(file, 0)) }, []string{"is gone or empty", "→ restore it"}},
	{"file cut in half", false, func(t *testing.T, file string) { must(t, os.Truncate(file, sizeOf(t, file)/2)) }, []string{"damaged", "→ restore it"}},
	{"file cut within its header", false, func(t *testing.T, file string) { must(t, os.Truncate(file, 40)) }, []string{"damaged", "→ restore it"}},
	{"last page cut off", false, func(t *testing.T, file string) { must(t, os.Truncate(file, sizeOf(t, file)-4096)) }, []string{"damaged", "→ restore it"}},
	{"header overwritten", false, func(t *testing.T, file string) { scribble(t, file, 0, 100) }, []string{"damaged", "→ restore it"}},
	{"schema overwritten", false, func(t *testing.T, file string) { scribble(t, file, 100, 3000) }, []string{"damaged", "→ restore it"}},
	{"all but the schema overwritten", false, func(t *testing.T, file string) { scribble(t, file, 8192, int(sizeOf(t, file)-8192)) }, nil},
	{"log overwritten after a kill", true, func(t *testing.T, file string) { scribble(t, file+"-wal", 0, 4096) }, []string{"with its last writes is damaged", "→ restore it"}},
	{"log overwritten within, after a kill", true, func(t *testing.T, file string) { scribble(t, file+"-wal", sizeOf(t, file+"-wal")/2, 4096) }, []string{"with its last writes is damaged", "→ restore it"}},
}

func sizeOf(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	must(t, err)
	return info.Size()
}

func scribble(t *testing.T, file string, at int64, n int) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt(bytes.Repeat([]byte("scribble"), n/8+1)[:n], at)
	must(t, err)
}

// TestDamagedDatabaseIsRefused is F21, its second half: what is left of a database that somebody damaged is never taken for a
// new one, nor for all there is.
func TestDamagedDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	sources := map[bool]*e2etest.Pulse{}
	for _, killed := range []bool{false, true} {
		sources[killed], _ = filled(t, killed)
	}
	for _, h := range harms {
		t.Run(h.name, func(t *testing.T) {
			node := lite(t)
			copyDir(t, sources[h.killed].DataDir, node.DataDir)
			h.do(t, filepath.Join(node.DataDir, "pulse.db"))
			refusedStart(t, node, h.says)
		})
	}
}

// refusedStart wants the start to fail with the words. Without words, it may start, but not so that somebody is told less than
// there was.
func refusedStart(t *testing.T, node *e2etest.Pulse, says []string) {
	t.Helper()
	node.Launch()
	began := time.Now()
	state := node.Gone(2 * time.Second)
	for state == nil && time.Since(began) < e2etest.Patience && node.Anonymous().Health(t.Context()) != nil {
		state = node.Gone(50 * time.Millisecond)
	}
	if state != nil {
		said := node.Log()
		for _, part := range append([]string{"→"}, says...) {
			if !strings.Contains(said, part) {
				t.Errorf("it ended with %v and said %q, want %q in it", state, said, part)
			}
		}
		if state.ExitCode() == 0 || strings.Contains(said, "panic") {
			t.Errorf("it ended with %v: %s", state, said)
		}
		return
	}
	list, err := node.Client().List(e2etest.Context(t), client.Filter{Limit: 200})
	n := len(list)
	switch {
	case says != nil:
		t.Errorf("it started; %d sessions (%v)", n, err)
	case err == nil && n < 40:
		t.Errorf("it started with %d of 40 sessions, and said nothing", n)
	case err != nil && !strings.Contains(err.Error(), "damaged"):
		t.Errorf("it started, and says %v", err)
	}
	t.Logf("it started: %d sessions (%v)", n, err)
	node.Kill()
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.MkdirAll(to, 0o700))
	all, err := os.ReadDir(from)
	must(t, err)
	for _, e := range all {
		if !e.Type().IsRegular() || strings.HasSuffix(e.Name(), "-shm") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to, e.Name()), b, 0o600))
	}
}

// TestDatabaseInForeignHands is the rest of F21: another program has the file locked, before the start and after it; and the
// directory cannot be written.
func TestDatabaseInForeignHands(t *testing.T) {
	t.Parallel()
	node, l := filled(t, false)
	start := func(tag string) error {
		_, err := node.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: tag})
		if err == nil {
			l.ack(tag)
		}
		return err
	}
	conn, err := node.DB().Conn(t.Context())
	must(t, err)
	defer conn.Close()
	hold := func() {
		_, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
		must(t, err)
	}
	release := func() {
		_, err := conn.ExecContext(t.Context(), "ROLLBACK")
		must(t, err)
	}
	hold()
	refusedStart(t, node, []string{"locked by another program", "→ close"})
	release()
	node.Up()
	hold()
	err = start(l.ask("while it is locked"))
	if pulse.CodeOf(err) != pulse.CodeUnavailable || !strings.Contains(err.Error(), "locked by another program") {
		t.Errorf("a goal while the file is locked: %v", err)
	}
	release()
	must(t, start(l.ask("again")))
	if _, errs, code := node.Run("migrate"); code == 0 || !strings.Contains(errs, "another pulse") {
		t.Errorf("a second program on the file ended with %d: %s", code, errs)
	}
	node.Stop()
	must(t, conn.Close())
	unwritable(t, node)
	node.Up()
	must(t, start(l.ask("writable again")))
	node.Stop()
	l.check(t, node)
}

// unwritable starts the program in a directory that it may read and not write. Root may write everywhere, so that then it runs
// as somebody else.
func unwritable(t *testing.T, node *e2etest.Pulse) {
	t.Helper()
	home, err := os.MkdirTemp("", "pulse-chaos-ro-")
	must(t, err)
	data := filepath.Join(home, "data")
	t.Cleanup(func() { _ = os.Chmod(data, 0o700); _ = os.RemoveAll(home) })
	must(t, os.Chmod(home, 0o755))
	copyDir(t, node.DataDir, data)
	program := filepath.Join(home, "pulse")
	must(t, copyFile(e2etest.Binary(t), program))
	cmd := exec.Command(program, "serve")
	cmd.Dir, cmd.Env = home, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "PULSE_DATA_DIR=" + data, "PULSE_HTTP_LISTEN=127.0.0.1:0", "PULSE_AGENT=scripted"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = somebodyElse(t)
		must(t, os.Chown(data, int(cmd.SysProcAttr.Credential.Uid), int(cmd.SysProcAttr.Credential.Gid)))
	}
	files, err := os.ReadDir(data)
	must(t, err)
	for _, f := range files {
		file := filepath.Join(data, f.Name())
		must(t, os.Chmod(file, 0o400))
		if as := cmd.SysProcAttr.Credential; as != nil {
			must(t, os.Chown(file, int(as.Uid), int(as.Gid)))
		}
	}
	must(t, os.Chmod(data, 0o500))
	before := digest(t, data)
	limit := time.AfterFunc(e2etest.Patience, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cannot be written") || !strings.Contains(string(out), "→ make it writable") {
		t.Errorf("in a directory that cannot be written it ended with %v: %s", err, out)
	}
	if digest(t, data) != before {
		t.Error("it changed what it may not write")
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// digest is what lies in a directory.
func digest(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	must(t, err)
	var b strings.Builder
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		must(t, err)
		fmt.Fprintf(&b, "%s %d %x\n", f.Name(), len(content), content)
	}
	return b.String()
}
