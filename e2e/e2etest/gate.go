package e2etest

import (
	"os"
	"path/filepath"
)

// A gate is where a scripted agent waits for its test, so that what happens in between happens for certain while the agent
// is at work. Hold is the shell command for a step `run`; the agent stands there until the test calls Open with the name.
func Hold(name string) string {
	return `touch "$HOME/` + name + `.held"; until [ -e "$HOME/` + name + `.open" ]; do sleep 0.02; done`
}

// AwaitHeld returns when an agent stands at the gate.
func (p *Pulse) AwaitHeld(name string) {
	p.t.Helper()
	Await(p.t, "an agent at the gate "+name, func() bool {
		_, err := os.Stat(filepath.Join(p.Home, name+".held"))
		return err == nil
	})
}

// Open lets whoever stands at the gate go on, and everybody after.
func (p *Pulse) Open(name string) {
	p.t.Helper()
	p.write(name+".open", "")
}
