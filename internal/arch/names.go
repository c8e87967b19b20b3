package arch

import (
	"fmt"
	"go/ast"
	"strings"
)

// A type with such a name is where everything ends up that nobody found a place for; so is such a package.
var (
	vagueTypes    = []string{"Engine", "Manager", "Service", "Helper"}
	vaguePackages = map[string]bool{"util": true, "utils": true, "common": true, "core": true, "models": true, "helper": true, "helpers": true}
)

// Names finds types and packages whose names say nothing.
func Names(root string) ([]Finding, error) {
	tree, err := Load(root)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, p := range tree.Packages {
		if vaguePackages[p.Name] || vaguePackages[lastElement(p.Dir)] {
			found = append(found, Finding{Path: p.Dir, What: fmt.Sprintf("a package named %s says nothing; name it after what it owns", p.Name)})
		}
		for _, f := range p.Files {
			for name, t := range typesOf(f) {
				for _, vague := range vagueTypes {
					if strings.HasSuffix(name, vague) || strings.EqualFold(name, vague) {
						found = append(found, f.at(t.Pos(), "a type named %s says nothing; name it after what it does", name))
					}
				}
			}
		}
	}
	return found, nil
}

func lastElement(dir string) string { return dir[strings.LastIndex(dir, "/")+1:] }

// call is a use of the standard library that has one place, or none.
type call struct {
	path  string
	names []string // none: the import itself
	why   string
}

var (
	startingChildren = []call{
		{"os/exec", []string{"Command", "CommandContext", "Cmd"}, "only internal/proc starts children"},
		{"os", []string{"StartProcess"}, "only internal/proc starts children"},
		{"syscall", []string{"ForkExec", "StartProcess"}, "only internal/proc starts children"},
	}
	inProduct = []call{
		{"html/template", nil, "it escapes prompts and chat texts as if they were pages"},
		{"testing", nil, "fakes live in packages whose names end in test"},
	}
	inTests = []call{
		{"time", []string{"Sleep"}, "wait for a signal, poll with a deadline, or use testing/synctest"},
	}
)

// Calls finds what may not be called where it is, and init functions: registration happens in cmd, by a map.
func Calls(root string) ([]Finding, error) {
	tree, err := Load(root)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, p := range tree.Packages {
		for _, f := range p.Files {
			if f.Test {
				found = append(found, misuses(f, inTests)...)
				continue
			}
			found = append(found, inits(f)...)
			if p.forTests() {
				continue
			}
			found = append(found, misuses(f, inProduct)...)
			if p.Dir != "internal/proc" && !p.isScript() {
				found = append(found, misuses(f, startingChildren)...)
			}
		}
	}
	return found, nil
}

func misuses(f *File, calls []call) []Finding {
	var found []Finding
	for _, c := range calls {
		if c.names == nil {
			if pos, ok := f.imports()[c.path]; ok {
				found = append(found, f.at(pos, "%s has no place here: %s", c.path, c.why))
			}
			continue
		}
		for _, pos := range f.uses(c.path, c.names...) {
			found = append(found, f.at(pos, "%s (%s) has no place here: %s", c.path, strings.Join(c.names, ", "), c.why))
		}
	}
	return found
}

func inits(f *File) []Finding {
	var found []Finding
	for _, decl := range f.ast.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok && function.Recv == nil && function.Name.Name == "init" {
			found = append(found, f.at(function.Pos(), "no init functions; cmd wires the parts together"))
		}
	}
	return found
}
