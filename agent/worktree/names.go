package worktree

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"pulseloop/pulse"
)

// Refs in our store, all below refs/pulse so that no branch of the person can
// be in their way.
func headRef(key string) string      { return "refs/pulse/trees/" + key }
func baseRef(key string) string      { return "refs/pulse/base/" + key }
func publishedRef(key string) string { return "refs/pulse/published/" + key }
func archivePrefix(key string) string {
	return "refs/pulse/archive/" + key + "/"
}
func archiveRef(key, commit string) string { return archivePrefix(key) + commit[:12] }
func incomingPrefix(key string) string     { return "refs/pulse/incoming/" + key + "/" }

var keyShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// checkKey makes sure a key is one path component and one ref component.
func checkKey(key string) error {
	if !keyShape.MatchString(key) || strings.Contains(key, "..") || strings.HasSuffix(key, ".") || strings.HasSuffix(key, ".lock") {
		return pulse.Invalid(fmt.Sprintf("%q cannot name a worktree", key), "use letters, digits, '.', '_' and '-', at most 128, starting with a letter or digit")
	}
	return nil
}

// checkBranch refuses names git refuses, and those it would take for options.
func (r runner) checkBranch(ctx context.Context, dir, branch string) error {
	bad := pulse.Invalid(fmt.Sprintf("%q cannot name a branch", branch), "use letters, digits, '/', '.', '_' and '-', such as pulse/fix-login")
	if branch == "" || branch == "HEAD" || branch == "@" || strings.HasPrefix(branch, "-") || strings.HasPrefix(branch, "refs/") || len(branch) > 200 {
		return bad
	}
	err := r.do(ctx, call{dir: dir, args: []string{"check-ref-format", "refs/heads/" + branch}})
	if exitCode(err) > 0 {
		return bad
	}
	return err
}

// branchPart is what we accept of the names of an agent's side branches when
// they are shown to it again.
var branchPart = regexp.MustCompile(`^refs/heads/[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$`)

func plainBranchRef(name string) bool {
	if len(name) > 200 || !branchPart.MatchString(name) || strings.Contains(name, "..") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasSuffix(part, ".lock") || strings.HasSuffix(part, ".") {
			return false
		}
	}
	return true
}

var hexID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

func idLen(format string) int {
	if format == "sha256" {
		return 64
	}
	return 40
}
