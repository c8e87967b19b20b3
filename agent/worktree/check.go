package worktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"pulseloop/pulse"
)

// repoInfo is what we need to know of the person's repository.
type repoInfo struct {
	root   string // top of the checkout, or the git directory of a bare repository
	common string // its common git directory: what all its worktrees share
	head   string // branch HEAD is on, empty when detached or unborn
	commit string // commit at HEAD of this checkout, empty when unborn
	format string // sha1 or sha256
}

// CheckRepo tells whether path lies in a git repository that sessions can
// work on: it has a commit and its whole history. root is the top of the
// checkout and headBranch the branch HEAD is on, empty when it is detached.
// An empty git means the one on PATH.
func CheckRepo(ctx context.Context, git, path string) (root, headBranch string, err error) {
	run, err := newRunner(git, os.DevNull, "pulse", "pulse@localhost")
	if err != nil {
		return "", "", err
	}
	info, err := run.inspectRepo(ctx, path)
	return info.root, info.head, err
}

func (r runner) inspectRepo(ctx context.Context, path string) (repoInfo, error) {
	path, err := existingDir(path)
	if err != nil {
		return repoInfo{}, err
	}
	out, err := r.text(ctx, call{dir: path, args: []string{"rev-parse", "--path-format=absolute",
		"--git-common-dir", "--is-bare-repository", "--is-shallow-repository", "--show-object-format"}})
	if err != nil {
		return repoInfo{}, notRepo(path, err)
	}
	f := strings.Split(out, "\n")
	if len(f) != 4 {
		return repoInfo{}, pulse.Invalid(fmt.Sprintf("git describes %s in an unknown way: %q", path, out), "move the repository to a path without line breaks")
	}
	info := repoInfo{root: f[0], common: f[0], format: f[3]}
	if f[1] == "false" {
		if info.root, err = r.text(ctx, call{dir: path, args: []string{"rev-parse", "--path-format=absolute", "--show-toplevel"}}); err != nil {
			return repoInfo{}, notRepo(path, err)
		}
	}
	if f[2] == "true" {
		return repoInfo{}, pulse.Invalid(path+" is a shallow clone: part of its history is missing",
			"complete it with: git -C "+path+" fetch --unshallow")
	}
	if err := r.refusePartial(ctx, path, info); err != nil {
		return repoInfo{}, err
	}
	ref, err := r.text(ctx, call{dir: path, args: []string{"symbolic-ref", "--quiet", "HEAD"}})
	if err != nil && exitCode(err) != 1 {
		return repoInfo{}, notRepo(path, err)
	}
	info.head = strings.TrimPrefix(ref, "refs/heads/")
	return info, r.refuseEmpty(ctx, path, &info)
}

func existingDir(path string) (string, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "", pulse.Invalid("no path to a repository was given", "give the path of a git repository")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolve repository path: %w", err)
	}
	st, err := os.Stat(abs)
	if err != nil {
		return "", &pulse.Error{Code: pulse.CodeInvalid, Message: "there is no repository at " + abs,
			Hint: "if it was moved, give its new path; if it is on a disk that is not mounted, mount it", Err: err}
	}
	if !st.IsDir() {
		return "", pulse.Invalid(abs+" is a file, not a repository", "give the directory that contains .git")
	}
	return abs, nil
}

func notRepo(path string, err error) error {
	if strings.Contains(stderrOf(err), "dubious ownership") {
		return &pulse.Error{Code: pulse.CodeInvalid, Message: path + " belongs to another user",
			Hint: "run pulse as the owner of the repository, or change the owner of its files", Err: err}
	}
	if exitCode(err) > 0 {
		return &pulse.Error{Code: pulse.CodeInvalid, Message: path + " is not a git repository",
			Hint: "give the path of one, or make one with: git init", Err: err}
	}
	return fmt.Errorf("inspect repository: %w", err)
}

// refusePartial looks at the config and at the packs: either shows a clone
// whose missing objects git would go and fetch in the middle of our work.
func (r runner) refusePartial(ctx context.Context, path string, info repoInfo) error {
	_, err := r.text(ctx, call{gitDir: info.common, args: []string{"config", "--get-regexp",
		`^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$`}})
	marks, _ := filepath.Glob(filepath.Join(info.common, "objects", "pack", "*.promisor"))
	if exitCode(err) == 1 && len(marks) == 0 {
		return nil
	}
	if err != nil && exitCode(err) != 1 {
		return fmt.Errorf("read repository config: %w", err)
	}
	return pulse.Invalid(path+" is a partial clone: some of its files are missing until asked for",
		"clone it again without --filter and use that path")
}

func (r runner) refuseEmpty(ctx context.Context, path string, info *repoInfo) error {
	commit, err := r.text(ctx, call{dir: path, args: []string{"rev-parse", "--quiet", "--verify", "--end-of-options", "HEAD^{commit}"}})
	if err == nil {
		info.commit = commit
		return nil
	}
	if exitCode(err) < 0 {
		return fmt.Errorf("read repository head: %w", err)
	}
	info.head = "" // unborn: the name stands for nothing yet
	some, err := r.text(ctx, call{gitDir: info.common, args: []string{"for-each-ref", "--count=1", "refs/heads"}})
	if err != nil {
		return fmt.Errorf("list branches: %w", err)
	}
	if some == "" {
		return pulse.Invalid(path+" has no commit yet", "make the first one: git -C "+path+" commit --allow-empty -m 'first commit'")
	}
	return nil
}
