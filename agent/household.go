package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"pulseloop/agent/cli"
)

// household is a CLI's home for one run, made like the person's: what the CLI
// only reads is linked, what it renews is the same file, the rest is new and
// ends with the run.
type household struct {
	dir    string
	shared []string // what the links lead to
	kept   []keptFile
}

// keptFile is a file of the person's that the CLI may renew.
type keptFile struct {
	theirs, ours string
	before       []byte
}

// Bounds of what is copied in and back.
const (
	maxCopied = 16 << 20
	maxKept   = 256 << 10
)

func (h *household) furnish(from cli.Home) error {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return err
	}
	for _, name := range from.Share {
		real, err := filepath.EvalSymlinks(filepath.Join(from.Dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.Symlink(real, filepath.Join(h.dir, name))
		}
		if err != nil {
			return err
		}
		h.shared = append(h.shared, real)
	}
	for name, path := range from.Copies {
		if err := copyFile(path, filepath.Join(h.dir, name), from.Forget); err != nil {
			return err
		}
	}
	for _, name := range from.Keep {
		if err := h.lend(filepath.Join(from.Dir, name), filepath.Join(h.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// lend makes ours another name of theirs, so that what is written into it is
// written there, or a copy where that cannot be.
func (h *household) lend(theirs, ours string) error {
	theirs, err := filepath.EvalSymlinks(theirs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	before, err := readBounded(theirs, maxKept)
	if err != nil {
		return err
	}
	if os.Link(theirs, ours) != nil {
		if err := os.WriteFile(ours, before, 0o600); err != nil {
			return err
		}
	}
	h.kept = append(h.kept, keptFile{theirs: theirs, ours: ours, before: before})
	return nil
}

// keep takes back what was renewed by putting another file in its place. A
// login that is lost with the run's directory would log the person out.
func (h *household) keep() error {
	var errs []error
	for _, k := range h.kept {
		now, err := readBounded(k.ours, maxKept)
		if err != nil || !json.Valid(now) || string(now) == string(k.before) {
			continue
		}
		theirs, err := os.Stat(k.theirs)
		if ours, err2 := os.Lstat(k.ours); err == nil && err2 == nil && os.SameFile(theirs, ours) {
			continue
		}
		// Somebody else may have renewed it meanwhile; theirs is the newer one.
		if current, err := readBounded(k.theirs, maxKept); err == nil && string(current) != string(k.before) {
			continue
		}
		if err := replaceFile(k.theirs, now); err != nil {
			errs = append(errs, fmt.Errorf("keep %s: %w", k.theirs, err))
		}
	}
	return errors.Join(errs...)
}

func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func copyFile(from, to string, forget []string) error {
	from, err := filepath.EvalSymlinks(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := readBounded(from, maxCopied)
	if err != nil {
		return err
	}
	var object map[string]json.RawMessage
	if len(forget) > 0 && json.Unmarshal(b, &object) == nil {
		for _, key := range forget {
			delete(object, key)
		}
		if b, err = json.Marshal(object); err != nil {
			return err
		}
	}
	return os.WriteFile(to, b, 0o600)
}

// readBounded reads an ordinary file of bounded size. No link is followed: an
// agent may have put one there.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s is no ordinary file of at most %d bytes", path, limit)
	}
	b := make([]byte, info.Size())
	n, err := f.ReadAt(b, 0)
	if int64(n) < info.Size() {
		return nil, err
	}
	return b, nil
}
