// Command suite runs the tests and says what they left out.
//
//	suite test [GO TEST FLAGS] PACKAGES     every test
//	suite features [GO TEST FLAGS]          the tests that docs/features.md names, each of which must pass
//
// It reads `go test -json`, prints one line a package and the whole output of what failed, and lists every skipped test
// with its reason. With CI=true a skip is a failure. It never retries a test.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("usage: suite test|features [FLAGS] [PACKAGES]")
	}
	switch args[0] {
	case "test":
		report, err := goTest(args[1:], out)
		if err != nil {
			return err
		}
		return report.verdict(out, os.Getenv("CI") == "true")
	case "features":
		return features("docs/features.md", args[1:], out)
	}
	return fmt.Errorf("unknown command %q; use test or features", args[0])
}

// goTest runs go test and returns what it reported; failing tests are in the report, not in the error.
func goTest(args []string, out io.Writer) (*report, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start go test: %w", err)
	}
	r := newReport(out)
	readErr := r.read(stdout)
	waitErr := cmd.Wait()
	if readErr != nil {
		return nil, readErr
	}
	r.status = waitErr
	return r, nil
}
