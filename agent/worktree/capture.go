package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"

	"pulseloop/internal/scratch"
)

// space is an agent's working tree seen through our store and our index.
type space struct {
	store, path, index string
}

func (t *Trees) space(h home, rec record) space {
	return space{store: h.store(), path: t.treePath(rec.Key), index: h.index(rec.Key)}
}

func (s space) call(args ...string) call {
	return call{gitDir: s.store, workTree: s.path, index: s.index, dir: s.path, args: args}
}

// snapshot is a working tree as git stores it.
type snapshot struct {
	tree   string   // tree id
	nested []string // other repositories in the tree, none of whose content is in it
	lost   []string // files that no commit of ours holds
	notes  []string
}

// resetIndex makes our index that of a commit. What we know of unchanged files
// stays, so that they are not read again.
func (t *Trees) resetIndex(ctx context.Context, s space, commit string) error {
	if err := t.git.do(ctx, s.call("read-tree", "--reset", commit)); err != nil {
		// An index that cannot be read holds nothing that cannot be had again.
		if rmErr := scratch.RemoveAll(s.index); rmErr != nil {
			return fmt.Errorf("reset index: %w", rmErr)
		}
		if err := t.git.do(ctx, s.call("read-tree", "--reset", commit)); err != nil {
			return fmt.Errorf("reset index: %w", err)
		}
	}
	err := t.git.do(ctx, s.call("update-index", "-q", "--ignore-submodules", "--refresh"))
	if err != nil && exitCode(err) != 1 { // 1: some files changed
		return fmt.Errorf("refresh index: %w", err)
	}
	return nil
}

// capture stores the working tree as changes onto a commit. `git add` is not
// used: it looks into nested repositories with their own config, which runs
// what the config says. Listing files and giving git their names does not.
func (t *Trees) capture(ctx context.Context, s space, onto string) (snapshot, error) {
	if err := t.resetIndex(ctx, s, onto); err != nil {
		return snapshot{}, err
	}
	staged, err := t.git.list(ctx, s.call("ls-files", "-z", "--stage"))
	if err != nil {
		return snapshot{}, fmt.Errorf("list files: %w", err)
	}
	changed, err := t.git.list(ctx, s.call("ls-files", "-z", "--modified", "--deleted"))
	if err != nil {
		return snapshot{}, fmt.Errorf("list changes: %w", err)
	}
	others, err := t.git.list(ctx, s.call("ls-files", "-z", "--others", "--exclude-standard"))
	if err != nil {
		return snapshot{}, fmt.Errorf("list new files: %w", err)
	}
	p := newPlan(s.path, t.maxTake)
	p.look(staged, changed, others)
	notes := p.notes()
	if refused, err := t.apply(ctx, s, p); err != nil {
		return snapshot{}, err
	} else if refused > 0 {
		notes = append(notes, fmt.Sprintf("%d files have names that git does not allow and were left out.", refused))
	}
	tree, err := t.git.text(ctx, s.call("write-tree"))
	if err != nil {
		return snapshot{}, fmt.Errorf("write tree: %w", err)
	}
	return snapshot{tree: tree, nested: p.nestedPaths(), lost: p.lost(), notes: notes}, nil
}

// apply brings the plan into our index and counts the names git passed over.
func (t *Trees) apply(ctx context.Context, s space, p *plan) (refused int, err error) {
	update := func(paths []string, how ...string) (string, error) {
		if len(paths) == 0 {
			return "", nil
		}
		c := s.call(append(append([]string{"update-index"}, how...), "-z", "--stdin")...)
		c.stdin = []byte(strings.Join(paths, "\x00") + "\x00")
		_, stderr, err := t.git.run(ctx, c)
		return stderr, err
	}
	if _, err := update(p.remove, "--force-remove"); err != nil {
		return 0, fmt.Errorf("record deletions: %w", err)
	}
	stderr, err := update(p.add, "--add", "--replace")
	if err != nil {
		return 0, fmt.Errorf("record files: %w", err)
	}
	return strings.Count(stderr, "Ignoring path "), nil
}

// plan sorts paths into what to add and what to remove.
type plan struct {
	root     string
	limit    int64
	dirs     map[string]dirKind
	links    map[string]bool // gitlinks of the index
	nested   map[string]bool
	hidden   []string // submodule directories with files that cannot be kept
	unread   []string
	tooLarge []string
	sizes    []sized
	add      []string
	remove   []string
}

type sized struct {
	path string
	size int64
}

type dirKind int

const (
	dirReal   dirKind = iota + 1
	dirBeyond         // gone, or reached through something that is no directory
)

func newPlan(root string, limit int64) *plan {
	return &plan{root: root, limit: limit, dirs: map[string]dirKind{".": dirReal}, links: map[string]bool{}, nested: map[string]bool{}}
}

func (p *plan) look(staged, changed, others []string) {
	for _, entry := range staged {
		meta, name, _ := strings.Cut(entry, "\t")
		if strings.HasPrefix(meta, "160000 ") {
			p.links[name] = true
			p.lookAtLink(name)
			continue
		}
		// A tracked file behind a link is not where git thinks it is: what is
		// there belongs to whatever the link points at.
		if p.dir(filepath.Dir(name)) == dirBeyond {
			p.remove = append(p.remove, name)
		}
	}
	seen := map[string]bool{}
	for _, name := range changed {
		if !p.links[name] && !seen[name] && p.dir(filepath.Dir(name)) == dirReal {
			p.file(name)
		}
		seen[name] = true
	}
	for _, name := range others {
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			p.nested[dir] = true
		} else if p.dir(filepath.Dir(name)) == dirReal {
			p.file(name)
		}
	}
	p.fit()
}

// lookAtLink notes what lies in a submodule's directory. An empty one is how
// every tree of ours begins.
func (p *plan) lookAtLink(name string) {
	if p.dir(filepath.Dir(name)) != dirReal || !isRealDir(filepath.Join(p.root, name)) {
		return
	}
	files, err := os.ReadDir(filepath.Join(p.root, name))
	if err == nil && len(files) > 0 {
		p.hidden = append(p.hidden, name)
	}
}

// dir classifies a directory once, parents first, and finds repositories that
// were made in directories that are tracked.
func (p *plan) dir(name string) dirKind {
	if k := p.dirs[name]; k != 0 {
		return k
	}
	kind := dirBeyond
	if p.dir(filepath.Dir(name)) == dirReal {
		full := filepath.Join(p.root, name)
		st, err := os.Lstat(full)
		switch {
		case err == nil && st.IsDir():
			kind = dirReal
			if _, err := os.Lstat(filepath.Join(full, ".git")); err == nil {
				p.nested[name] = true
			}
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			kind = dirReal // unreadable is not gone: its files keep what they had
		}
	}
	p.dirs[name] = kind
	return kind
}

func (p *plan) file(name string) {
	full := filepath.Join(p.root, name)
	st, err := os.Lstat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		p.remove = append(p.remove, name)
	case err != nil:
		p.unread = append(p.unread, name)
	case st.Mode()&fs.ModeSymlink != 0:
		p.sizes = append(p.sizes, sized{name, st.Size()})
	case !st.Mode().IsRegular():
		p.remove = append(p.remove, name) // a file gave way to a directory, a pipe or the like
	default:
		f, err := os.OpenFile(full, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			p.unread = append(p.unread, name)
			return
		}
		_ = f.Close()
		p.sizes = append(p.sizes, sized{name, st.Size()})
	}
}

// fit keeps the smallest files when not all fit under the cap: a dump of
// gigabytes must not cost the source beside it.
func (p *plan) fit() {
	sort.SliceStable(p.sizes, func(i, j int) bool { return p.sizes[i].size < p.sizes[j].size })
	var sum int64
	for _, f := range p.sizes {
		if sum += f.size; sum > p.limit {
			p.tooLarge = append(p.tooLarge, f.path)
			continue
		}
		p.add = append(p.add, f.path)
	}
}

func (p *plan) nestedPaths() []string {
	paths := make([]string, 0, len(p.nested))
	for name := range p.nested {
		paths = append(paths, name)
	}
	sort.Strings(paths)
	return paths
}

func (p *plan) lost() []string { return slices.Concat(p.hidden, p.tooLarge, p.unread) }

func (p *plan) notes() []string {
	var notes []string
	tell := func(paths []string, format string) {
		if len(paths) > 0 {
			notes = append(notes, fmt.Sprintf(format, some(paths)))
		}
	}
	tell(p.nestedPaths(), "Another git repository lies in the tree and was not looked into: %s.")
	tell(p.hidden, "Files in submodules are not part of the work that is kept: %s.")
	tell(p.tooLarge, fmt.Sprintf("Left out, since the changes are larger than %d MiB together: %%s.", p.limit>>20))
	tell(p.unread, "Could not be read and was left as it was: %s.")
	return notes
}

// some names a few paths, quoted, for they are an agent's words.
func some(paths []string) string {
	quoted := make([]string, 0, 6)
	for i, p := range paths {
		if i == 5 {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(paths)-i))
			break
		}
		quoted = append(quoted, fmt.Sprintf("%q", p))
	}
	return strings.Join(quoted, ", ")
}
