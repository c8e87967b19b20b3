package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// evilConfig is every setting by which a git that reads it runs a program.
func (f *field) evilConfig() string {
	s := f.script
	return "[core]\n\tfsmonitor = " + s + "\n\thooksPath = " + filepath.Dir(s) + "/hooks\n\tpager = " + s + "\n\teditor = " + s +
		"\n\tsshCommand = " + s + "\n\taskPass = " + s + "\n\tgitProxy = " + s + "\n\talternateRefsCommand = " + s +
		"\n[diff]\n\texternal = " + s + "\n[diff \"evil\"]\n\ttextconv = " + s + "\n\tcommand = " + s +
		"\n[filter \"evil\"]\n\tclean = " + s + "\n\tsmudge = " + s + "\n\tprocess = " + s + "\n\trequired = true\n" +
		"[uploadpack]\n\tpackObjectsHook = " + s + "\n[gpg]\n\tprogram = " + s + "\n[commit]\n\tgpgSign = true\n" +
		"[credential]\n\thelper = !" + s + "\n[merge \"evil\"]\n\tdriver = " + s + "\n[trailer \"x\"]\n\tcmd = " + s + "\n" +
		"[protocol]\n\tallow = always\n[protocol \"ext\"]\n\tallow = always\n[remote \"origin\"]\n\turl = ext::" + s + "\n\tuploadpack = " + s +
		"\n\tpromisor = true\n\tfetch = +refs/*:refs/*\n[extensions]\n\tpartialClone = origin\n[url \"ext::" + s + " \"]\n\tinsteadOf = /\n"
}

func (f *field) appendTo(file, text string) {
	f.t.Helper()
	was, err := os.ReadFile(file)
	f.must(err)
	f.must(os.WriteFile(file, append(was, text...), 0o644))
}

var hookNames = []string{"applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit", "post-index-change",
	"post-merge", "post-receive", "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push",
	"pre-rebase", "pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout", "reference-transaction", "sendemail-validate", "update"}

func (f *field) plantHooks(dir string) {
	f.t.Helper()
	f.must(os.MkdirAll(dir, 0o755))
	body, err := os.ReadFile(f.script)
	f.must(err)
	for _, h := range hookNames {
		f.must(os.WriteFile(filepath.Join(dir, h), body, 0o755))
	}
}

// secret makes a third repository with content that must not travel, and
// gives its path, the id of a blob and the id of a commit.
func (f *field) secret() (dir, blob, commit string) {
	f.t.Helper()
	dir = filepath.Join(f.dir, "third")
	f.must(os.MkdirAll(dir, 0o755))
	f.git(dir, "init", "-q", "-b", "main")
	f.write(dir, "secret.txt", "the secret\n")
	f.git(dir, "add", "-A")
	f.git(dir, "commit", "-q", "-m", "secret")
	return dir, f.git(dir, "rev-parse", "HEAD:secret.txt"), f.git(dir, "rev-parse", "HEAD")
}

// plant is a trap: what the agent does to its tree, whether a naive git in the
// tree walks into it, and what the checkpoint must say.
type plant struct {
	do        func(f *field, tree string)
	fires     bool
	note      string // part of a note; empty: any
	noCommits bool   // the agent's own commit cannot be taken
}

func (f *field) ownCommit(tree string) {
	f.t.Helper()
	f.write(tree, "own.txt", "own\n")
	f.git(tree, "add", "own.txt")
	f.git(tree, "commit", "-q", "-m", "feat: own")
}

var plants = map[string]plant{
	"hooks": {do: func(f *field, tree string) { f.plantHooks(filepath.Join(tree, ".git/hooks")) }},
	"config that runs programs": {fires: true, do: func(f *field, tree string) {
		f.plantHooks(filepath.Join(f.dir, "hooks"))
		f.write(tree, ".gitattributes", "* filter=evil diff=evil merge=evil\n")
		f.appendTo(filepath.Join(tree, ".git/config"), f.evilConfig())
	}},
	"include of a config elsewhere": {fires: true, do: func(f *field, tree string) {
		f.write(f.dir, "elsewhere.cfg", f.evilConfig())
		f.appendTo(filepath.Join(tree, ".git/config"), "[include]\n\tpath = "+f.dir+"/elsewhere.cfg\n")
	}},
	"work tree elsewhere": {do: func(f *field, tree string) {
		dir, _, _ := f.secret()
		f.appendTo(filepath.Join(tree, ".git/config"), "[core]\n\tworktree = "+dir+"\n")
	}},
	"nested repository": {fires: true, note: "vendor/lib", do: func(f *field, tree string) {
		f.newRepo(filepath.Join(tree, "vendor/lib"))
		f.write(tree, "vendor/lib/.gitattributes", "* filter=evil\n")
		f.appendTo(filepath.Join(tree, "vendor/lib/.git/config"), f.evilConfig())
		f.git(tree, "-c", "core.fsmonitor=false", "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",vendor/lib")
	}},
	"nested repository in a tracked directory": {note: "src", do: func(f *field, tree string) {
		f.git(filepath.Join(tree, "src"), "init", "-q")
		f.appendTo(filepath.Join(tree, "src/.git/config"), f.evilConfig())
	}},
	"nested repository by a file": {note: "sub", do: func(f *field, tree string) {
		dir, _, _ := f.secret()
		f.write(tree, "sub/.git", "gitdir: "+dir+"/.git\n")
	}},
	"committed link to a repository": {fires: true, note: "link to another repository", do: func(f *field, tree string) {
		f.newRepo(filepath.Join(tree, "mod"))
		f.git(tree, "add", "mod")
		f.git(tree, "commit", "-q", "-m", "gitlink")
		f.appendTo(filepath.Join(tree, "mod/.git/config"), f.evilConfig())
	}},
	".git as a file": {note: "a file that points elsewhere", noCommits: true, do: func(f *field, tree string) {
		dir, _, _ := f.secret()
		f.must(os.RemoveAll(filepath.Join(tree, ".git")))
		f.write(tree, ".git", "gitdir: "+dir+"/.git\n")
	}},
	".git as a link to the person's": {note: "symbolic link", noCommits: true, do: func(f *field, tree string) {
		f.must(os.RemoveAll(filepath.Join(tree, ".git")))
		f.must(os.Symlink(filepath.Join(f.repo, ".git"), filepath.Join(tree, ".git")))
	}},
	".git gone": {note: "it was gone", noCommits: true, do: func(f *field, tree string) {
		f.must(os.RemoveAll(filepath.Join(tree, ".git")))
	}},
	"alternates added": {note: "borrows from was changed", noCommits: true, do: func(f *field, tree string) {
		dir, _, commit := f.secret()
		f.appendTo(filepath.Join(tree, ".git/objects/info/alternates"), dir+"/.git/objects\n")
		f.git(tree, "update-ref", "refs/heads/"+branch, commit)
	}},
	"objects by a link": {note: "its objects was no directory", noCommits: true, do: func(f *field, tree string) {
		dir, _, commit := f.secret()
		f.must(os.RemoveAll(filepath.Join(tree, ".git/objects")))
		f.must(os.Symlink(dir+"/.git/objects", filepath.Join(tree, ".git/objects")))
		f.git(tree, "update-ref", "refs/heads/"+branch, commit)
	}},
	"object files by links": {note: "were not taken", noCommits: true, do: func(f *field, tree string) {
		dir, _, commit := f.secret()
		objects, _ := filepath.Glob(dir + "/.git/objects/??/*")
		for _, o := range objects {
			to := filepath.Join(tree, strings.TrimPrefix(o, dir))
			f.must(os.MkdirAll(filepath.Dir(to), 0o755))
			f.must(os.Symlink(o, to))
		}
		f.git(tree, "update-ref", "refs/heads/"+branch, commit)
	}},
	"common directory elsewhere": {note: "share another repository", noCommits: true, do: func(f *field, tree string) {
		dir, _, _ := f.secret()
		f.write(tree, ".git/commondir", dir+"/.git\n")
	}},
	"HEAD at a ref outside": {note: "HEAD", do: func(f *field, tree string) {
		dir, _, _ := f.secret()
		f.write(tree, ".git/HEAD", "ref: refs/heads/../../../../third/.git/refs/heads/main\n")
		_ = dir
	}},
	"HEAD by a link": {note: "HEAD was no file", noCommits: true, do: func(f *field, tree string) {
		dir, _, _ := f.secret()
		f.must(os.Remove(filepath.Join(tree, ".git/HEAD")))
		f.must(os.Symlink(dir+"/.git/HEAD", filepath.Join(tree, ".git/HEAD")))
	}},
	"ref by a link": {do: func(f *field, tree string) {
		dir, _, _ := f.secret()
		f.must(os.Symlink(dir+"/.git/refs/heads/main", filepath.Join(tree, ".git/refs/heads/linked")))
	}},
	"odd packed refs": {do: func(f *field, tree string) {
		_, _, commit := f.secret()
		id := f.git(tree, "rev-parse", "HEAD")
		f.appendTo(filepath.Join(tree, ".git/packed-refs"), id+" refs/heads/--upload-pack=x\n"+id+" refs/heads/../../../x\n"+id+" refs/heads/a b\x07\n"+
			id+" refs/heads/-\n"+commit+" refs/heads/missing\n^"+id+"\n"+"zz refs/heads/no\n"+id+"\n"+id+" refs/pulse/trees/s1\n\n")
	}},
	"replace refs and grafts": {do: func(f *field, tree string) {
		f.git(tree, "commit", "-q", "--allow-empty", "-m", "other")
		a, b := f.git(tree, "rev-parse", "HEAD"), f.git(tree, "rev-parse", "HEAD~1")
		f.git(tree, "replace", b, a)
		f.write(tree, ".git/info/grafts", a+"\n")
		f.write(tree, ".git/shallow", b+"\n")
	}},
	"promised objects": {note: "were not taken", noCommits: true, do: func(f *field, tree string) {
		_, _, commit := f.secret()
		f.appendTo(filepath.Join(tree, ".git/config"), f.evilConfig())
		f.must(os.Remove(filepath.Join(tree, ".git/index")))
		f.write(tree, ".git/refs/heads/"+branch, commit+"\n")
	}},
	"a commit with .git in a path": {note: "failed git's check", noCommits: true, do: func(f *field, tree string) {
		blob := f.git(tree, "hash-object", "-w", f.script)
		inner := f.makeTree(tree, "100755 blob "+blob+"\tpost-checkout")
		hooks := f.makeTree(tree, "040000 tree "+inner+"\thooks")
		top := f.makeTree(tree, "040000 tree "+hooks+"\t.git")
		c := f.git(tree, "commit-tree", "-p", "HEAD", "-m", "evil", top)
		f.git(tree, "update-ref", "refs/heads/"+branch, c)
	}},
	"a hostile .gitmodules": {note: "failed git's check", noCommits: true, do: func(f *field, tree string) {
		f.write(tree, ".gitmodules", "[submodule \"../../x\"]\n\tpath = -u./evil\n\turl = -u./evil\n")
		f.git(tree, "add", "-A")
		f.git(tree, "commit", "-q", "-m", "modules")
		f.must(os.Remove(filepath.Join(tree, ".gitmodules")))
	}},
	"a damaged object": {note: "were not taken", noCommits: true, do: func(f *field, tree string) {
		id := f.git(tree, "rev-parse", "HEAD^{tree}")
		p := filepath.Join(tree, ".git/objects", id[:2], id[2:])
		f.must(os.Chmod(p, 0o644))
		f.must(os.WriteFile(p, []byte("junk"), 0o644))
	}},
	"names like .git": {do: func(f *field, tree string) {
		for _, n := range []string{".GIT", ".g\u200cit", "git~1", ".Git "} {
			f.write(tree, n+"/config", "[core]\n\tfsmonitor = "+f.script+"\n")
		}
	}, note: "names that git does not allow"},
	"pipes and sockets for files": {do: func(f *field, tree string) {
		f.must(os.Remove(filepath.Join(tree, "src/a.go")))
		f.must(mkfifo(filepath.Join(tree, "src/a.go")))
		f.must(mkfifo(filepath.Join(tree, "pipe")))
		f.must(os.RemoveAll(filepath.Join(tree, ".git/packed-refs")))
		f.must(mkfifo(filepath.Join(tree, ".git/refs/heads/pipe")))
	}},
}

func (f *field) makeTree(dir, entry string) string {
	f.t.Helper()
	h := f.dir + "/mktree"
	f.must(os.WriteFile(h, []byte(entry+"\n"), 0o600))
	out, err := f.shell(dir, "git mktree < "+h)
	if err != nil {
		f.t.Fatal(err, out)
	}
	return strings.TrimSpace(out)
}

func TestNothingOfTheAgentsIsRunOrReadThrough(t *testing.T) {
	for name, p := range plants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			tree := f.ensure()
			f.ownCommit(tree.Path)
			own := f.git(tree.Path, "rev-parse", "HEAD")
			f.write(tree.Path, "left.txt", "left\n")
			p.do(f, tree.Path)
			f.must(os.RemoveAll(f.canary)) // planting may have set it off
			same := f.untouched(branch)
			cp := f.checkpoint()
			_, _, err := f.trees.Diff(t.Context(), tree)
			f.must(err)
			f.nothingRan()
			same()
			if got := f.show(branch, "left.txt") + f.show(branch, "own.txt"); got != "left\nown\n" || !cp.Published {
				t.Errorf("files kept = %q, checkpoint = %+v", got, cp)
			}
			if f.has(f.repo, own) == p.noCommits {
				t.Errorf("own commit taken = %v, checkpoint = %+v", p.noCommits, cp)
			}
			if p.note != "" {
				f.wantNote(cp, p.note)
			}
			f.noSecret()
			f.git(f.store(), "fsck", "--strict")
			f.stillWorks()
			if p.fires && !f.trapFires(p) {
				t.Error("the trap does not work: a naive git did not set it off")
			}
		})
	}
}

func (f *field) noSecret() {
	f.t.Helper()
	dir := filepath.Join(f.dir, "third")
	if _, err := os.Stat(dir); err != nil {
		return
	}
	for _, id := range strings.Fields(f.git(dir, "rev-list", "--objects", "--no-object-names", "--all")) {
		for _, repo := range []string{f.store(), f.repo} {
			if f.has(repo, id) {
				f.t.Errorf("%s of the third repository came into %s", id, repo)
			}
		}
	}
}

// stillWorks goes on after the attack: the agent's git is sound, the next
// commit is taken, and nothing planted before is left to be run.
func (f *field) stillWorks() {
	f.t.Helper()
	if got := f.git(f.tree.Path, "rev-parse", "--git-common-dir"); got != ".git" {
		f.t.Errorf("the tree's git directory is %s", got)
	}
	f.write(f.tree.Path, "next.txt", "next\n")
	f.git(f.tree.Path, "add", "next.txt")
	f.git(f.tree.Path, "commit", "-q", "-m", "next")
	id := f.git(f.tree.Path, "rev-parse", "HEAD")
	if cp := f.checkpoint(); cp.Commits != 1 || cp.Commit != id || !cp.Published {
		f.t.Errorf("after the attack: %+v", cp)
	}
	f.nothingRan()
}

// trapFires plants again and does what a careless program would do.
func (f *field) trapFires(p plant) bool {
	f.must(os.RemoveAll(filepath.Join(f.dir, "second")))
	g := *f
	w := f.want("s2")
	w.Branch = "pulse/second"
	tree, err := f.trees.Ensure(f.t.Context(), w)
	f.must(err)
	p.do(&g, tree.Path)
	f.must(os.RemoveAll(f.canary))
	_, _ = f.try(tree.Path, "add", "-A")
	_, _ = f.try(tree.Path, "status")
	return f.ran()
}

func TestLargeBlobIsRefused(t *testing.T) {
	for name, commit := range map[string]func(f *field, tree string){
		"loose": func(*field, string) {},
		"packed": func(f *field, tree string) {
			f.git(tree, "repack", "-q", "-a", "-d", "-l")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			f.trees = f.open(Config{MaxTake: 1 << 20})
			tree := f.ensure()
			// Zeros pack well: a few kilobytes on disk.
			f.must(os.WriteFile(filepath.Join(tree.Path, "big"), make([]byte, 4<<20), 0o644))
			f.write(tree.Path, "small", "small\n")
			f.git(tree.Path, "add", "-A")
			f.git(tree.Path, "commit", "-q", "-m", "big")
			blob := f.git(tree.Path, "rev-parse", "HEAD:big")
			commit(f, tree.Path)
			cp := f.checkpoint()
			f.wantNote(cp, "larger than the 1 MiB")
			f.wantNote(cp, `"big"`)
			if f.has(f.store(), blob) || f.show(branch, "small") != "small\n" || len(cp.Files) != 1 {
				t.Errorf("checkpoint = %+v", cp)
			}
			if err := f.trees.Remove(t.Context(), tree); err == nil {
				t.Error("a tree with a file that could not be kept was removed")
			}
		})
	}
}
