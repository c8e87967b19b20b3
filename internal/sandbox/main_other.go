//go:build !linux

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
)

var errOther = errors.New("there are sandboxes on Linux only")

// Main is for Linux.
func Main(_ []string, stderr io.Writer) int {
	fmt.Fprintf(stderr, "pulse: start in the sandbox: %v\n", errOther)
	return 126
}

func abiVersion() int                 { return 0 }
func checkLandlock(int) error         { return errOther }
func scoped(int) bool                 { return false }
func socketsScoped(int) bool          { return false }
func ownUserNamespace() bool          { return false }
func ruleset(zones) (*os.File, error) { return nil, errOther }
func scopes() (*os.File, error)       { return nil, errOther }
