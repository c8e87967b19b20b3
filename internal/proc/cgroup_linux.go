package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Groups makes cgroups (version 2) below this process's own, where a kernel
// and whoever set it up let it. In them the kernel keeps the limits of a
// family, which are otherwise looked at from time to time.
type Groups struct {
	base string
	next int
}

// leaf is where this process moves to: the kernel gives limits to the groups
// below a group only while no process is in that group itself.
const leaf = "pulse-itself"

var controllers = []string{"memory", "pids"}

// FindGroups says why there are none, if so. It may move this process into a
// group below its own. Not for concurrent use.
func FindGroups() (*Groups, error) {
	base, err := ownGroup()
	if err != nil {
		return nil, err
	}
	return &Groups{base: base}, prepareGroup(base)
}

// CheckGroups says why there are none, and changes nothing.
func CheckGroups() error {
	base, err := ownGroup()
	if err != nil {
		return err
	}
	return checkGroup(base)
}

func ownGroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	base, err := groupOf(string(mounts), string(own))
	if err == nil && filepath.Base(base) == leaf { // this process has moved already
		base = filepath.Dir(base)
	}
	return base, err
}

// groupOf gives the folder of a process's group.
func groupOf(mountinfo, cgroup string) (string, error) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		root, at := fields[3], fields[4]
		for line := range strings.Lines(cgroup) {
			path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
			if !ok {
				continue
			}
			if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
				return filepath.Join(at, rel), nil
			}
		}
	}
	return "", errors.New("there are no cgroups of version 2 here")
}

// checkGroup says why the groups below base can have no limits. Where they
// have none yet, this process would have to move out of their way, which it
// does only where base was handed over to it: it is no other user's, and of
// root's it is one that is marked as handed over.
func checkGroup(base string) error {
	if err := unix.Access(base, unix.W_OK); err != nil {
		return fmt.Errorf("%s is not ours to change: %w", base, err)
	}
	if missing := lacking(base, "cgroup.controllers"); missing != "" {
		return fmt.Errorf("%s has no controller %q", base, missing)
	}
	if lacking(base, "cgroup.subtree_control") != "" && os.Geteuid() == 0 && !handedOver(base) {
		return fmt.Errorf("%s is not handed over to this program (of systemd: Delegate=yes)", base)
	}
	return nil
}

// prepareGroup has the controllers given to the groups below base.
func prepareGroup(base string) error {
	if err := checkGroup(base); err != nil || lacking(base, "cgroup.subtree_control") == "" {
		return err
	}
	here := filepath.Join(base, leaf)
	if err := os.Mkdir(here, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := tell(here, "cgroup.procs", "0"); err != nil {
		return err
	}
	if err := tell(base, "cgroup.subtree_control", "+"+strings.Join(controllers, " +")); err != nil {
		return errors.Join(err, tell(base, "cgroup.procs", "0"), os.Remove(here))
	}
	return nil
}

func lacking(dir, file string) string {
	b, err := os.ReadFile(filepath.Join(dir, file))
	have := bytes.Fields(b)
	for _, c := range controllers {
		found := false
		for _, one := range have {
			found = found || string(one) == c
		}
		if err != nil || !found {
			return c
		}
	}
	return ""
}

func handedOver(dir string) bool {
	var buf [16]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, buf[:]); err == nil && string(buf[:n]) == "1" {
			return true
		}
	}
	return false
}

func tell(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Group is one family's.
type Group struct {
	dir   string
	procs *os.File
}

// New makes one with the limits of a family.
func (gs *Groups) New(l Limits) (*Group, error) {
	gs.next++
	return newGroup(filepath.Join(gs.base, "pulse-"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(gs.next)), l)
}

func newGroup(dir string, l Limits) (*Group, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	var err error
	if l.Memory > 0 {
		// All of it ends at once: what is left of an agent without its parts is of no use.
		err = errors.Join(tell(dir, "memory.max", strconv.FormatUint(l.Memory, 10)), tell(dir, "memory.oom.group", "1"))
	}
	if l.Tasks > 0 {
		err = errors.Join(err, tell(dir, "pids.max", strconv.Itoa(l.Tasks)))
	}
	g := &Group{dir: dir}
	if err == nil {
		g.procs, err = os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	}
	if err != nil {
		_ = os.Remove(dir)
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	return g, nil
}

// OutOfMemory reports whether the kernel ended the family for what it held.
func (g *Group) OutOfMemory() bool {
	b, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	return err == nil && field(b, "oom_kill ") > 0
}

// Close ends what is left in the group, and the group.
func (g *Group) Close() error {
	err := g.procs.Close()
	_ = tell(g.dir, "cgroup.kill", "1") // Linux 5.14; before, the family was ended one by one
	for deadline := time.Now().Add(killBound); ; time.Sleep(killPoll) {
		removed := os.Remove(g.dir)
		if removed == nil || errors.Is(removed, os.ErrNotExist) {
			return err
		}
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("remove a cgroup: %w", removed))
		}
	}
}
