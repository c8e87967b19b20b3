package worktree

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// home is what we keep for one of the person's repositories: our store, and a
// record and an index for each tree. Agents are never given any of it to write.
type home struct{ dir string }

func (t *Trees) homeOf(commonDir string) home {
	sum := sha256.Sum256([]byte(commonDir))
	return home{dir: filepath.Join(t.dir, "repos", hex.EncodeToString(sum[:8]))}
}

func (h home) store() string            { return filepath.Join(h.dir, "store.git") }
func (h home) trees() string            { return filepath.Join(h.dir, "trees") }
func (h home) record(key string) string { return filepath.Join(h.trees(), key+".json") }

// parked is the record of a tree that was put away. There are many of them, so they lie apart from those of trees that are there.
func (h home) parked(key string) string {
	return filepath.Join(h.dir, "parked", key[max(0, len(key)-2):], key+".json")
}
func (h home) index(key string) string { return filepath.Join(h.trees(), key+".index") }

// fresh is where a new .git for the tree is built, retired where the old one
// goes for the moment between two renames.
func (h home) fresh(key string) string   { return filepath.Join(h.trees(), key+".git-new") }
func (h home) retired(key string) string { return filepath.Join(h.trees(), key+".git-old") }

// pushing is there while the person's branch is being moved.
func (h home) pushing(key string) string { return filepath.Join(h.trees(), key+".pushing") }

// refused keeps the last .git directory whose commits we would not take.
func (h home) refused(key string) string { return filepath.Join(h.dir, "refused", key) }
func (h home) intake(key string) string  { return filepath.Join(h.dir, "intake", key+".git") }

// record is what must outlive the process about a tree. Heads are refs in the
// store, so that they move together with what they name.
type record struct {
	Key        string `json:"key"`
	Repo       string `json:"repo"`
	GitDir     string `json:"git_dir"` // the person's common git directory
	Branch     string `json:"branch"`
	Base       string `json:"base"`
	BaseCommit string `json:"base_commit"`
	Format     string `json:"format"`              // object format
	Ready      bool   `json:"ready"`               // false: the tree was being made
	Published  bool   `json:"published,omitempty"` // of a tree that was put away: the branch was at its head
}

func (h home) load(key string) (record, error) { return loadRecord(h.record(key), key) }

func loadRecord(path, key string) (record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return record{}, fmt.Errorf("read tree record: %w", err)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("decode tree record %s: %w", path, err)
	}
	if r.Key != key {
		return record{}, fmt.Errorf("decode tree record %s: it is for %q", path, r.Key)
	}
	return r, nil
}

func (h home) keep(r record) error { return keepRecord(h.record(r.Key), r) }

func keepRecord(path string, r record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode tree record: %w", err)
	}
	return replaceFile(path, append(b, '\n'))
}

// replaceFile writes a file so that a reader sees the old or the new one whole.
func replaceFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	defer os.Remove(f.Name()) // gone already when all went well
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// homes gives every repository that we keep something for.
func (t *Trees) homes() ([]home, error) {
	found, err := os.ReadDir(filepath.Join(t.dir, "repos"))
	if err != nil {
		return nil, fmt.Errorf("list repositories: %w", err)
	}
	var out []home
	for _, e := range found {
		if e.IsDir() {
			out = append(out, home{dir: filepath.Join(t.dir, "repos", e.Name())})
		}
	}
	return out, nil
}

// find gives the home and record of a tree by its key alone.
func (t *Trees) find(key string) (home, record, error) {
	return t.seek(key, home.record)
}

// findParked is find for a tree that was put away.
func (t *Trees) findParked(key string) (home, record, error) {
	return t.seek(key, home.parked)
}

func (t *Trees) seek(key string, at func(home, string) string) (home, record, error) {
	if err := checkKey(key); err != nil {
		return home{}, record{}, err
	}
	all, err := t.homes()
	if err != nil {
		return home{}, record{}, err
	}
	for _, h := range all {
		if _, err := os.Lstat(at(h, key)); err == nil {
			rec, err := loadRecord(at(h, key), key)
			return h, rec, err
		}
	}
	return home{}, record{}, fs.ErrNotExist
}
