package worktree

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"pulseloop/pulse"
)

// DefaultMaxTake bounds what one checkpoint takes from an agent, in bytes.
const DefaultMaxTake = 256 << 20

// Config says where trees live and who commits. Only Dir is required.
type Config struct {
	Dir     string       // data directory; worktrees/ and repos/ are made below it
	Git     string       // git binary; empty: "git" from PATH
	Log     *slog.Logger // empty: discarded
	Name    string       // committer, default "pulse"
	Email   string       // default "pulse@localhost"
	MaxTake int64        // bytes, both as stored and unpacked; default DefaultMaxTake
}

// Want names the tree to have.
type Want struct {
	Repo   string // path in or of the person's repository
	Key    string // unique among all trees, such as a session id
	Branch string // branch the work is published as
	Base   string // branch to start from; empty: the branch of the repository's HEAD
}

// Tree is an agent's tree as it is now.
type Tree struct {
	Path       string // absolute path of the working tree
	Repo       string // top of the person's repository
	Key        string
	Branch     string
	Base       string // name of what it started from
	BaseCommit string // commit it started from; does not move
	Head       string // last checkpoint
}

// Save is the message of the commit that holds what the agent left uncommitted.
type Save struct {
	Subject string
	Body    string
	// Since is the last commit that the caller has on record; what came after it is counted. A process that died between a
	// checkpoint and the report of it leaves commits that nobody heard of. Empty: the commit that the tree was made from.
	Since string
}

// Checkpoint is what one call of Trees.Checkpoint found and kept.
type Checkpoint struct {
	Commit    string   // head afterwards; the previous one when nothing changed
	Commits   int      // new commits since Save.Since, the agent's own included
	Files     []string // paths changed since then, sorted
	Published bool     // the person's branch is at Commit
	Notes     []string // sentences for a person: what was left out, refused, archived
	Archived  []string // refs in our store that were made for work outside the branch
}

// Trees makes, checkpoints and removes trees.
type Trees struct {
	dir     string
	git     runner
	log     *slog.Logger
	maxTake int64
	locks   *locks
}

// oldestGit is the first release whose upload-pack neither fetches missing
// objects by command of the served repository's config nor serves
// repositories of strangers.
var oldestGit = [3]int{2, 39, 4}

// New checks the git binary and makes the directories.
func New(cfg Config) (*Trees, error) {
	if cfg.Dir == "" || strings.ContainsAny(cfg.Dir, "\n\r\x00") {
		return nil, pulse.Invalid("the directory for worktrees is empty or has a line break in its name", "set data_dir to an ordinary path")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolve data directory: %w", err)
	}
	for _, d := range []string{"worktrees", "repos", "home"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("make data directory: %w", err)
		}
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("resolve data directory: %w", err)
	}
	run, err := newRunner(cfg.Git, filepath.Join(dir, "home"), or(cfg.Name, "pulse"), or(cfg.Email, "pulse@localhost"))
	if err != nil {
		return nil, err
	}
	t := &Trees{dir: dir, git: run, log: cfg.Log, maxTake: cfg.MaxTake, locks: newLocks()}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if t.maxTake <= 0 {
		t.maxTake = DefaultMaxTake
	}
	return t, t.checkVersion(context.Background())
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func findGit(name string) (string, error) {
	path, err := exec.LookPath(or(name, "git"))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", &pulse.Error{Code: pulse.CodeInvalid, Message: "git was not found", Hint: "install git 2.39.4 or newer, or name its path", Err: err}
	}
	return path, nil
}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)(?:\.(\d+))?`)

func (t *Trees) checkVersion(ctx context.Context) error {
	out, err := t.git.text(ctx, call{dir: t.dir, args: []string{"version"}})
	if err != nil {
		return fmt.Errorf("ask git for its version: %w", err)
	}
	m := versionNumber.FindStringSubmatch(out)
	if m == nil {
		return pulse.Invalid(fmt.Sprintf("git answers an unknown version: %q", out), "install git 2.39.4 or newer")
	}
	for i, least := range oldestGit {
		n, _ := strconv.Atoi(m[i+1]) // a missing third number is 0
		if n > least {
			return nil
		}
		if n < least {
			return pulse.Invalid("git "+m[0]+" is too old to be used on an agent's work", "install git 2.39.4 or newer")
		}
	}
	return nil
}

// List gives all trees, sorted by key. A tree that was being made when the
// program ended is listed as well: Ensure finishes it, Remove clears it away.
func (t *Trees) List(ctx context.Context) ([]Tree, error) {
	paths, err := filepath.Glob(filepath.Join(t.dir, "repos", "*", "trees", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list trees: %w", err)
	}
	trees := []Tree{}
	for _, p := range paths {
		h := home{dir: filepath.Dir(filepath.Dir(p))}
		rec, err := h.load(strings.TrimSuffix(filepath.Base(p), ".json"))
		if err != nil {
			t.log.WarnContext(ctx, "tree record unreadable", "path", p, "error", err)
			continue
		}
		tree, err := t.describe(ctx, h, rec)
		if err != nil {
			return nil, err
		}
		trees = append(trees, tree)
	}
	sort.Slice(trees, func(i, j int) bool { return trees[i].Key < trees[j].Key })
	return trees, nil
}

// describe joins a record with where its head ref is: the ref is the truth.
func (t *Trees) describe(ctx context.Context, h home, rec record) (Tree, error) {
	head, err := t.refCommit(ctx, h, headRef(rec.Key))
	if err != nil {
		return Tree{}, err
	}
	return Tree{
		Path: t.treePath(rec.Key), Repo: rec.Repo, Key: rec.Key, Branch: rec.Branch,
		Base: rec.Base, BaseCommit: rec.BaseCommit, Head: or(head, rec.BaseCommit),
	}, nil
}

func (t *Trees) treePath(key string) string { return filepath.Join(t.dir, "worktrees", key) }
