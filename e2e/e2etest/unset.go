package e2etest

import (
	"slices"
	"strings"
)

// Unsetenv takes variables out of the environment of every later start and command: for what a program does that is told
// nothing. An empty value is something else: it wins over the configuration file.
func (p *Pulse) Unsetenv(names ...string) {
	p.env = slices.DeleteFunc(slices.Clone(p.env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(names, name)
	})
}

// Write puts a file into the home.
func (p *Pulse) Write(name, content string) {
	p.t.Helper()
	p.write(name, content)
}
