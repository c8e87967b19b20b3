package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestGroupOf(t *testing.T) {
	const v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	const inside = "30 23 0:26 /system.slice/box.service /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	for name, tt := range map[string]struct{ mounts, own, want string }{
		"plain":        {v2, "0::/user.slice/pulse.service\n", "/sys/fs/cgroup/user.slice/pulse.service"},
		"at the top":   {v2, "0::/\n", "/sys/fs/cgroup"},
		"both":         {"29 23 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n" + v2, "8:pids:/a\n0::/b\n", "/sys/fs/cgroup/b"},
		"a part of it": {inside, "0::/system.slice/box.service/a\n", "/sys/fs/cgroup/a"},
		"elsewhere":    {inside, "0::/user.slice\n", ""},
		"version 1":    {"29 23 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", "8:pids:/a\n", ""},
		"garbage":      {"x - y\n", "0::\n", ""},
	} {
		if got, err := groupOf(tt.mounts, tt.own); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

// A group is used only where it is complete and ours.
func TestPrepareGroup(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct{ file, text, want string }{
		{"other", "", `no controller "memory"`},
		{"cgroup.controllers", "cpu memory\n", `no controller "pids"`},
		{"cgroup.controllers", "cpu memory pids\n", "cgroup"}, // as root not handed over, as another user not a cgroup
		{"cgroup.subtree_control", "memory pids\n", ""},
	} {
		write(step.file, step.text)
		if step.want == "cgroup" && os.Geteuid() == 0 {
			step.want = "not handed over"
		}
		if err := prepareGroup(dir); (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("%s %q: %v", step.file, step.text, err)
		}
	}
}

// A child begins in its group, and what is left there ends with it.
func TestGroup(t *testing.T) {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	own, _ := os.ReadFile("/proc/self/cgroup")
	base, err := groupOf(string(mounts), string(own))
	if err != nil || !CanConfine {
		t.Skip(err)
	}
	g, err := newGroup(filepath.Join(base, "pulse-test"), Limits{})
	if err != nil {
		t.Skip(err)
	}
	p, err := Start(Spec{Path: "/bin/sh", Args: []string{"-c", "(sleep 100 & sleep 100) & exec grep ^0:: /proc/self/cgroup"}, Walls: Walls{Group: g}})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	n, _ := p.Stdout().Read(b)
	if got := strings.TrimSpace(string(b[:n])); !strings.HasSuffix(got, "/pulse-test") {
		t.Errorf("it began in %q", got)
	}
	if g.OutOfMemory() {
		t.Error("it ran out of memory")
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Error("it lives")
	}
}
