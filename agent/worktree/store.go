package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pulseloop/internal/scratch"
)

// exactBytes outranks every .gitattributes: no line ends, filters, keywords or
// encodings are applied on the way in or out, so pointers of large file stores
// and mixed line ends stay as they are. "!" leaves an attribute unset, which
// is the only form git accepts for an encoding.
const exactBytes = "* -text !crlf !eol !filter !ident !working-tree-encoding\n"

// ensureStore makes our bare clone. It is built under another name and then
// renamed, so a store that exists is whole.
func (t *Trees) ensureStore(ctx context.Context, h home, info repoInfo) error {
	if _, err := os.Stat(filepath.Join(h.store(), "info", "attributes")); err == nil {
		return nil
	}
	building := h.store() + ".new"
	var err error
	for _, how := range cloneWays(info) {
		if err := errors.Join(scratch.RemoveAll(h.store()), scratch.RemoveAll(building)); err != nil {
			return fmt.Errorf("clear half a store: %w", err)
		}
		if err = t.git.do(ctx, call{dir: h.dir, local: true, args: []string{"clone", "--quiet", "--bare", how,
			"--no-tags", "--template=", "--", info.common, building}}); err == nil {
			break
		}
		t.log.DebugContext(ctx, "clone failed", "how", how, "error", err)
	}
	if err != nil {
		return fmt.Errorf("clone repository: %w", err)
	}
	if err := replaceFile(filepath.Join(building, "info", "attributes"), []byte(exactBytes)); err != nil {
		return err
	}
	if err := os.Rename(building, h.store()); err != nil {
		return fmt.Errorf("put store in place: %w", err)
	}
	return nil
}

// cloneWays is by hard links first and through git's transport where that
// fails. A repository that borrows objects is not cloned by links: the clone
// would borrow them as well, from a place whose collection we cannot stop.
func cloneWays(info repoInfo) []string {
	if st, err := os.Stat(filepath.Join(info.common, "objects", "info", "alternates")); err == nil && st.Size() > 0 {
		return []string{"--no-local"}
	}
	return []string{"--local", "--no-local"}
}

// refCommit gives what a ref of the store points at, empty when it is not there.
func (t *Trees) refCommit(ctx context.Context, h home, ref string) (string, error) {
	return t.git.resolve(ctx, h.store(), ref)
}

// resolve gives the commit a full ref or id names, empty when there is none.
func (r runner) resolve(ctx context.Context, gitDir, name string) (string, error) {
	if _, err := os.Stat(gitDir); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	out, err := r.text(ctx, call{gitDir: gitDir, args: []string{"rev-parse", "--quiet", "--verify", "--end-of-options", name + "^{commit}"}})
	if exitCode(err) > 0 {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", name, err)
	}
	return out, nil
}

// updateRefs runs one transaction of update-ref commands on the store.
func (t *Trees) updateRefs(ctx context.Context, h home, commands []string) error {
	if len(commands) == 0 {
		return nil
	}
	stdin := []byte(strings.Join(commands, "\n") + "\n")
	if err := t.git.do(ctx, call{gitDir: h.store(), stdin: stdin, args: []string{"update-ref", "--stdin"}}); err != nil {
		return fmt.Errorf("update refs: %w", err)
	}
	return nil
}

// isAncestor tells whether of is reached from commit, itself included.
func (t *Trees) isAncestor(ctx context.Context, h home, of, commit string) (bool, error) {
	err := t.git.do(ctx, call{gitDir: h.store(), args: []string{"merge-base", "--is-ancestor", of, commit}})
	switch exitCode(err) {
	case 0:
		return true, nil
	case 1:
		return false, nil
	}
	return false, fmt.Errorf("compare commits: %w", err)
}

// treeOf gives the tree id of a commit in the store.
func (t *Trees) treeOf(ctx context.Context, h home, commit string) (string, error) {
	out, err := t.git.text(ctx, call{gitDir: h.store(), args: []string{"rev-parse", "--verify", "--end-of-options", commit + "^{tree}"}})
	if err != nil {
		return "", fmt.Errorf("read tree of %s: %w", commit, err)
	}
	return out, nil
}

// refsBelow lists the refs of the store with a prefix, as name and commit.
func (t *Trees) refsBelow(ctx context.Context, h home, prefix string) (map[string]string, error) {
	out, err := t.git.text(ctx, call{gitDir: h.store(), args: []string{"for-each-ref", "--format=%(objectname) %(refname)", prefix}})
	if err != nil {
		return nil, fmt.Errorf("list refs: %w", err)
	}
	refs := map[string]string{}
	for line := range strings.Lines(out) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			refs[name] = id
		}
	}
	return refs, nil
}
