package e2etest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the binary of this test run. The tests of one run share it, as they share the source it is made of.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// atOnce is how many tests run beside each other: they mostly wait, for the pace at which a chat may be written to above all,
// so that the number of processors says little.
const atOnce = "8"

// Main runs the tests and removes the binary. A package that starts the program calls it from TestMain.
func Main(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", atOnce)
	}
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// Binary is the path of the program, built from this tree at the first call.
func Binary(t testing.TB) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = build() })
	if built.err != nil {
		t.Fatalf("build the program: %v", built.err)
	}
	return filepath.Join(built.dir, "pulse")
}

func build() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "pulse-e2e-bin-")
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "pulse"), "./cmd/pulse")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
}

// Root is the top of the source tree.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the source tree: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("find the source tree: there is no go.mod above the working directory")
		}
		dir = up
	}
}
