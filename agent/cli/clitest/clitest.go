// Package clitest is the suite that every cli.Backend passes, with a stand-in
// child where the CLI is absent. It owns the contract's tests; what a single
// CLI says beyond it is tested beside its backend.
package clitest

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/pulse"
)

// Dialect is how one CLI says the things every CLI says. Each function gives
// whole lines, without the last line end; "" where it cannot say that.
type Dialect struct {
	// New makes the backend for the program at path, which waits at most
	// linger for more after a result (where it waits at all).
	New func(path string, linger time.Duration) cli.Backend

	Started   func() string
	Text      func(text string) string
	Delta     func(text string) string
	Thought   func(text string) string
	ToolStart func(id, name string) string
	ToolEnd   func(id, output string, failed bool) string
	Done      func(final string) string // ends the run; Usage below is reported
	Fail      func(message string) string

	Usage pulse.Usage // what Done reports
	Plain bool        // the CLI speaks text, not lines of JSON
	// NeedsLogin: the probe of a stand-in without credentials finds no login.
	NeedsLogin bool
}

// StandIn is the path of the program that plays a CLI.
func StandIn(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("the path of this package is unknown")
	}
	return filepath.Join(filepath.Dir(file), "testdata", "standin.sh")
}

// Run checks the whole contract.
func Run(t *testing.T, d Dialect) {
	s := suite{d}
	t.Run("Probe", s.probe)
	t.Run("Command", s.command)
	t.Run("Conversation", s.conversation)
	t.Run("ByteByByte", s.byteByByte)
	t.Run("Prompt", s.prompt)
	t.Run("DeafChild", s.deafChild)
	t.Run("LongLine", s.longLine)
	t.Run("Flood", s.flood)
	t.Run("NoResult", s.noResult)
	t.Run("ContextEnds", s.contextEnds)
	t.Run("Controls", s.controls)
	t.Run("CleanText", s.cleanText)
	t.Run("Concurrent", s.concurrent)
	if d.Plain {
		// A program that speaks text has no tools and gives no result before
		// its end, every line of it is an answer, and only its exit status
		// tells that it failed.
		return
	}
	t.Run("Noise", s.noise)
	t.Run("Failure", s.failure)
	t.Run("HangAfterResult", s.hangAfterResult)
	t.Run("ToolPairs", s.toolPairs)
}

type suite struct{ d Dialect }

func (s suite) backend() cli.Backend { return s.d.New("/bin/sh", time.Minute) }
