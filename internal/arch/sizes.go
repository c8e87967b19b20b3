package arch

import (
	"fmt"
	"go/ast"
)

// The budget. What outgrows it is cut where it says two things, not squeezed.
const (
	maxFile      = 600
	maxTestFile  = 1000
	maxFunction  = 100
	maxPackage   = 4000
	maxInterface = 7
)

// largerPackages: db holds one file an aggregate for two databases, and splitting it would export its rows.
var largerPackages = map[string]int{"db": 12000}

// Sizes holds files, functions, packages and interfaces against the budget.
func Sizes(root string) ([]Finding, error) {
	tree, err := Load(root)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, p := range tree.Packages {
		total := 0
		interfaces := interfacesOf(p)
		for _, f := range p.Files {
			limit := maxFile
			if f.Test {
				limit = maxTestFile
			} else {
				total += f.Lines
			}
			if f.Lines > limit {
				found = append(found, Finding{Path: f.Path, What: fmt.Sprintf("%d lines, at most %d", f.Lines, limit)})
			}
			found = append(found, longFunctions(f)...)
			found = append(found, wideInterfaces(f, interfaces)...)
		}
		limit := maxPackage
		if larger, ok := largerPackages[p.Dir]; ok {
			limit = larger
		}
		if total > limit {
			found = append(found, Finding{Path: p.Dir, What: fmt.Sprintf("%d lines without tests, at most %d", total, limit)})
		}
	}
	return found, nil
}

func longFunctions(f *File) []Finding {
	var found []Finding
	for _, decl := range f.ast.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := f.fset.Position(function.End()).Line - f.fset.Position(function.Pos()).Line + 1
		if lines > maxFunction {
			found = append(found, f.at(function.Pos(), "%s has %d lines, at most %d", function.Name.Name, lines, maxFunction))
		}
	}
	return found
}

func interfacesOf(p *Package) map[string]*ast.InterfaceType {
	found := map[string]*ast.InterfaceType{}
	for _, f := range p.Files {
		for name, t := range typesOf(f) {
			if i, ok := t.Type.(*ast.InterfaceType); ok {
				found[name] = i
			}
		}
	}
	return found
}

func wideInterfaces(f *File, local map[string]*ast.InterfaceType) []Finding {
	var found []Finding
	for name, t := range typesOf(f) {
		i, ok := t.Type.(*ast.InterfaceType)
		if !ok {
			continue
		}
		if n := methods(i, local, map[*ast.InterfaceType]bool{}); n > maxInterface {
			found = append(found, f.at(t.Pos(), "interface %s has %d methods, at most %d", name, n, maxInterface))
		}
	}
	return found
}

// methods counts those of embedded interfaces of the same package too: embedding is no way around the limit. One of
// another package counts as one.
func methods(i *ast.InterfaceType, local map[string]*ast.InterfaceType, seen map[*ast.InterfaceType]bool) int {
	if seen[i] {
		return 0
	}
	seen[i] = true
	n := 0
	for _, field := range i.Methods.List {
		switch t := field.Type.(type) {
		case *ast.FuncType:
			n += len(field.Names)
		case *ast.Ident:
			if embedded := local[t.Name]; embedded != nil {
				n += methods(embedded, local, seen)
			}
		case *ast.SelectorExpr:
			n++
		}
	}
	return n
}

// typesOf returns the file's type declarations, those within functions included.
func typesOf(f *File) map[string]*ast.TypeSpec {
	found := map[string]*ast.TypeSpec{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if t, ok := n.(*ast.TypeSpec); ok {
			found[t.Name.Name] = t
		}
		return true
	})
	return found
}
