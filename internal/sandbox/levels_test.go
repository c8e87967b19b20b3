//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	s := newSandbox(t)
	r, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	for l, want := range map[Level]Level{None: None, Auto: r.Best, "": r.Best, r.Best: r.Best} {
		if got, err := s.Resolve(t.Context(), l); got != want || err != nil {
			t.Errorf("%q: %q %v", l, got, err)
		}
	}
	if _, err := s.Resolve(t.Context(), "jail"); err == nil || !strings.Contains(err.Error(), "landlock") {
		t.Errorf("unknown level: %v", err)
	}
}

// A level that cannot be had is an error with its reason, and auto takes the
// next one.
func TestLevelThatCannotBeHad(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "bwrap")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		cfg  Config
		l    Level
		want string
	}{
		"not installed": {Config{Bubblewrap: "/no/such/bwrap"}, Bubblewrap, "not installed"},
		"not permitted": {Config{Bubblewrap: broken}, Bubblewrap, "No permissions"},
		"no walls":      {Config{Bubblewrap: "/usr/bin/env"}, Bubblewrap, ""},
		"no self":       {Config{Self: []string{"/bin/false"}, SecondStart: true}, Landlock, "code 1"},
		"wrong self":    {Config{Self: []string{"/bin/sh", "-c", "shift; exec \"$@\""}, SecondStart: true}, Landlock, "could"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.cfg.Self == nil {
				tt.cfg.Self = []string{testBinary(t), playSelf}
			}
			s := New(tt.cfg)
			if _, err := s.Resolve(t.Context(), tt.l); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
			if got, err := s.Resolve(t.Context(), Auto); err != nil || got == tt.l {
				t.Errorf("auto is %q, %v", got, err)
			}
		})
	}
	if checkLandlock(0) == nil || checkLandlock(oldestABI-1) == nil || checkLandlock(oldestABI) != nil {
		t.Error("which versions of Landlock will do")
	}
}

func TestWrapRefuses(t *testing.T) {
	dir := t.TempDir()
	c := Command{Path: "/bin/true", Dir: dir}
	for name, p := range map[string]Policy{
		"unknown level":    {Level: "jail"},
		"unresolved level": {Level: Auto},
		"relative path":    {Level: Landlock, Write: []string{"tree"}},
		"missing tree":     {Level: Landlock, Write: []string{filepath.Join(dir, "none")}},
		"everything":       {Level: Landlock, Write: []string{"/"}},
		"everything read":  {Level: Bubblewrap, Hidden: []string{dir + "/../../../.."}},
	} {
		if w, _, err := newSandbox(t).Wrap(p, c); err == nil {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if _, _, err := newSandbox(t).Wrap(Policy{Level: Landlock}, Command{Path: "no-such-program-anywhere", Dir: dir}); err == nil {
		t.Error("missing program")
	}
	if _, _, err := New(Config{}).Wrap(Policy{Level: Landlock}, c); err == nil {
		t.Error("no self")
	}
	if got, _, err := New(Config{}).Wrap(Policy{Level: None}, c); err != nil || got.Path != c.Path {
		t.Errorf("none: %+v %v", got, err)
	}
}

func TestMainRefuses(t *testing.T) {
	for _, args := range [][]string{nil, {"{}"}, {"{}", "--"}, {"{", "--", "/bin/true"}, {`{"parent":1}`, "--", "/bin/true"}} {
		var said strings.Builder
		if code := Main(args, &said); code == 0 || said.Len() == 0 {
			t.Errorf("%q: %d %s", args, code, said.String())
		}
	}
}

func TestZones(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(root, name) }
	for _, dir := range []string{"data/trees/a", "data/trees/ab", "data/store/objects", "bin", "temp"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(at("data"), at("link")); err != nil {
		t.Fatal(err)
	}
	write1(t, at("bin/agent"), "")
	write1(t, at("data/agent"), "")
	p := Policy{Temp: at("temp"), Write: []string{at("link/trees/a"), at("bin")}, Read: []string{at("data/store/objects"), at("bin")}, Hidden: []string{at("link"), at("not/there")}}
	for program, dir := range map[string]access{"bin/agent": hidden, "data/agent": hidden} {
		z, err := p.resolve(at(program))
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]access{
			"data": dir, "data/token": hidden, "data/trees/a": write, "data/trees/a/x": write, "data/trees/ab": hidden,
			"data/store": hidden, "data/store/objects/x": read, "not/there/x": hidden, "bin/agent": write, "databases": hidden, // all of it lies in temp
		} {
			if got := z.of(at(path)); got != want {
				t.Errorf("%s: %d, want %d", path, got, want)
			}
		}
		if a := z.of("/etc/passwd"); a != read {
			t.Errorf("elsewhere: %d", a)
		}
		if a := z.of(at(program)); a == hidden {
			t.Errorf("%s cannot be started", program)
		}
	}
}
