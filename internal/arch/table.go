package arch

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
)

// TablePath is where the import table stands, relative to the root.
const TablePath = "docs/architecture.md"

// Rule is one row of the import table.
type Rule struct {
	Package   string   // pattern of folders
	Imports   []string // patterns of folders it may import
	Libraries []string // module paths, or their beginnings, it may import beyond the standard library
}

var quoted = regexp.MustCompile("`([^`]+)`")

// ReadTable reads the table whose header begins `| package | may import | libraries |`; names stand in backquotes.
func ReadTable(file string) ([]Rule, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read import table: %w", err)
	}
	var rules []Rule
	inTable := false
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 5 {
			inTable = false
			continue
		}
		if strings.TrimSpace(cells[1]) == "package" && strings.TrimSpace(cells[2]) == "may import" {
			inTable = true
			continue
		}
		if !inTable || strings.Trim(cells[1], "- ") == "" {
			continue
		}
		for _, name := range inQuotes(cells[1]) {
			rules = append(rules, Rule{name, inQuotes(cells[2]), inQuotes(cells[3])})
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("read import table: %s has none", file)
	}
	return rules, nil
}

func inQuotes(cell string) []string {
	var names []string
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		names = append(names, m[1])
	}
	return names
}

// matches: `a/*` is every folder directly in a, `a/...` is a and every folder below it.
func matches(pattern, dir string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == base || strings.HasPrefix(dir, base+"/")
	}
	ok, err := path.Match(pattern, dir)
	return err == nil && ok
}

func anyMatches(patterns []string, dir string) bool {
	for _, pattern := range patterns {
		if pattern == "..." || matches(pattern, dir) {
			return true
		}
	}
	return false
}
