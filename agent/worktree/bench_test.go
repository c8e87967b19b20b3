package worktree

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkCheckpoint is one iteration of an agent in a repository of 8,280
// files: twenty files changed, half of them in a commit of its own.
func BenchmarkCheckpoint(b *testing.B) {
	f := benchField(b)
	tree := f.ensure()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		for j := range 20 {
			f.write(tree.Path, fmt.Sprintf("pkg%d/file%d.go", j, j), fmt.Sprint("package p // ", i))
			if j == 9 {
				f.git(tree.Path, "commit", "-q", "-a", "-m", "own")
			}
		}
		b.StartTimer()
		if cp := f.checkpoint(); cp.Commits != 2 {
			b.Fatalf("checkpoint = %+v", cp)
		}
	}
}

// BenchmarkEnsure makes and removes a tree of 8,280 files.
func BenchmarkEnsure(b *testing.B) {
	f := benchField(b)
	f.ensure()
	for i := 0; b.Loop(); i++ {
		w := f.want(fmt.Sprint("n", i))
		w.Branch = fmt.Sprint("b/", i)
		tree, err := f.trees.Ensure(b.Context(), w)
		f.must(err)
		b.StopTimer()
		f.must(f.trees.Remove(b.Context(), tree))
		b.StartTimer()
	}
}

func benchField(b *testing.B) *field {
	f := newField(b)
	for i := range 8280 {
		f.write(f.repo, fmt.Sprintf("pkg%d/file%d.go", i%120, i), strings.Repeat(fmt.Sprint("package p // ", i, "\n"), 40))
	}
	f.git(f.repo, "add", "-A")
	f.git(f.repo, "commit", "-q", "-m", "many")
	f.git(f.repo, "repack", "-q", "-a", "-d")
	return f
}
