package arch

import (
	"fmt"
	"go/ast"
	"go/token"
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
				found = append(found, sleeps(f)...)
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

// sleeps finds waiting by the clock in tests. Within a synctest bubble the clock is a fake and Sleep is how it is moved;
// a function that a test in the same file calls is taken to be called from its bubble.
func sleeps(f *File) []Finding {
	var found []Finding
	bubbles := synctest(f)
	for _, pos := range f.uses("time", "Sleep") {
		inBubble := false
		for _, b := range bubbles {
			inBubble = inBubble || b.Pos() <= pos && pos < b.End()
		}
		if !inBubble && (len(bubbles) == 0 || inTestFunction(f, pos)) {
			found = append(found, f.at(pos, "tests do not sleep: wait for a signal, poll with a deadline, or use testing/synctest"))
		}
	}
	return found
}

// synctest returns the calls of synctest.Test.
func synctest(f *File) []*ast.CallExpr {
	known := f.nameOf("testing/synctest")
	var calls []*ast.CallExpr
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && known != "" {
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Test" {
				if x, ok := selector.X.(*ast.Ident); ok && x.Name == known {
					calls = append(calls, call)
				}
			}
		}
		return true
	})
	return calls
}

func inTestFunction(f *File, pos token.Pos) bool {
	for _, decl := range f.ast.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok && function.Pos() <= pos && pos < function.End() {
			return strings.HasPrefix(function.Name.Name, "Test")
		}
	}
	return false
}
