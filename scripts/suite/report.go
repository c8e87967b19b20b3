package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
)

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

type testKey struct{ pkg, test string }

type report struct {
	out    io.Writer
	result map[testKey]string // pass, fail, skip
	output map[testKey]*strings.Builder
	failed []failure
	status error // of go test itself
}

// failure is a test that failed, with the lines in which it says why.
type failure struct {
	name string
	why  []string
}

// maxWhy is how many lines of a failed test are repeated at the end.
const maxWhy = 8

var complaint = regexp.MustCompile(`^\s+\w+_test\.go:\d+: `)

func complaints(text string) (out []string) {
	for line := range strings.Lines(text) {
		if complaint.MatchString(line) && len(out) < maxWhy {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// unfinished prints what the tests of a package said that never ended: one
// of them took the test's program along.
func (r *report) unfinished(pkg string) {
	for key, b := range r.output {
		if key.pkg == pkg && r.result[key] == "" {
			fmt.Fprintf(r.out, "%s did not end; it said:\n%s", key.test, b)
			delete(r.output, key)
		}
	}
}

func newReport(out io.Writer) *report {
	return &report{out: out, result: map[testKey]string{}, output: map[testKey]*strings.Builder{}}
}

func (r *report) read(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(r.out, "%s", line) // the go command's own words
			} else {
				r.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test output: %w", err)
		}
	}
}

func (r *report) take(e event) {
	key := testKey{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if r.output[key] == nil {
			r.output[key] = &strings.Builder{}
		}
		r.output[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		r.result[key] = e.Action
		r.finished(key, e)
	}
}

// finished prints what is worth reading and forgets the rest: the output of a long suite need not stay in memory.
func (r *report) finished(key testKey, e event) {
	text := ""
	if b := r.output[key]; b != nil {
		text = b.String()
	}
	switch {
	case e.Action == "fail":
		r.failed = append(r.failed, failure{strings.TrimSuffix(key.pkg+"."+key.test, "."), complaints(text)})
		fmt.Fprint(r.out, text)
		if key.test == "" {
			r.unfinished(key.pkg)
		}
	case key.test == "" && e.Action == "pass":
		fmt.Fprintf(r.out, "ok    %-50s %.1fs\n", key.pkg, e.Elapsed)
	}
	if e.Action != "skip" {
		delete(r.output, key)
	}
}

// skipped returns "package.Test: reason" for every skipped test. A package without test files is not one.
func (r *report) skipped() []string {
	var out []string
	for key, result := range r.result {
		if result != "skip" || key.test == "" {
			continue
		}
		out = append(out, key.pkg+"."+key.test+": "+reason(r.output[key]))
	}
	sort.Strings(out)
	return out
}

func reason(b *strings.Builder) string {
	if b == nil {
		return "no reason given"
	}
	var said []string
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}

// verdict prints the summary and returns an error when the run may not count as a success.
func (r *report) verdict(out io.Writer, strict bool) error {
	passed, skips := 0, r.skipped()
	for key, result := range r.result {
		if key.test != "" && result == "pass" {
			passed++
		}
	}
	fmt.Fprintf(out, "\n%d passed, %d skipped, %d failed\n", passed, len(skips), len(r.failed))
	for _, s := range skips {
		fmt.Fprintln(out, "skipped", s)
	}
	sort.Slice(r.failed, func(i, j int) bool { return r.failed[i].name < r.failed[j].name })
	for _, f := range r.failed {
		fmt.Fprintln(out, "FAILED", f.name)
		for _, line := range f.why {
			fmt.Fprintln(out, "      ", line)
		}
	}
	switch {
	case len(r.failed) > 0:
		return errors.New("tests failed")
	case r.status != nil:
		return fmt.Errorf("run go test: %w", r.status)
	case passed == 0:
		return errors.New("no test ran")
	case strict && len(skips) > 0:
		return errors.New("tests were skipped, which counts as a failure in CI")
	}
	return nil
}
