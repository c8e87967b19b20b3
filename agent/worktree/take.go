package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"pulseloop/internal/scratch"
)

// Caps on the number of files, so that a million tiny ones cannot hold us up.
const (
	maxLoose = 200_000
	maxPacks = 100
)

// taken is what came out of an agent's .git and is now whole in our store.
type taken struct {
	head    string            // commit the agent had checked out, empty if unknown
	refs    map[string]string // its branches and stash
	refusal string            // why nothing, or not all, was taken
	notes   []string
}

// take brings the agent's new commits into the store. Whatever is wrong with
// them is a refusal, not an error: the files are captured all the same.
func (t *Trees) take(ctx context.Context, h home, rec record, known []string) (taken, error) {
	reason, err := t.inspectGit(h, rec)
	if err != nil {
		return taken{}, err
	}
	if reason != "" {
		return taken{refusal: "The tree's .git was not the one made for it (" + reason + "), so no commits were taken from it"}, nil
	}
	git, err := os.OpenRoot(filepath.Join(t.treePath(rec.Key), ".git"))
	if err != nil {
		return taken{}, fmt.Errorf("open .git: %w", err)
	}
	defer git.Close()
	said := readTips(git, rec.Format)
	have := map[string]bool{}
	for _, id := range known {
		have[id] = true
	}
	ids := said.order("refs/heads/"+rec.Branch, have)
	got := taken{notes: said.odd}
	if len(ids) > 0 {
		defer func() { _ = scratch.RemoveAll(h.intake(rec.Key)) }()
		why := t.quarantine(ctx, h, rec, git, ids)
		if why == nil {
			why, err = t.fetchTips(ctx, h, rec, ids, have)
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return taken{}, err
		}
		if why != nil {
			got.refusal = "Commits the agent made were not taken: " + refusalText(why, t.maxTake)
			t.log.WarnContext(ctx, "agent's commits refused", "key", rec.Key, "error", why)
		}
	}
	if have[said.head] {
		got.head = said.head
	}
	got.refs = map[string]string{}
	for name, id := range said.refs {
		if have[id] {
			got.refs[name] = id
		}
	}
	return got, nil
}

func refusalText(why error, limit int64) string {
	switch text := stderrOf(why); {
	case errors.Is(why, errTooLarge):
		return fmt.Sprintf("they are larger than the %d MiB that are allowed", limit>>20)
	case strings.Contains(text, "fsck error"):
		return "they failed git's check of objects (" + firstLines(text) + ")"
	case text != "":
		return firstLines(text)
	default:
		return why.Error()
	}
}

// quarantine copies the agent's objects into a repository of ours that borrows
// from the store and has the tips as its refs. Nothing else of the agent's
// .git is copied, and links are not followed.
func (t *Trees) quarantine(ctx context.Context, h home, rec record, git *os.Root, ids []string) error {
	dir := h.intake(rec.Key)
	if err := scratch.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear intake: %w", err)
	}
	var refs strings.Builder
	for i, id := range ids {
		fmt.Fprintf(&refs, "%s refs/tips/%d\n", id, i)
	}
	err := writeTree(dir, map[string]string{
		"HEAD":                    "ref: refs/heads/none\n",
		"config":                  gitConfig(rec.Format, true),
		"packed-refs":             refs.String(),
		"objects/info/alternates": alternates(h.store()),
	}, "objects/pack", "refs/heads")
	if err != nil {
		return fmt.Errorf("make intake: %w", err)
	}
	c := copier{from: git, to: dir, idBytes: idLen(rec.Format) / 2, room: t.maxTake, unpacked: t.maxTake}
	if err := c.objects(); err != nil {
		return err
	}
	for _, pack := range c.packs {
		if err := t.git.do(ctx, call{gitDir: dir, args: []string{"index-pack", filepath.Join(dir, pack)}}); err != nil {
			return fmt.Errorf("index pack: %w", err)
		}
	}
	return nil
}

// copier copies object files under two caps: bytes on disk, and bytes they
// unpack to.
type copier struct {
	from           *os.Root
	to             string
	idBytes        int
	room, unpacked int64
	loose          int
	packs          []string
}

func (c *copier) objects() error {
	dirs, err := fs.ReadDir(c.from.FS(), "objects")
	if err != nil {
		return fmt.Errorf("list objects: %w", err)
	}
	for _, d := range dirs {
		switch name := d.Name(); {
		case !d.IsDir():
		case name == "pack":
			err = c.packFiles()
		case len(name) == 2 && isHex(name):
			err = c.looseFiles(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func (c *copier) looseFiles(dir string) error {
	files, err := fs.ReadDir(c.from.FS(), "objects/"+dir)
	if err != nil {
		return fmt.Errorf("list objects: %w", err)
	}
	if err := os.Mkdir(filepath.Join(c.to, "objects", dir), 0o700); err != nil {
		return fmt.Errorf("copy objects: %w", err)
	}
	for _, f := range files {
		if !f.Type().IsRegular() || len(f.Name()) != 2*c.idBytes-2 || !isHex(f.Name()) {
			continue
		}
		if c.loose++; c.loose > maxLoose {
			return errTooLarge
		}
		if err := c.file("objects/"+dir+"/"+f.Name(), func(r io.Reader) (int64, error) { return looseSize(r) }); err != nil {
			return err
		}
	}
	return nil
}

// packFiles copies packs without their indexes: those are made anew, since an
// index that lies about its pack is a way into the program that reads it.
func (c *copier) packFiles() error {
	files, err := fs.ReadDir(c.from.FS(), "objects/pack")
	if err != nil {
		return fmt.Errorf("list packs: %w", err)
	}
	for _, f := range files {
		stem := strings.TrimSuffix(f.Name(), ".pack")
		id, ok := strings.CutPrefix(stem, "pack-")
		if !f.Type().IsRegular() || stem == f.Name() || !ok || len(id) != 2*c.idBytes || !isHex(id) {
			continue
		}
		if len(c.packs) == maxPacks {
			return errTooLarge
		}
		name := "objects/pack/" + f.Name()
		measure := func(r io.Reader) (int64, error) { return packSize(r, c.idBytes, c.unpacked) }
		if err := c.file(name, measure); err != nil {
			return err
		}
		c.packs = append(c.packs, name)
	}
	return nil
}

// file measures and copies one file. The copy is measured, not the original,
// so that what is measured is what git will see.
func (c *copier) file(name string, measure func(io.Reader) (int64, error)) error {
	in, err := openRegular(c.from, name)
	if err != nil {
		return fmt.Errorf("copy object: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(c.to, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("copy object: %w", err)
	}
	defer out.Close()
	n, err := io.Copy(out, io.LimitReader(in, c.room+1))
	if err != nil {
		return fmt.Errorf("copy object: %w", err)
	}
	if c.room -= n; c.room < 0 {
		return errTooLarge
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("copy object: %w", err)
	}
	size, err := measure(out)
	if err != nil {
		return err
	}
	if c.unpacked -= size; c.unpacked < 0 {
		return errTooLarge
	}
	return nil
}

// fetchTips fetches as from a hostile server and marks in have what arrived. A
// fetch takes all or nothing, so when it fails each tip gets its own try, that
// one broken branch does not cost the good ones.
func (t *Trees) fetchTips(ctx context.Context, h home, rec record, ids []string, have map[string]bool) (refused, err error) {
	if err := t.dropIncoming(ctx, h, rec); err != nil {
		return nil, err
	}
	specs := make([]string, len(ids))
	for i := range ids {
		specs[i] = "+refs/tips/" + strconv.Itoa(i) + ":" + incomingPrefix(rec.Key) + strconv.Itoa(i)
	}
	refused = t.fetchIntake(ctx, h, rec, specs)
	if refused != nil && len(specs) > 1 {
		refused = nil
		for _, spec := range specs {
			refused = errors.Join(refused, t.fetchIntake(ctx, h, rec, []string{spec}))
		}
	}
	for i, id := range ids {
		got, err := t.refCommit(ctx, h, incomingPrefix(rec.Key)+strconv.Itoa(i))
		if err != nil {
			return refused, err
		}
		if got == id {
			have[id] = true
		}
	}
	return refused, nil
}

func (t *Trees) fetchIntake(ctx context.Context, h home, rec record, specs []string) error {
	return t.git.do(ctx, call{gitDir: h.store(), local: true, args: fetchArgs(h.intake(rec.Key), specs...),
		with: []string{"fetch.fsckObjects=true", "transfer.fsckObjects=true", "fetch.unpackLimit=1"}})
}

// dropIncoming removes the refs that held new commits while they were sorted.
func (t *Trees) dropIncoming(ctx context.Context, h home, rec record) error {
	refs, err := t.refsBelow(ctx, h, incomingPrefix(rec.Key))
	if err != nil {
		return err
	}
	var commands []string
	for name := range refs {
		commands = append(commands, "delete "+name)
	}
	return t.updateRefs(ctx, h, commands)
}
