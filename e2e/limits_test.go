package e2e

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// An agent that takes more than it may is a failed attempt with the reason; what it started is gone, and the program goes on.
// The amounts are small, so that a limit that does not hold harms nobody.
func TestAnAgentThatTakesTooMuch(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"none", "landlock", "bubblewrap"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			needsSandbox(t, level)
			repo := e2etest.Repo(t)
			p := e2etest.New(t, e2etest.Options{Projects: one(repo), Script: "iterations: []", Env: []string{"PULSE_SANDBOX=" + level,
				"PULSE_LIMITS_PROCESSES=100", "PULSE_LIMITS_MEMORY=256MiB", "PULSE_LIMITS_WRITTEN=32MiB", "PULSE_LIMITS_FILE_SIZE=4MiB"}})
			p.Up()
			for _, greedy := range []struct{ name, run, why string }{
				{"processes", "for i in $(seq 200); do sleep 300 & done; wait", " that it may"},
				{"processes in sessions of their own", "for i in $(seq 200); do setsid sleep 300 & done; wait", " that it may"},
				{"memory", "dd if=/dev/zero of=/dev/null bs=400M", "MiB of memory, of 256 MiB that they may"},
				{"disk", "for i in $(seq 300); do dd if=/dev/zero of=fill$i bs=1M count=1 conv=fsync; sleep 0.02; done 2>&1; sleep 300", "to disk, of 32 MiB that it may"},
			} {
				if greedy.name == "disk" && !onDisk(p.DataDir) {
					continue
				}
				p.WriteScript("iterations: [[{run: '" + greedy.run + "'}, {signal: COMPLETE}]]")
				d := attempt(t, p, greedy.name, pulse.SessionFailed)
				if !strings.Contains(d.Session.StatusReason, "was ended: ") || !strings.Contains(d.Session.StatusReason, greedy.why) {
					t.Errorf("%s: %q", greedy.name, d.Session.StatusReason)
				}
				if left := strings.Join(p.Processes(), "; "); strings.Contains(left, "sleep 300") || strings.Contains(left, "dd if=") {
					t.Errorf("%s: left behind: %s", greedy.name, left)
				}
			}
			p.WriteScript("iterations: [[{run: 'dd if=/dev/zero of=big bs=64k count=128 2>errors || true; git add -A; git commit -qm big'}, {signal: COMPLETE}]]")
			d := attempt(t, p, "one file", pulse.SessionComplete)
			if got := len(repo.File(d.Session.BranchName, "big")); got > 4<<20 {
				t.Errorf("a file of %d bytes", got)
			}
		})
	}
}

// onDisk reports whether what is written there goes to a disk, not to memory alone.
func onDisk(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type != unix.TMPFS_MAGIC
}

// attempt runs one session to its end.
func attempt(t *testing.T, p *e2etest.Pulse, goal string, want pulse.SessionStatus) wire.SessionDetail {
	t.Helper()
	s, err := p.Client().Start(t.Context(), wire.Start{Goal: goal, ProjectName: "my-app"})
	if err != nil {
		t.Fatal(err)
	}
	return p.AwaitSession(string(s.ID), want)
}
