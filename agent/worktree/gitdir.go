package worktree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"pulseloop/internal/scratch"
)

// inspectGit says why the tree's .git is not the one we made, empty when it
// is. Only the shape that decides where git would read from matters here: what
// its config says does not, since no git of ours reads it.
func (t *Trees) inspectGit(h home, rec record) (reason string, err error) {
	top, err := os.OpenRoot(t.treePath(rec.Key))
	if err != nil {
		return "", fmt.Errorf("open tree: %w", err)
	}
	defer top.Close()
	st, err := top.Lstat(".git")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it was gone", nil
	case err != nil:
		return "it could not be read", nil
	case st.Mode()&fs.ModeSymlink != 0:
		return "it was a symbolic link", nil
	case !st.IsDir():
		return "it was a file that points elsewhere", nil
	}
	git, err := top.OpenRoot(".git")
	if err != nil {
		return "it could not be opened", nil
	}
	defer git.Close()
	return strangeShape(git, h.store()), nil
}

// strangeShape looks for each way a .git directory can stand for another one.
func strangeShape(git *os.Root, store string) string {
	if _, err := git.Lstat("commondir"); !errors.Is(err, fs.ErrNotExist) {
		return "it was made to share another repository"
	}
	for _, dir := range []string{"objects", "objects/info", "refs", "refs/heads"} {
		if st, err := git.Lstat(dir); err != nil || !st.IsDir() {
			return "its " + dir + " was no directory"
		}
	}
	for _, dir := range []string{"objects/pack"} {
		if st, err := git.Lstat(dir); err == nil && !st.IsDir() {
			return "its " + dir + " was no directory"
		}
	}
	for _, file := range []string{"HEAD", "packed-refs", "refs/stash"} {
		st, err := git.Lstat(file)
		if err == nil && !st.Mode().IsRegular() || err != nil && file == "HEAD" {
			return "its " + file + " was no file"
		}
	}
	got, err := readRegular(git, "objects/info/alternates", 64<<10)
	if err != nil || string(got) != alternates(store) {
		return "the list of repositories it borrows from was changed"
	}
	return ""
}

func alternates(store string) string { return filepath.Join(store, "objects") + "\n" }

// renewGit gives the tree a new .git at head, with our index and nothing of
// the old one but its side branches. keepOld puts the old one aside instead of
// deleting it, where its commits could not be taken.
func (t *Trees) renewGit(h home, rec record, head string, side map[string]string, keepOld bool) error {
	tree := t.treePath(rec.Key)
	at := filepath.Join(tree, ".git")
	fresh, old := h.fresh(rec.Key), h.retired(rec.Key)
	if err := errors.Join(scratch.RemoveAll(fresh), scratch.RemoveAll(old)); err != nil {
		return fmt.Errorf("clear old .git: %w", err)
	}
	if err := t.buildGit(h, rec, fresh, head, side); err != nil {
		return fmt.Errorf("build .git: %w", err)
	}
	keepOld = keepOld && isRealDir(at) // a link or a file holds no work
	if keepOld {
		old = h.refused(rec.Key)
		if err := errors.Join(scratch.RemoveAll(old), os.MkdirAll(filepath.Dir(old), 0o700)); err != nil {
			return fmt.Errorf("put .git aside: %w", err)
		}
	}
	// Renaming a directory needs write permission on it and on its parent.
	_ = os.Chmod(tree, 0o700)
	if isRealDir(at) {
		_ = os.Chmod(at, 0o700)
	}
	if err := os.Rename(at, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take old .git away: %w", err)
	}
	if err := os.Rename(fresh, at); err != nil {
		return fmt.Errorf("put .git in place: %w", err)
	}
	if keepOld {
		return nil
	}
	if err := scratch.RemoveAll(old); err != nil {
		t.log.Warn("old .git could not be removed", "path", old, "error", err)
	}
	return nil
}

func (t *Trees) buildGit(h home, rec record, dir, head string, side map[string]string) error {
	config := gitConfig(rec.Format, false) + "[user]\n\tname = " + quoteConfig(t.git.who) + "\n\temail = " + quoteConfig(t.git.email) + "\n" +
		"[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[commit]\n\tgpgSign = false\n"
	exclude, err := os.ReadFile(filepath.Join(h.store(), "info", "exclude"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	index, err := os.ReadFile(h.index(rec.Key))
	if err != nil {
		return err
	}
	return writeTree(dir, map[string]string{
		"HEAD":                    "ref: refs/heads/" + rec.Branch + "\n",
		"config":                  config,
		"packed-refs":             packedRefs(rec, head, side),
		"objects/info/alternates": alternates(h.store()),
		"info/exclude":            string(exclude),
		"info/attributes":         exactBytes,
		"index":                   string(index),
	}, "objects/pack", "refs/heads", "refs/tags")
}

func gitConfig(format string, bare bool) string {
	if format == "sha256" {
		return fmt.Sprintf("[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = %t\n\tautocrlf = false\n[extensions]\n\tobjectFormat = sha256\n", bare)
	}
	return fmt.Sprintf("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = %t\n\tautocrlf = false\n", bare)
}

func quoteConfig(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(s) + `"`
}

func writeTree(dir string, files map[string]string, dirs ...string) error {
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// packedRefs shows the agent its branch, the base by name, and the side
// branches it had, as far as their names are plain and fit beside each other.
func packedRefs(rec record, head string, side map[string]string) string {
	refs := map[string]string{"refs/heads/" + rec.Branch: head}
	if rec.Base != "HEAD" && rec.Base != rec.Branch {
		refs["refs/heads/"+rec.Base] = rec.BaseCommit
	}
	names := make([]string, 0, len(side))
	for name := range side {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if plainBranchRef(name) && fitsBeside(name, refs) {
			refs[name] = side[name]
		}
	}
	names = names[:0]
	for name := range refs {
		names = append(names, name)
	}
	sort.Strings(names)
	var b strings.Builder
	b.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for _, name := range names {
		b.WriteString(refs[name] + " " + name + "\n")
	}
	return b.String()
}

func fitsBeside(name string, refs map[string]string) bool {
	for other := range refs {
		if name == other || strings.HasPrefix(name, other+"/") || strings.HasPrefix(other, name+"/") {
			return false
		}
	}
	return true
}

// Exclude hides paths that we put into the tree from git, in the tree's own
// .git and in our store. The store is shared by all trees of a repository:
// patterns are for paths of ours, which mean the same in each.
func (t *Trees) Exclude(tree Tree, patterns ...string) error {
	for _, p := range patterns {
		if strings.TrimSpace(p) == "" || strings.ContainsAny(p, "\n\r\x00") {
			return fmt.Errorf("exclude %q: not a pattern", p)
		}
	}
	ctx, cancel := lockWait()
	defer cancel()
	h, rec, release, err := t.open(ctx, tree.Key)
	if err != nil {
		return err
	}
	defer release()
	file := filepath.Join(h.store(), "info", "exclude")
	was, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read excludes: %w", err)
	}
	now := withLines(was, patterns)
	if !bytes.Equal(was, now) {
		if err := replaceFile(file, now); err != nil {
			return err
		}
	}
	return t.excludeInTree(h, rec, patterns)
}

// excludeInTree writes only into a .git of ours: elsewhere the file would be
// somebody else's, and the next .git gets the store's list anyway.
func (t *Trees) excludeInTree(h home, rec record, patterns []string) error {
	if reason, err := t.inspectGit(h, rec); err != nil || reason != "" {
		return err
	}
	git, err := os.OpenRoot(filepath.Join(t.treePath(rec.Key), ".git"))
	if err != nil {
		return fmt.Errorf("open .git: %w", err)
	}
	defer git.Close()
	if st, err := git.Lstat("info"); errors.Is(err, fs.ErrNotExist) {
		if err := git.Mkdir("info", 0o700); err != nil {
			return fmt.Errorf("write excludes: %w", err)
		}
	} else if err != nil || !st.IsDir() {
		return nil
	}
	was, _ := readRegular(git, "info/exclude", 1<<20)
	// Removed first, so that a link planted in its place is not written through.
	if err := git.Remove("info/exclude"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write excludes: %w", err)
	}
	f, err := git.OpenFile("info/exclude", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write excludes: %w", err)
	}
	_, err = f.Write(withLines(was, patterns))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write excludes: %w", err)
	}
	return nil
}

func withLines(was []byte, lines []string) []byte {
	have := map[string]bool{}
	for line := range strings.Lines(string(was)) {
		have[strings.TrimRight(line, "\n")] = true
	}
	out := bytes.Clone(was)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	for _, line := range lines {
		if !have[line] {
			out = append(out, line+"\n"...)
			have[line] = true
		}
	}
	return out
}
