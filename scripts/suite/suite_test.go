package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func stream(events ...string) io.Reader { return strings.NewReader(strings.Join(events, "\n") + "\n") }

func reportOf(t *testing.T, events ...string) *report {
	t.Helper()
	r := newReport(io.Discard)
	if err := r.read(stream(events...)); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerdictTellsWhatWasSkippedAndWhy(t *testing.T) {
	r := reportOf(t,
		`{"Action":"run","Package":"m/a","Test":"TestA"}`,
		`{"Action":"pass","Package":"m/a","Test":"TestA"}`,
		`{"Action":"output","Package":"m/a","Test":"TestB","Output":"=== RUN   TestB\n"}`,
		`{"Action":"output","Package":"m/a","Test":"TestB","Output":"    b_test.go:3: no database\n"}`,
		`{"Action":"skip","Package":"m/a","Test":"TestB"}`,
		`{"Action":"skip","Package":"m/empty"}`)
	var out bytes.Buffer
	if err := r.verdict(&out, false); err != nil {
		t.Errorf("a skip failed the run outside CI: %v", err)
	}
	if want := "skipped m/a.TestB: b_test.go:3: no database"; !strings.Contains(out.String(), want) {
		t.Errorf("no line %q in:\n%s", want, &out)
	}
	if err := r.verdict(io.Discard, true); err == nil {
		t.Error("a skip passed in CI")
	}
}

func TestVerdictFails(t *testing.T) {
	for name, events := range map[string][]string{
		"a failed test": {`{"Action":"pass","Package":"m/a","Test":"TestA"}`, `{"Action":"fail","Package":"m/a","Test":"TestB"}`},
		"a failed package": {`{"Action":"pass","Package":"m/a","Test":"TestA"}`,
			`{"Action":"fail","Package":"m/b"}`},
		"no test at all": {`{"Action":"pass","Package":"m/a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := reportOf(t, events...).verdict(io.Discard, false); err == nil {
				t.Error("passed")
			}
		})
	}
}

func TestReportPrintsTheOutputOfFailuresAlone(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	err := r.read(stream(
		`{"Action":"output","Package":"m/a","Test":"TestA","Output":"quiet\n"}`,
		`{"Action":"pass","Package":"m/a","Test":"TestA"}`,
		`{"Action":"output","Package":"m/a","Test":"TestB","Output":"loud\n"}`,
		`{"Action":"fail","Package":"m/a","Test":"TestB"}`,
		`{"Action":"build-output","ImportPath":"m/c","Output":"c.go:1: syntax error\n"}`,
		`not json`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "loud\nc.go:1: syntax error\nnot json\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

const table = "# Features\n\n| id | promise | tests |\n|---|---|---|\n" +
	"| C1 | a goal | `a.TestOne`, `b/c.TestTwo/part_one` |\n| C2 | a result | a.FuzzThree |\n\n| other | table |\n|---|---|\n| x | y |\n"

func TestParseFeaturesReadsTheTable(t *testing.T) {
	rows, err := parseFeatures([]byte(table))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || len(rows[0].tests) != 2 || rows[0].tests[1] != (namedTest{"b/c", "TestTwo/part_one"}) {
		t.Errorf("rows %v", rows)
	}
	args := strings.Join(testArgs(rows), " ")
	if want := "-run ^(FuzzThree|TestOne|TestTwo)$ ./a ./b/c"; args != want {
		t.Errorf("arguments %s, want %s", args, want)
	}
}

func TestParseFeaturesRefuses(t *testing.T) {
	head := "| id | promise | tests |\n|---|---|---|\n"
	for name, text := range map[string]string{
		"no table":        "# Features\n",
		"no test":         head + "| C1 | a goal | |\n",
		"no promise":      head + "| C1 | | a.TestOne |\n",
		"not a test":      head + "| C1 | a goal | by hand |\n",
		"a row twice":     head + "| C1 | a | a.TestOne |\n| C1 | b | a.TestOne |\n",
		"a cell too many": head + "| C1 | a | b | a.TestOne |\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseFeatures([]byte(text)); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestCheckNamedFindsAMissingTest(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	source := "package a\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {}\n\n// func TestTwo(t *testing.T) {}\n"
	if err := os.WriteFile(filepath.Join(root, "a", "a_test.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := checkNamed(root, []feature{{"C1", []namedTest{{"a", "TestOne/sub"}}}}); err != nil {
		t.Errorf("an existing test was not found: %v", err)
	}
	if err := checkNamed(root, []feature{{"C2", []namedTest{{"a", "TestTwo"}}}}); err == nil || !strings.Contains(err.Error(), "C2") {
		t.Errorf("error %v, want one that names the row", err)
	}
}

func TestJudgeWantsEveryNamedTestToPass(t *testing.T) {
	rows := []feature{{"C1", []namedTest{{"a", "TestOne"}}}}
	for name, c := range map[string]struct {
		events []string
		ok     bool
	}{
		"passed":       {[]string{`{"Action":"pass","Package":"m/a","Test":"TestOne"}`}, true},
		"failed":       {[]string{`{"Action":"fail","Package":"m/a","Test":"TestOne"}`}, false},
		"skipped":      {[]string{`{"Action":"skip","Package":"m/a","Test":"TestOne"}`}, false},
		"another's":    {[]string{`{"Action":"pass","Package":"m/b","Test":"TestOne"}`}, false},
		"part skipped": {[]string{`{"Action":"skip","Package":"m/a","Test":"TestOne/x"}`, `{"Action":"pass","Package":"m/a","Test":"TestOne"}`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := judge(rows, "m", reportOf(t, c.events...), io.Discard)
			if (err == nil) != c.ok {
				t.Errorf("verdict %v", err)
			}
		})
	}
}

// What a failed test complained of stands at the end too, where one looks first; a test that took the program along is
// not silent.
func TestVerdictRepeatsWhatFailedTestsSaid(t *testing.T) {
	var printed, out bytes.Buffer
	r := newReport(&printed)
	if err := r.read(stream(
		`{"Action":"output","Package":"m/a","Test":"TestA","Output":"    a_test.go:7: 1, want 2\n"}`,
		`{"Action":"output","Package":"m/a","Test":"TestA","Output":"    other text\n"}`,
		`{"Action":"fail","Package":"m/a","Test":"TestA"}`,
		`{"Action":"output","Package":"m/a","Test":"TestB","Output":"panic: that\n"}`,
		`{"Action":"fail","Package":"m/a"}`)); err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(&out, false); err == nil {
		t.Error("passed")
	}
	if want := "FAILED m/a.TestA\n       a_test.go:7: 1, want 2\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in:\n%s", want, &out)
	}
	if want := "TestB did not end; it said:\npanic: that\n"; !strings.Contains(printed.String(), want) {
		t.Errorf("no %q in:\n%s", want, &printed)
	}
}
