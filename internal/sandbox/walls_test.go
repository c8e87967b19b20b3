//go:build linux

package sandbox

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// attempts are what an agent must not manage. Each ends with status 0 if it
// does, or prints the secret.
var attempts = map[string]string{
	"read the token":                 `cat $DATA/token`,
	"read the database":              `head -c 100 $DATA/pulse.db`,
	"read another tree":              `cat $DATA/worktrees/theirs/file`,
	"read another store":             `cat $DATA/repos/s/store.git/x`,
	"read its own store's config":    `cat $STORE/config`,
	"read another project":           `cat $OTHER/file`,
	"list the data":                  `ls $DATA/repos | grep s`,
	"list another project":           `ls $OTHER | grep file`,
	"go there first":                 `cd $DATA && cat token`,
	"read through a link":            `ln -s $DATA/token t1 && cat t1`,
	"read through a linked folder":   `ln -s $DATA t2 && cat t2/token`,
	"read through a hard link":       `ln $DATA/token t3 && cat t3`,
	"read through its own root":      `cat /proc/self/root$DATA/token`,
	"read through the first process": `cat /proc/1/root$DATA/token`,
	"read through dots":              `cat ../../token`,
	"move the token here":            `mv $DATA/token t4 && cat t4`,
	"copy the folder":                `cp -r $DATA/worktrees/theirs t5 && cat t5/file`,
	"read in a grandchild":           `setsid sh -c 'cat $DATA/token' </dev/null; setsid -w sh -c 'cat $DATA/token'`,
	"read the daemon's environment":  `cat /proc/$OUTSIDER/environ`,
	"read in the daemon's root":      `cat /proc/$OUTSIDER/root$DATA/token`,
	"read in the daemon's place":     `cat /proc/$OUTSIDER/cwd/token`,
	"read the daemon's memory":       `head -c 1 /proc/$OUTSIDER/mem; cat /proc/$OUTSIDER/maps | grep .`,
	"look at the daemon's files":     `ls -l /proc/$OUTSIDER/fd | grep -e '->'`,
	"trace the daemon":               `$ME play-trace $OUTSIDER`,
	"signal the daemon":              `kill -CONT $OUTSIDER`,
	"read another's temporary file":  `cat $(dirname $DATA)/data/token`,

	"write beside the tree":        `echo x >$DATA/worktrees/new`,
	"write outside":                `echo x >$OUTSIDE/new`,
	"write over a file outside":    `echo x >$OUTSIDE/file`,
	"cut a file outside":           `truncate -s 0 $OUTSIDE/file`,
	"append outside":               `echo x >>$OUTSIDE/file`,
	"make a folder outside":        `mkdir $OUTSIDE/d`,
	"make a link outside":          `ln -s x $OUTSIDE/l`,
	"link a file to the outside":   `echo x >t6; ln t6 $OUTSIDE/t6`,
	"move a file outside":          `echo x >t7; mv t7 $OUTSIDE/t7`,
	"remove a file outside":        `rm -f $OUTSIDE/file`,
	"rename a file outside":        `mv $OUTSIDE/file $OUTSIDE/file2`,
	"write through a link":         `ln -s $OUTSIDE/file t8 && echo x >t8`,
	"write into the store":         `echo x >$STORE/objects/new`,
	"write in the token's place":   `echo x >$DATA/token`,
	"replace the data":             `mv $DATA $DATA.old`,
	"write over our program":       `: >>$ME`,
	"write in a grandchild":        `setsid -w sh -c 'echo x >$OUTSIDE/file'`,
	"write the home":               `echo x >$HOME/.pulse-sandbox-test`,
	"write the system":             `: >>/etc/passwd`,
	"write the kernel's settings":  `: >>/proc/sys/kernel/core_pattern`,
	"press the kernel's keys":      `: >>/proc/sysrq-trigger`,
	"make a device of a disk":      `mknod t9 b 254 0`,
	"make a device in temp":        `mknod $TMPDIR/t9 c 1 1`,
	"have privileges":              `grep -q 'CapEff:.*[1-9a-f]' /proc/self/status`,
	"get new privileges":           `! grep -q 'NoNewPrivs:.1' /proc/self/status`,
	"mount something":              `mkdir m && mount -t tmpfs none m`,
	"take the cover away":          `umount $DATA && cat $DATA/token`,
	"take it away in a namespace":  `unshare -Urm sh -c 'umount -l $DATA; umount -l $OTHER; umount -l /tmp; cat $DATA/token $OTHER/file'`,
	"mount the whole elsewhere":    `mkdir -p m && unshare -Urm sh -c 'mount --rbind / m && cat m$DATA/token'`,
	"write after a remount":        `unshare -Urm sh -c 'mount -o remount,rw / ; mount -o remount,bind,rw / ; echo x >$OUTSIDE/new'`,
	"see processes in a namespace": `unshare -Urpf --mount-proc cat /proc/$OUTSIDER/environ`,
	"leave by a change of root":    `unshare -Ur chroot /proc/self/root cat $DATA/token`,
}

func TestWalls(t *testing.T) {
	each(t, func(t *testing.T, l Level) {
		w := newWorld(t, l)
		for name, script := range attempts {
			t.Run(name, func(t *testing.T) {
				out, exit := w.run(t, script)
				if exit.OK() || strings.Contains(out, topSecret) {
					t.Errorf("it succeeded: %s", out)
				}
				w.untouched(t)
			})
		}
	})
}

// Each attempt succeeds where there are no walls, or it would prove nothing.
// Those that would change the machine are left out.
func TestAttemptsAreReal(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("some of them need root")
	}
	spare := map[string]bool{
		"press the kernel's keys": true, "read through the first process": true, "make a device of a disk": true, "mount something": true,
		// These need a cover to take away, or are stopped by the kernel in any case.
		"take the cover away": true, "take it away in a namespace": true, "see processes in a namespace": true, "write after a remount": true,
		"read the daemon's memory": true, "write over our program": true, "write in the home": true, "leave by a change of root": true,
		"mount the whole elsewhere": true,
	}
	for name, script := range attempts {
		if spare[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, None)
			t.Setenv("HOME", t.TempDir())
			t.Setenv("TMPDIR", t.TempDir())
			if out, exit := w.run(t, script); !exit.OK() && !strings.Contains(out, topSecret) {
				t.Errorf("it failed without walls: %s", out)
			}
		})
	}
}

// untouched makes sure that nothing outside the tree has changed.
func (w world) untouched(t *testing.T) {
	t.Helper()
	for path, want := range map[string]string{
		filepath.Join(w.outside, "file"): "plain", filepath.Join(w.data, "token"): topSecret, filepath.Join(w.other, "file"): topSecret,
	} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q %v", path, got, err)
		}
	}
	for dir, want := range map[string]int{w.outside: 1, w.data: 4, w.other: 1, filepath.Join(w.data, "worktrees"): 2} {
		got, err := os.ReadDir(dir)
		got = slices.DeleteFunc(got, func(e os.DirEntry) bool { return e.Name() == ".git" })
		if err != nil || len(got) != want {
			t.Errorf("%s: %v %v", dir, got, err)
		}
	}
	home, _ := os.UserHomeDir()
	for _, path := range []string{filepath.Join(home, ".pulse-sandbox-test"), "/dev/pulse-sandbox-test"} {
		if _, err := os.Lstat(path); err == nil {
			_ = os.Remove(path)
			t.Errorf("%s was made", path)
		}
	}
}

// What an agent needs goes on as if there were no walls.
func TestWorkGoesOn(t *testing.T) {
	for name, script := range map[string]string{
		"read and write the tree":    `cat file && echo new >file && mkdir -p a/b && mv file a/b && rm -r a && ln -s x y && mkfifo f && echo done >file`,
		"links within the tree":      `echo x >one && ln one two && mkdir d && mv one d/ && mv d e && cat e/one`,
		"the CLI's state":            `cat $STATE/state && echo new >$STATE/state.tmp && mv $STATE/state.tmp $STATE/state && grep new $STATE/state`,
		"temporary files":            `f=$(mktemp) && echo x >$f && mv $f moved && d=$(mktemp -d) && rm -r $d`,
		"a device of its own":        `{ echo x >/dev/pulse-sandbox-test; } 2>/dev/null || echo refused`,
		"from the tree to temp":      `echo x >one && mv one $TMPDIR/one && mv $TMPDIR/one two`,
		"git":                        `git status && echo more >>file && git add -A && git commit -q -m more && git log | grep start && git cat-file -p HEAD~1:file | grep plain`,
		"what is readable":           `cat $OUTSIDE/file && ls $OUTSIDE && cat /etc/passwd && ls /usr/bin >/dev/null`,
		"devices":                    `echo x >/dev/null && head -c 1 /dev/zero && head -c 4 /dev/urandom && : </dev/null && echo x >/dev/stderr && echo y >/dev/stdout`,
		"where it is":                `[ "$(pwd)" = "$TREE" ] && mkdir q && cd q && cd .. && [ "$(realpath file)" = "$TREE/file" ]`,
		"processes":                  `sleep 100 & kill $! ; wait $! || : ; cat /proc/self/status >/dev/null && ls /proc/self/fd && { sh -c 'kill -TERM $$' || [ $? = 143 ]; }`,
		"a pipe and a here document": "cat <<E | grep here\nhere\nE",
		"names of hosts":             `cat /etc/resolv.conf || ! [ -e /etc/resolv.conf ]`,
		"its own exit code":          `echo fine`,
	} {
		both(t, func(t *testing.T, l Level) {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, l)
				if name == "git" {
					w.withGit(t)
				}
				if out, exit := w.run(t, "set -e\n"+script); !exit.OK() {
					t.Errorf("%+v: %s", exit, out)
				}
				w.untouched(t)
			})
		})
	}
}

// A part of what may be written can be taken out again.
func TestReadInsideWrite(t *testing.T) {
	each(t, func(t *testing.T, l Level) {
		w := newWorld(t, l)
		w.withGit(t)
		w.policy.Read = append(w.policy.Read, filepath.Join(w.tree, ".git"), filepath.Join(w.state, "state"))
		out, exit := w.run(t, `cat .git/HEAD $STATE/state && ! { echo x >.git/config; } && ! { echo x >$STATE/state; } && ! rm $STATE/state && echo y >file`)
		if !exit.OK() {
			t.Error(out)
		}
	})
}

// Hidden places in an ordinary folder leave its other content readable.
func TestSiblingsOfHiddenPaths(t *testing.T) {
	both(t, func(t *testing.T, l Level) {
		w := newWorld(t, l)
		w.policy.Hidden = append(w.policy.Hidden, filepath.Join(w.outside, "secret"), filepath.Join(w.outside, ".git", "config"), filepath.Join(w.outside, "later"))
		w.withGit(t)
		write1(t, filepath.Join(w.outside, "secret", "file"), topSecret)
		out, exit := w.run(t, `cat $OUTSIDE/file $OUTSIDE/.git/HEAD; ! cat $OUTSIDE/secret/file && ! cat $OUTSIDE/.git/config`)
		if !exit.OK() || strings.Contains(out, topSecret) || !strings.Contains(out, "plain") || !strings.Contains(out, "ref:") || strings.Contains(out, "[core]") {
			t.Error(out)
		}
	})
}

// Sockets of services outside that would do the agent's bidding.
func TestSockets(t *testing.T) {
	listen := func(t *testing.T, address string) {
		t.Helper()
		ln, err := net.Listen("unix", address)
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		if dial(address) != 0 {
			t.Fatal("nobody answers outside")
		}
	}
	each(t, func(t *testing.T, l Level) {
		w := newWorld(t, l)
		abstract, file := fmt.Sprintf("@pulse-test-%d-%s", os.Getpid(), l), fmt.Sprintf("/run/pulse-test-%d-%s", os.Getpid(), l)
		listen(t, abstract)
		if _, exit := w.run(t, "$ME play-dial "+abstract); exit.OK() != !scoped(abiVersion()) {
			t.Errorf("abstract socket: %+v", exit)
		}
		listen(t, file)
		if _, exit := w.run(t, "$ME play-dial "+file); exit.OK() != (l == Landlock && !socketsScoped(abiVersion())) {
			t.Errorf("socket in /run: %+v", exit)
		}
	})
}
