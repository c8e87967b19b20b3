package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// feature is one row of docs/features.md.
type feature struct {
	id    string
	tests []namedTest
}

// namedTest is written `agent/worktree.TestX` or `agent/worktree.TestX/subtest`: the package's folder, a dot, the name.
type namedTest struct{ dir, name string }

func (n namedTest) String() string { return n.dir + "." + n.name }

// function is the name without the subtest.
func (n namedTest) function() string {
	name, _, _ := strings.Cut(n.name, "/")
	return name
}

var testName = regexp.MustCompile(`^([a-z0-9_./-]+)\.((?:Test|Fuzz|Example)[A-Za-z0-9_]*(?:/[^\s,]+)?)$`)

// features checks the table and runs the tests it names.
func features(file string, flags []string, out io.Writer) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the table of features: %w", err)
	}
	rows, err := parseFeatures(data)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if err := checkNamed(".", rows); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	module, err := modulePath("go.mod")
	if err != nil {
		return err
	}
	r, err := goTest(append(flags, testArgs(rows)...), out)
	if err != nil {
		return err
	}
	return judge(rows, module, r, out)
}

// parseFeatures reads the rows `| id | promise | tests |`; the header names the columns, so other tables are left alone.
func parseFeatures(data []byte) ([]feature, error) {
	var rows []feature
	var errs []error
	seen := map[string]bool{}
	inTable := false
	for line := range bytes.Lines(data) {
		cells := tableCells(string(line))
		switch {
		case cells == nil:
			inTable = false
		case len(cells) == 3 && cells[0] == "id" && cells[2] == "tests":
			inTable = true
		case !inTable || strings.Trim(cells[0], "-: ") == "":
		case len(cells) != 3:
			errs = append(errs, fmt.Errorf("row %q has %d cells, want id, promise, tests", cells[0], len(cells)))
		case seen[cells[0]]:
			errs = append(errs, fmt.Errorf("row %s is there twice", cells[0]))
		default:
			seen[cells[0]] = true
			row, err := parseRow(cells)
			if err != nil {
				errs = append(errs, err)
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		errs = append(errs, errors.New("no row found under a header `| id | promise | tests |`"))
	}
	return rows, errors.Join(errs...)
}

func tableCells(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") || len(line) < 2 {
		return nil
	}
	cells := strings.Split(line[1:len(line)-1], "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

func parseRow(cells []string) (feature, error) {
	row := feature{id: cells[0]}
	if cells[1] == "" {
		return row, fmt.Errorf("row %s promises nothing", row.id)
	}
	for _, word := range strings.FieldsFunc(cells[2], func(r rune) bool { return r == ' ' || r == ',' || r == '`' }) {
		m := testName.FindStringSubmatch(word)
		if m == nil {
			return row, fmt.Errorf("row %s: %q is not a test; write folder.TestName", row.id, word)
		}
		row.tests = append(row.tests, namedTest{m[1], m[2]})
	}
	if len(row.tests) == 0 {
		return row, fmt.Errorf("row %s names no test", row.id)
	}
	return row, nil
}

// checkNamed finds every named function in the sources, so that a typing mistake is told before anything is built.
func checkNamed(root string, rows []feature) error {
	found := map[string]map[string]bool{}
	var errs []error
	for _, row := range rows {
		for _, test := range row.tests {
			if found[test.dir] == nil {
				functions, err := testFunctions(filepath.Join(root, test.dir))
				if err != nil {
					return err
				}
				found[test.dir] = functions
			}
			if !found[test.dir][test.function()] {
				errs = append(errs, fmt.Errorf("row %s: no test %s", row.id, test))
			}
		}
	}
	return errors.Join(errs...)
}

func testFunctions(dir string) (map[string]bool, error) {
	functions := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, fmt.Errorf("list tests: %w", err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read tests: %w", err)
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				functions[f.Name.Name] = true
			}
		}
	}
	return functions, nil
}

// testArgs selects all named tests in one run, so that packages build and run side by side. The same name in another
// package runs along; that costs little and hides nothing, for the verdict goes by package and name.
func testArgs(rows []feature) []string {
	names, dirs := map[string]bool{}, map[string]bool{}
	for _, row := range rows {
		for _, test := range row.tests {
			names[regexp.QuoteMeta(test.function())] = true
			dirs["./"+test.dir] = true
		}
	}
	return append([]string{"-run", "^(" + strings.Join(sortedKeys(names), "|") + ")$"}, sortedKeys(dirs)...)
}

func sortedKeys(set map[string]bool) []string {
	var keys []string
	for key := range set {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func modulePath(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	for line := range bytes.Lines(data) {
		if name, ok := strings.CutPrefix(string(line), "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("find module: %s names none", file)
}

// judge holds the results against the rows. A test that was skipped, in whole or in a part, has shown nothing.
func judge(rows []feature, module string, r *report, out io.Writer) error {
	broken, tests := 0, map[namedTest]bool{}
	for _, row := range rows {
		for _, test := range row.tests {
			tests[test] = true
			key := testKey{path.Join(module, test.dir), test.name}
			complaint := map[string]string{"pass": "", "fail": "failed", "skip": "was skipped", "": "did not run"}[r.result[key]]
			if part := skippedPart(r, key); complaint == "" && part != "" {
				complaint = "skipped its part " + part
			}
			if complaint != "" {
				broken++
				fmt.Fprintf(out, "feature %s: %s %s\n", row.id, test, complaint)
			}
		}
	}
	fmt.Fprintf(out, "%d features, shown by %d tests\n", len(rows), len(tests))
	switch {
	case broken > 0:
		return fmt.Errorf("%d named tests do not show their feature", broken)
	case r.status != nil:
		return fmt.Errorf("run go test: %w", r.status)
	}
	return nil
}

func skippedPart(r *report, key testKey) string {
	for other, result := range r.result {
		if result == "skip" && other.pkg == key.pkg && strings.HasPrefix(other.test, key.test+"/") {
			return other.test
		}
	}
	return ""
}
