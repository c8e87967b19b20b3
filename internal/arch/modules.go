package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// DependenciesPath is where every library's reason stands, relative to the root.
const DependenciesPath = "docs/dependencies.md"

var requirement = regexp.MustCompile(`(?m)^\s*(?:require\s+)?([a-z0-9.-]+\.[a-z]+/\S+) v\S+(.*)$`)

// Modules holds go.mod against the page of dependencies: a library that is used directly has a line there, and a line
// has a library.
func Modules(root string) ([]Finding, error) {
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("read modules: %w", err)
	}
	page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(DependenciesPath)))
	if err != nil {
		return nil, fmt.Errorf("read dependencies: %w", err)
	}
	explained := explainedModules(string(page))
	required := map[string]bool{}
	var found []Finding
	for _, m := range requirement.FindAllStringSubmatch(string(module), -1) {
		required[m[1]] = true
		if !strings.Contains(m[2], "// indirect") && !hasPrefix(explained, m[1]) {
			found = append(found, Finding{Path: "go.mod", What: fmt.Sprintf("%s is not explained in %s", m[1], DependenciesPath)})
		}
	}
	for _, name := range explained {
		if !required[name] {
			found = append(found, Finding{Path: DependenciesPath, What: fmt.Sprintf("%s is explained, but go.mod does not require it", name)})
		}
	}
	return found, nil
}

// explainedModules returns the module paths in the first column of the page's tables.
func explainedModules(page string) []string {
	var names []string
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		for _, name := range inQuotes(cells[1]) {
			if strings.Contains(name, ".") && strings.Contains(name, "/") {
				names = append(names, name)
			}
		}
	}
	return names
}
