//go:build linux

package sandbox

import (
	"testing"

	"pulseloop/internal/proc"
)

// BenchmarkStart is what the walls add to the start of a command.
func BenchmarkStart(b *testing.B) {
	r, err := tried()
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range []Level{None, Landlock, Bubblewrap} {
		b.Run(string(l), func(b *testing.B) {
			if !r.Works(l) {
				b.Skip(r.Why[l])
			}
			dir := b.TempDir()
			s := New(Config{Self: []string{testBinary(b), playSelf}})
			for b.Loop() {
				c, release, err := s.Wrap(Policy{Level: l, Write: []string{dir}, Hidden: []string{"/root/.ssh", "/root/.local/share"}}, Command{Path: "/bin/true", Dir: dir, Env: proc.BaseEnv()})
				if err != nil {
					b.Fatal(err)
				}
				if _, exit, err := proc.Output(b.Context(), c); err != nil || !exit.OK() {
					b.Fatal(exit, err)
				}
				release()
			}
		})
	}
}
