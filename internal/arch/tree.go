package arch

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// Tree is the module's parsed source.
type Tree struct {
	Module   string
	Packages []*Package
}

// Package is one folder of Go files; an external test package counts to its folder.
type Package struct {
	Dir   string // relative to the root, with slashes
	Name  string
	Files []*File
}

// File is one parsed file.
type File struct {
	Path  string
	Test  bool
	Lines int
	fset  *token.FileSet
	ast   *ast.File
}

func (f *File) at(pos token.Pos, format string, args ...any) Finding {
	return Finding{f.Path, f.fset.Position(pos).Line, fmt.Sprintf(format, args...)}
}

// forTests says whether the package exists for tests alone: a fake, a conformance suite, a harness.
func (p *Package) forTests() bool {
	return strings.HasSuffix(path.Base(p.Dir), "test") || p.Dir == "e2e" || strings.HasPrefix(p.Dir, "e2e/")
}

func (p *Package) isScript() bool { return strings.HasPrefix(p.Dir, "scripts/") }

// Load parses every Go file of the module at root.
func Load(root string) (*Tree, error) {
	module, err := modulePath(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	packages := map[string]*Package{}
	err = walk(root, func(rel string) error {
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		file, err := parse(root, rel)
		if err != nil {
			return err
		}
		dir := path.Dir(rel)
		if packages[dir] == nil {
			packages[dir] = &Package{Dir: dir}
		}
		p := packages[dir]
		p.Files = append(p.Files, file)
		if name := file.ast.Name.Name; p.Name == "" || !file.Test {
			p.Name = strings.TrimSuffix(name, "_test")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read source tree: %w", err)
	}
	tree := &Tree{Module: module}
	for _, p := range packages {
		tree.Packages = append(tree.Packages, p)
	}
	sort.Slice(tree.Packages, func(i, j int) bool { return tree.Packages[i].Dir < tree.Packages[j].Dir })
	return tree, nil
}

func parse(root, rel string) (*File, error) {
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(rel)))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, rel, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &File{Path: rel, Test: strings.HasSuffix(rel, "_test.go"), Lines: bytes.Count(source, []byte("\n")), fset: fset, ast: parsed}, nil
}

// walk calls visit with every file that belongs to the module: not what git ignores, not testdata, not
// a module within the module.
func walk(root string, visit func(rel string) error) error {
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			// Somebody's editor or test removed the file between listing and reading it.
			if errors.Is(err, fs.ErrNotExist) && name != root {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			if rel != "." && skipDir(root, rel) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		return visit(rel)
	})
}

func skipDir(root, rel string) bool {
	base := path.Base(rel)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules" || rel == "bin" {
		return true
	}
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(rel), "go.mod"))
	return err == nil
}

func modulePath(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("find module: %s names none", file)
}

// imports returns the import paths of a file with their positions.
func (f *File) imports() map[string]token.Pos {
	found := map[string]token.Pos{}
	for _, spec := range f.ast.Imports {
		found[strings.Trim(spec.Path.Value, `"`)] = spec.Pos()
	}
	return found
}

// nameOf returns the name under which the file knows an imported package, "" when it does not import it.
func (f *File) nameOf(importPath string) string {
	for _, spec := range f.ast.Imports {
		if strings.Trim(spec.Path.Value, `"`) != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// uses returns where the file mentions one of the names of an imported package.
func (f *File) uses(importPath string, names ...string) []token.Pos {
	known := f.nameOf(importPath)
	if known == "" {
		return nil
	}
	if known == "." {
		return []token.Pos{f.imports()[importPath]} // names cannot be told apart: the import itself is the breach
	}
	var found []token.Pos
	ast.Inspect(f.ast, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && x.Name == known {
			for _, name := range names {
				if selector.Sel.Name == name {
					found = append(found, selector.Pos())
				}
			}
		}
		return true
	})
	return found
}
