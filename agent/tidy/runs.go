package tidy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pulseloop/internal/scratch"
)

// RunDir is where the files of running tasks lie in a data directory.
func RunDir(data string) string { return filepath.Join(data, "run") }

func runLock(data string) string { return filepath.Join(data, "run.lock") }

// ClearRuns removes the files of tasks that a daemon left which was killed, if
// no other one lives in the data directory, and keeps others from doing the
// same until release: a daemon calls it before its first task.
func ClearRuns(data string) (release func() error, err error) {
	release, alone, err := scratch.Hold(runLock(data))
	if err != nil || !alone {
		return release, err
	}
	left, err := runs(data)
	for _, dir := range left {
		err = errors.Join(err, scratch.RemoveAll(dir))
	}
	return release, err
}

// runs are the directories of tasks. They are nobody's if no daemon lives.
func runs(data string) ([]string, error) {
	found, err := os.ReadDir(RunDir(data))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list the files of runs: %w", err)
	}
	var out []string
	for _, e := range found {
		out = append(out, filepath.Join(RunDir(data), e.Name()))
	}
	return out, nil
}
