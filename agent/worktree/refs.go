package worktree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"
	"syscall"
)

// Caps on what is read of an agent's refs.
const (
	maxRefFile    = 4 << 10
	maxPackedRefs = 4 << 20
	maxTips       = 64
)

// tips is what an agent's refs say, as far as they are what git writes.
type tips struct {
	head string            // commit at HEAD, empty when it names none
	refs map[string]string // refs/heads/... and refs/stash -> commit id
	odd  []string          // sentences about what was passed over
}

// readRegular reads a file that is a regular one below root, up to max bytes.
func readRegular(root *os.Root, name string, max int64) ([]byte, error) {
	f, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(b)) > max {
		err = fmt.Errorf("read %s: larger than %d bytes", name, max)
	}
	return b, err
}

// openRegular refuses links and everything that is not plain content, also
// when it becomes one between the look and the opening: a pipe opened without
// O_NONBLOCK would hold us up for ever.
func openRegular(root *os.Root, name string) (*os.File, error) {
	st, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: not a regular file", name)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(st, now) {
		return nil, errors.Join(fmt.Errorf("open %s: it changed", name), f.Close())
	}
	return f, nil
}

// readTips parses HEAD, the branches and the stash of an agent's .git.
func readTips(git *os.Root, format string) tips {
	t := tips{refs: map[string]string{}}
	t.readPacked(git, format)
	t.readLoose(git, format)
	b, err := readRegular(git, "HEAD", maxRefFile)
	head := strings.TrimSpace(string(b))
	name, symbolic := strings.CutPrefix(head, "ref: ")
	name = strings.TrimSpace(name)
	switch {
	case err == nil && isID(head, format):
		t.head = head
	case err == nil && symbolic && strings.HasPrefix(name, "refs/heads/") && safeRefPath(name):
		t.head = t.refs[name]
	default:
		t.odd = append(t.odd, "HEAD of the agent's repository named nothing of its own and was not followed.")
	}
	return t
}

func isID(s, format string) bool { return len(s) == idLen(format) && hexID.MatchString(s) }

// safeRefPath refuses names that lead elsewhere as a path. What else git would
// refuse is harmless here: names are only looked up and printed quoted.
func safeRefPath(name string) bool {
	return path.Clean(name) == name && !strings.Contains(name, "..") && !strings.ContainsAny(name, "\x00\n\r")
}

func (t *tips) add(name, id, format string) {
	if (name == "refs/stash" || strings.HasPrefix(name, "refs/heads/")) && safeRefPath(name) && isID(id, format) {
		t.refs[name] = id
	}
}

func (t *tips) readPacked(git *os.Root, format string) {
	b, err := readRegular(git, "packed-refs", maxPackedRefs)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			t.odd = append(t.odd, "packed-refs of the agent's repository could not be read.")
		}
		return
	}
	for line := range strings.Lines(string(b)) {
		id, name, ok := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if ok {
			t.add(name, id, format)
		}
	}
}

// readLoose walks refs/heads without following links.
func (t *tips) readLoose(git *os.Root, format string) {
	read := func(name string) {
		if b, err := readRegular(git, name, maxRefFile); err == nil {
			t.add(name, strings.TrimSpace(string(b)), format)
		}
	}
	read("refs/stash")
	seen := 0
	err := fs.WalkDir(git.FS(), "refs/heads", func(p string, d fs.DirEntry, err error) error {
		if seen++; err != nil || seen > 10_000 {
			return fs.SkipAll
		}
		if d.Type().IsRegular() {
			read(p)
		}
		return nil
	})
	if err != nil || seen > 10_000 {
		t.odd = append(t.odd, "Some branches of the agent's repository could not be read.")
	}
}

// order lists what to take, most important first and each commit once, without
// those in have. The rest beyond maxTips is told.
func (t *tips) order(branch string, have map[string]bool) []string {
	names := make([]string, 0, len(t.refs))
	for name := range t.refs {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		if a, b := names[i] == branch, names[j] == branch; a != b {
			return a
		}
		if a, b := names[i] == "refs/stash", names[j] == "refs/stash"; a != b {
			return a
		}
		return names[i] < names[j]
	})
	seen := map[string]bool{"": true}
	var ids []string
	for _, id := range append([]string{t.head}, idsOf(names, t.refs)...) {
		if !seen[id] && !have[id] {
			ids = append(ids, id)
		}
		seen[id] = true
	}
	if len(ids) > maxTips {
		t.odd = append(t.odd, fmt.Sprintf("Of %d branches the agent made, only %d were looked at.", len(ids), maxTips))
		ids = ids[:maxTips]
	}
	return ids
}

func idsOf(names []string, refs map[string]string) []string {
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = refs[name]
	}
	return ids
}
