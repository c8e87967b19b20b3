package arch

import (
	"path"
	"path/filepath"
	"strings"
)

// Layers holds every import against the table. Tests may, besides, import what exists for tests, what lies
// above or below their own folder, and any library.
func Layers(root string) ([]Finding, error) {
	tree, err := Load(root)
	if err != nil {
		return nil, err
	}
	rules, err := ReadTable(filepath.Join(root, filepath.FromSlash(TablePath)))
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, p := range tree.Packages {
		rule := ruleOf(rules, p)
		if rule == nil {
			found = append(found, Finding{Path: p.Dir, What: "no row of " + TablePath + " says what this package owns and may import"})
			continue
		}
		for _, f := range p.Files {
			found = append(found, breaches(tree.Module, p, f, rule)...)
		}
	}
	return found, nil
}

// ruleOf returns the package's row. A package that exists for tests needs none of its own: it may import its parent and
// what its parent may.
func ruleOf(rules []Rule, p *Package) *Rule {
	rule := ruleFor(rules, p.Dir)
	parent := path.Dir(p.Dir)
	if rule != nil || !p.forTests() || parent == "." {
		return rule
	}
	if rule = ruleFor(rules, parent); rule == nil {
		return nil
	}
	return &Rule{p.Dir, append([]string{parent}, rule.Imports...), rule.Libraries}
}

// ruleFor returns the first row that matches; special rows stand before general ones.
func ruleFor(rules []Rule, dir string) *Rule {
	for i := range rules {
		if matches(rules[i].Package, dir) {
			return &rules[i]
		}
	}
	return nil
}

func breaches(module string, p *Package, f *File, rule *Rule) []Finding {
	var found []Finding
	for name, pos := range f.imports() {
		dir, local := strings.CutPrefix(name, module+"/")
		switch {
		case local && !mayImport(p, f, rule, dir):
			found = append(found, f.at(pos, "%s must not import %s; %s lists what it may", p.Dir, dir, TablePath))
		case !local && !isStandard(name) && !f.Test && !p.forTests() && !hasPrefix(rule.Libraries, name):
			found = append(found, f.at(pos, "%s must not use the library %s; %s lists those it may", p.Dir, name, TablePath))
		}
	}
	return found
}

func mayImport(p *Package, f *File, rule *Rule, dir string) bool {
	if dir == p.Dir { // an external test package
		return f.Test
	}
	if anyMatches(rule.Imports, dir) {
		return true
	}
	return f.Test && (strings.HasSuffix(path.Base(dir), "test") || related(dir, p.Dir))
}

func related(a, b string) bool { return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/") }

// isStandard: the first element of a library's path is a host, which has a dot.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func hasPrefix(libraries []string, importPath string) bool {
	for _, library := range libraries {
		if library == "..." || importPath == library || strings.HasPrefix(importPath, library+"/") {
			return true
		}
	}
	return false
}
