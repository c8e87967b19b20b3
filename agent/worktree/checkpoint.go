package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strconv"
	"strings"
	"time"

	"pulseloop/pulse"
)

// lockWait bounds waiting where the caller gave no context.
func lockWait() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

// open finds a tree that is ready and takes its repository's lock.
func (t *Trees) open(ctx context.Context, key string) (home, record, func(), error) {
	h, _, err := t.find(key)
	if errors.Is(err, fs.ErrNotExist) {
		return home{}, record{}, nil, &pulse.Error{Code: pulse.CodeNotFound, Message: "there is no worktree " + strconv.Quote(key), Hint: "it may have been removed; list worktrees to see"}
	}
	if err != nil {
		return home{}, record{}, nil, err
	}
	release, err := t.locks.acquire(ctx, h)
	if err != nil {
		return home{}, record{}, nil, err
	}
	rec, err := h.load(key) // again: it may have gone while we waited
	if err != nil {
		release()
		return home{}, record{}, nil, err
	}
	return h, rec, release, nil
}

// Checkpoint keeps everything the agent did since the last one: its commits
// where they continue the branch, a commit of ours with what it left
// uncommitted, and archive refs for the rest. Then the branch is published and
// the tree gets a new .git. It is called when the agent's processes are dead.
// Called again after a crash it finishes what was begun.
func (t *Trees) Checkpoint(ctx context.Context, tree Tree, save Save) (Checkpoint, error) {
	h, rec, release, err := t.open(ctx, tree.Key)
	if err != nil {
		return Checkpoint{}, err
	}
	defer release()
	if !rec.Ready {
		return Checkpoint{}, &pulse.Error{Code: pulse.CodeConflict, Message: "worktree " + rec.Key + " is not finished", Hint: "open it again first"}
	}
	w, err := t.gather(ctx, h, rec, save)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: %w", rec.Key, err)
	}
	cp := Checkpoint{Commit: w.head, Notes: w.notes, Archived: w.archived}
	if err := t.describeChange(ctx, h, t.countedFrom(ctx, h, rec, w, save.Since), w.head, &cp); err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: %w", rec.Key, err)
	}
	note, published, err := t.publish(ctx, h, rec, w.head)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint %s: %w", rec.Key, err)
	}
	cp.Published = published
	if note != "" {
		cp.Notes = append(cp.Notes, note)
	}
	t.log.InfoContext(ctx, "checkpoint", "key", rec.Key, "commit", cp.Commit, "commits", cp.Commits, "files", len(cp.Files), "published", cp.Published)
	return cp, nil
}

// work is what gather found and stored.
type work struct {
	old, head string
	nested    []string
	lost      []string
	notes     []string
	archived  []string
}

// gather takes commits and files into the store and moves the head ref. When
// it returns, nothing of the agent's is only in the agent's tree.
func (t *Trees) gather(ctx context.Context, h home, rec record, save Save) (work, error) {
	old, err := t.refCommit(ctx, h, headRef(rec.Key))
	if err != nil {
		return work{}, err
	}
	if old == "" {
		return work{}, fmt.Errorf("read last checkpoint: %s is not in %s", headRef(rec.Key), h.store())
	}
	w := work{old: old, head: old}
	if !isRealDir(t.treePath(rec.Key)) {
		w.notes = []string{"The tree was gone and was made again from the last checkpoint."}
		return w, t.populate(ctx, h, rec, old)
	}
	archive, err := t.refsBelow(ctx, h, archivePrefix(rec.Key))
	if err != nil {
		return work{}, err
	}
	known := []string{old, rec.BaseCommit}
	for _, id := range archive {
		known = append(known, id)
	}
	got, err := t.take(ctx, h, rec, known)
	if err != nil {
		return work{}, err
	}
	w.notes = got.notes
	onto, snap, err := t.place(ctx, h, rec, old, got)
	if err != nil {
		return work{}, err
	}
	w.nested, w.lost, w.notes = snap.nested, snap.lost, append(w.notes, snap.notes...)
	if w.head, err = t.commit(ctx, h, onto, snap.tree, save); err != nil {
		return work{}, err
	}
	if err := t.settle(ctx, h, rec, &w, got); err != nil {
		return work{}, err
	}
	if got.refusal != "" {
		w.notes = append(w.notes, got.refusal+". The files were kept; a .git directory that was refused lies in "+h.refused(rec.Key)+".")
	}
	return w, t.renewGit(h, rec, w.head, got.refs, got.refusal != "")
}

// place decides which commit the files are stored on top of, and stores them.
// Only a descendant of the last checkpoint can be that commit.
func (t *Trees) place(ctx context.Context, h home, rec record, old string, got taken) (string, snapshot, error) {
	s := t.space(h, rec)
	if got.head != "" && got.head != old {
		if ok, err := t.isAncestor(ctx, h, old, got.head); err != nil {
			return "", snapshot{}, err
		} else if ok {
			snap, err := t.capture(ctx, s, got.head)
			return got.head, snap, err
		}
	}
	if tip := got.refs["refs/heads/"+rec.Branch]; tip != "" && tip != old {
		snap, ok, err := t.returnToBranch(ctx, h, s, old, tip, got.head)
		if err != nil || ok {
			return tip, snap, err
		}
	}
	snap, err := t.capture(ctx, s, old)
	return old, snap, err
}

// returnToBranch adopts the tip of the session's branch when the agent left
// the tree at an older commit without touching it there, to look at something:
// storing the old files on top would undo its work. The tree is put back.
func (t *Trees) returnToBranch(ctx context.Context, h home, s space, old, tip, head string) (snapshot, bool, error) {
	ok, err := t.isAncestor(ctx, h, old, tip)
	if err != nil || !ok {
		return snapshot{}, false, err
	}
	if head == "" { // HEAD was unreadable: the branch is the best word we have
		snap, err := t.capture(ctx, s, tip)
		return snap, true, err
	}
	if ok, err := t.isAncestor(ctx, h, head, tip); err != nil || !ok {
		return snapshot{}, false, err
	}
	snap, err := t.capture(ctx, s, head)
	if err != nil {
		return snapshot{}, false, err
	}
	want, err := t.treeOf(ctx, h, head)
	if err != nil || snap.tree != want {
		return snapshot{}, false, err
	}
	if err := t.git.do(ctx, s.call("read-tree", "-m", "-u", head, tip)); exitCode(err) > 0 {
		return snapshot{}, false, nil // something untracked is in the way: nothing was changed
	} else if err != nil {
		return snapshot{}, false, fmt.Errorf("put tree back: %w", err)
	}
	if snap.tree, err = t.treeOf(ctx, h, tip); err != nil {
		return snapshot{}, false, err
	}
	snap.notes = append(snap.notes, "The tree had been left at an older commit and was put back to the branch.")
	return snap, true, nil
}

// commit makes a commit of a tree, or gives its parent when that has the same.
func (t *Trees) commit(ctx context.Context, h home, parent, tree string, save Save) (string, error) {
	same, err := t.treeOf(ctx, h, parent)
	if err != nil || same == tree {
		return parent, err
	}
	id, err := t.git.text(ctx, call{gitDir: h.store(), stdin: []byte(message(save)), args: []string{"commit-tree", "-p", parent, "-F", "-", tree}})
	if err != nil {
		return "", fmt.Errorf("commit files: %w", err)
	}
	return id, nil
}

// message makes a commit message of what may be an agent's words: one subject
// line, valid UTF-8, and no NUL, which git refuses.
func message(save Save) string {
	clean := func(s string) string {
		return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", ""))
	}
	subject := strings.Join(strings.Fields(clean(save.Subject)), " ")
	text := or(subject, "chore: keep work in progress") + "\n"
	if body := clean(save.Body); body != "" {
		text += "\n" + body + "\n"
	}
	return text
}

// settle moves the head, archives what the branch does not reach and drops the
// refs of the intake, in one transaction.
func (t *Trees) settle(ctx context.Context, h home, rec record, w *work, got taken) error {
	var commands []string
	if w.head != w.old {
		commands = append(commands, "update "+headRef(rec.Key)+" "+w.head+" "+w.old)
	}
	names := []string{}
	for name := range got.refs {
		names = append(names, name)
	}
	sort.Strings(names)
	done := map[string]bool{"": true}
	for i, id := range append([]string{got.head}, idsOf(names, got.refs)...) {
		if done[id] {
			continue
		}
		done[id] = true
		loose, err := t.unreached(ctx, h, rec, id, w.head)
		if err != nil {
			return err
		}
		if !loose {
			continue
		}
		ref := archiveRef(rec.Key, id)
		commands = append(commands, "update "+ref+" "+id)
		w.archived = append(w.archived, ref)
		what := "HEAD"
		if i > 0 {
			what = strings.TrimPrefix(names[i-1], "refs/heads/")
		}
		w.notes = append(w.notes, fmt.Sprintf("Commits at %q do not continue the last checkpoint and were archived as %s.", what, ref))
	}
	incoming, err := t.refsBelow(ctx, h, incomingPrefix(rec.Key))
	if err != nil {
		return err
	}
	for name := range incoming {
		commands = append(commands, "delete "+name)
	}
	return t.updateRefs(ctx, h, commands)
}

// unreached tells whether a commit is in neither the branch nor the archive.
func (t *Trees) unreached(ctx context.Context, h home, rec record, id, head string) (bool, error) {
	out, err := t.git.text(ctx, call{gitDir: h.store(), args: []string{"rev-list", "--max-count=1", id, "--not", head, rec.BaseCommit,
		"--glob=" + archivePrefix(rec.Key) + "*"}})
	if err != nil {
		return false, fmt.Errorf("look for commits to archive: %w", err)
	}
	return out != "", nil
}

// countedFrom is the commit after which work is new to the caller: the one they have on record, if the branch goes through
// it. A record of something else (a tree that was made anew) counts from the last checkpoint.
func (t *Trees) countedFrom(ctx context.Context, h home, rec record, w work, since string) string {
	if since == "" {
		return rec.BaseCommit
	}
	if !hexID.MatchString(since) {
		return w.old
	}
	if ok, err := t.isAncestor(ctx, h, since, w.head); err != nil || !ok {
		return w.old
	}
	return since
}

// describeChange counts commits and lists files between two commits.
func (t *Trees) describeChange(ctx context.Context, h home, old, head string, cp *Checkpoint) error {
	cp.Files = []string{}
	if old == head {
		return nil
	}
	count, err := t.git.text(ctx, call{gitDir: h.store(), args: []string{"rev-list", "--count", head, "--not", old}})
	if err != nil {
		return fmt.Errorf("count commits: %w", err)
	}
	if cp.Commits, err = strconv.Atoi(count); err != nil {
		return fmt.Errorf("count commits: %w", err)
	}
	raw, err := t.git.list(ctx, call{gitDir: h.store(), args: []string{"diff-tree", "-r", "-z", "--raw", "--no-renames",
		"--no-ext-diff", "--no-textconv", "--ignore-submodules=none", old, head}})
	if err != nil {
		return fmt.Errorf("list changed files: %w", err)
	}
	var links []string
	for i := 0; i+1 < len(raw); i += 2 {
		cp.Files = append(cp.Files, raw[i+1])
		if f := strings.Fields(raw[i]); len(f) > 1 && f[1] == "160000" {
			links = append(links, raw[i+1])
		}
	}
	sort.Strings(cp.Files)
	if len(links) > 0 {
		cp.Notes = append(cp.Notes, "The agent committed a link to another repository, whose content is not part of the work: "+some(links)+".")
	}
	return nil
}
