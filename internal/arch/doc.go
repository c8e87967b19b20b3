// Package arch checks the house rules of the source tree: who may import whom, how large things may grow, which names
// and calls do not occur. The import table is docs/architecture.md itself, so the page and the check cannot differ.
//
// It reads the files, and never asks the go command: a test that shells out is answered from the test cache after the
// tree has changed. It changes nothing, and its functions may be called at once.
package arch

import "fmt"

// Finding is one breach of a rule.
type Finding struct {
	Path string // file or folder, relative to the root
	Line int    // 0 where the finding is about the whole
	What string // what is wrong, and what to do
}

func (f Finding) String() string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.What)
	}
	return f.Path + ": " + f.What
}
