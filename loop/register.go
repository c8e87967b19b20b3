package loop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"pulseloop/pulse"
)

// Inspect looks at a repository: its root directory and its HEAD branch. A
// path that is no repository, or one that cannot be worked on, is an Error
// with the fix.
type Inspect func(ctx context.Context, path string) (root, branch string, err error)

// Registrar makes projects out of repositories below the allowed roots.
type Registrar struct {
	store   Store
	inspect Inspect
	roots   []string
	clock   func() time.Time
}

// NewRegistrar returns a Registrar; roots are absolute directories.
func NewRegistrar(store Store, inspect Inspect, roots []string, clock func() time.Time) *Registrar {
	if clock == nil {
		clock = time.Now
	}
	return &Registrar{store: store, inspect: inspect, roots: roots, clock: clock}
}

var projectName = regexp.MustCompile(`^[\p{L}\p{N}][\p{L}\p{N}._-]*$`)

// Register returns the project of a name, making it if the repository at
// path may be worked on. A name keeps its path: the same name with another
// path is a conflict. With an empty path the name must be known.
func (r *Registrar) Register(ctx context.Context, name, path string) (pulse.Project, error) {
	if !projectName.MatchString(name) || utf8.RuneCountInString(name) > 64 {
		return pulse.Project{}, pulse.Invalid(fmt.Sprintf("%.80q cannot be a project's name", name),
			"use letters, digits, '.', '_' and '-', at most 64, starting with a letter or digit")
	}
	known, err := r.store.ProjectByName(ctx, name)
	exists := err == nil
	if err != nil && pulse.CodeOf(err) != pulse.CodeNotFound {
		return pulse.Project{}, err
	}
	if path == "" {
		if exists {
			return known, nil
		}
		return pulse.Project{}, &pulse.Error{Code: pulse.CodeUnprocessed, Message: fmt.Sprintf("there is no project %q", name),
			Hint: "give projectPath with the path of its repository"}
	}
	real, err := r.allowed(path)
	if err != nil {
		return pulse.Project{}, err
	}
	root, branch, err := r.inspect(ctx, real)
	if err != nil {
		return pulse.Project{}, unprocessable(err)
	}
	if exists {
		if known.Path != root {
			return pulse.Project{}, pulse.Conflict(fmt.Sprintf("the project %q is the repository at %s", name, known.Path), "choose another projectName for "+root)
		}
		return known, nil
	}
	now := r.clock().UTC()
	p := pulse.Project{ID: pulse.ProjectID(pulse.NewUUID(now)), Name: name, Path: root, BaseBranch: branch, CreatedAt: now}
	if err := r.store.Apply(ctx, pulse.Guard{}, pulse.Change{Project: &p}); err != nil {
		// Two that registered the name at once: one of them made it.
		if known, again := r.store.ProjectByName(ctx, name); again == nil && known.Path == root {
			return known, nil
		}
		return pulse.Project{}, err
	}
	return p, nil
}

// allowed resolves the path, links included, and checks that it lies below
// one of the roots.
func (r *Registrar) allowed(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", pulse.Invalid(fmt.Sprintf("the path %.200q is not absolute", path), "give the full path of the repository")
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", &pulse.Error{Code: pulse.CodeUnprocessed, Message: fmt.Sprintf("there is nothing at %s", path),
			Hint: "give the path of an existing git repository", Err: err}
	}
	for _, root := range r.roots {
		if resolved, err := filepath.EvalSymlinks(root); err == nil {
			root = resolved
		}
		if rel, err := filepath.Rel(root, real); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return real, nil
		}
	}
	return "", &pulse.Error{Code: pulse.CodeUnprocessed, Message: fmt.Sprintf("%s is not below an allowed root", path),
		Hint: "allowed are: " + strings.Join(r.roots, ", ") + "; add others to allowed_roots or PULSE_ALLOWED_ROOTS"}
}

// unprocessable turns what is wrong with a repository into the answer that
// the request was understood and cannot be carried out.
func unprocessable(err error) error {
	var e *pulse.Error
	if errors.As(err, &e) {
		return &pulse.Error{Code: pulse.CodeUnprocessed, Message: e.Message, Hint: e.Hint, Err: e.Err}
	}
	return err
}
