// Package scratch owns directories for temporary files that somebody finds
// who lives on when their owner was killed: beside each lies a file that its
// owner holds locked, and a lock ends with its process, however that ended.
//
// It never touches a directory whose owner lives, one of another user, or one
// that it did not make. Everything in it may be called at once, from several
// processes.
package scratch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// mark is what a lock of ours begins with.
const mark = "scratch directory of pulse\n"

const ending = ".lock"

// Dir is a directory that is its process's alone.
type Dir struct {
	Path string
	lock *os.File
}

// New makes a directory below the system's place for temporary files. Its
// name begins with prefix, by which Leftovers finds it.
func New(prefix string) (*Dir, error) {
	for {
		f, err := os.CreateTemp("", prefix+"*"+ending) // 0600
		if err != nil {
			return nil, fmt.Errorf("make scratch directory: %w", err)
		}
		d, err := take(f)
		if err != nil || d != nil {
			return d, err
		}
	}
}

// take makes the directory of a lock file; nil if somebody who clears up was
// quicker than our lock.
func take(f *os.File) (*Dir, error) {
	d := &Dir{Path: strings.TrimSuffix(f.Name(), ending), lock: f}
	undo := func(err error) (*Dir, error) {
		_ = os.Remove(f.Name())
		return nil, errors.Join(err, f.Close())
	}
	if !locked(f) || !same(f) {
		return nil, f.Close()
	}
	if _, err := f.WriteString(mark); err != nil {
		return undo(fmt.Errorf("make scratch directory: %w", err))
	}
	err := os.Mkdir(d.Path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return undo(nil) // another name, then
	}
	if err != nil {
		return undo(fmt.Errorf("make scratch directory: %w", err))
	}
	return d, nil
}

// Remove deletes the directory with all that is in it.
func (d *Dir) Remove() error {
	return errors.Join(RemoveAll(d.Path), d.Keep())
}

// Keep leaves the directory to whoever wants it.
func (d *Dir) Keep() error {
	return errors.Join(os.Remove(d.lock.Name()), d.lock.Close())
}

// locked takes the lock of a file, and answers false if another has it.
func locked(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// same tells whether the file is still what its name leads to.
func same(f *os.File) bool {
	here, err := f.Stat()
	there, err2 := os.Lstat(f.Name())
	return err == nil && err2 == nil && os.SameFile(here, there)
}

// Leftovers lists the directories whose owner is gone, of this user and with
// names that begin with prefix.
func Leftovers(prefix string) ([]string, error) {
	var out []string
	err := orphans(prefix, func(dir string) error {
		out = append(out, dir)
		return nil
	})
	return out, err
}

// Sweep removes what Leftovers lists, and tells what it removed.
func Sweep(prefix string) ([]string, error) {
	var out []string
	err := orphans(prefix, func(dir string) error {
		if err := RemoveAll(dir); err != nil {
			return fmt.Errorf("remove scratch directory: %w", err)
		}
		out = append(out, dir)
		return os.Remove(dir + ending)
	})
	return out, err
}

// orphans calls fn for each directory without an owner, and holds its lock
// meanwhile.
func orphans(prefix string, fn func(dir string) error) error {
	names, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"+ending))
	if err != nil {
		return fmt.Errorf("look for scratch directories: %w", err)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, orphan(name, fn))
	}
	return errors.Join(errs...)
}

func orphan(name string, fn func(dir string) error) error {
	if st, err := os.Lstat(name); err != nil || !st.Mode().IsRegular() || !mine(st) {
		return nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil // gone, or not for us
	}
	defer f.Close()
	head := make([]byte, len(mark))
	if n, _ := f.ReadAt(head, 0); !bytes.Equal(head[:n], []byte(mark)) || !locked(f) || !same(f) {
		return nil
	}
	dir := strings.TrimSuffix(name, ending)
	if st, err := os.Lstat(dir); err == nil && (!st.IsDir() || !mine(st)) {
		return nil
	}
	return fn(dir)
}

func mine(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// RemoveAll removes a tree of files, also where directories in it are
// read-only, as module caches are. Links are removed, never followed.
func RemoveAll(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
			if err != nil {
				return fs.SkipDir
			}
		}
		return nil
	})
	return os.RemoveAll(path)
}

// Hold takes a lock file for as long as this process lives or until release;
// ok is false if another process has it.
func Hold(path string) (release func() error, ok bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open lock: %w", err)
	}
	if !locked(f) {
		return func() error { return nil }, false, f.Close()
	}
	return f.Close, true, nil
}

// Size adds up what a directory takes on the disk, each file once.
func Size(path string) int64 {
	var sum int64
	seen := map[uint64]bool{}
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if st, err := d.Info(); err == nil {
			if sys, ok := st.Sys().(*syscall.Stat_t); ok && !seen[sys.Ino] {
				seen[sys.Ino] = true
				sum += sys.Blocks * 512
			}
		}
		return nil
	})
	return sum
}
