//go:build !linux

package proc

import (
	"errors"
	"os"
)

// Groups is for Linux.
type Groups struct{}

// FindGroups finds none.
func FindGroups() (*Groups, error) { return nil, errors.New("there are cgroups on Linux only") }

// CheckGroups finds none.
func CheckGroups() error { return errors.New("there are cgroups on Linux only") }

// New makes none.
func (*Groups) New(Limits) (*Group, error) { return nil, errors.New("there are cgroups on Linux only") }

// Group is for Linux.
type Group struct{ procs *os.File }

// OutOfMemory is not known.
func (*Group) OutOfMemory() bool { return false }

// Close has nothing to end.
func (*Group) Close() error { return nil }
