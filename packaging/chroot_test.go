package packaging

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
)

// A stage is executed in a root folder as an engine would: RUN in a chroot with its own mounts, COPY from the build
// context or an earlier stage. Base images are stood in for by a Debian root made with debootstrap; the golang image is
// that root with this machine's Go mounted in.

const (
	suite    = "bookworm"
	rootsDir = "../.cache/roots"
)

// image is a stage that has been, or is being, executed.
type image struct {
	root    string
	env     map[string]string
	args    map[string]string
	workdir string
	user    string
	mounts  []mount
}

type mount struct{ from, to string }

func (im *image) path(inside string) string {
	if !strings.HasPrefix(inside, "/") {
		inside = filepath.Join(im.workdir, inside)
	}
	return filepath.Join(im.root, inside)
}

// run executes a command in the image. The mounts live in a namespace of its own and end with it, however it ends.
func (im *image) run(user string, command ...string) (string, error) {
	script := `set -e; root=$1; user=$2; dir=$3; shift 3
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done; shift
exec chroot --userspec="$user" "$root" /usr/bin/env -i -C "$dir" "$@"`
	args := []string{"--mount", "--propagation", "private", "sh", "-c", script, "run", im.root, user, im.workdir}
	for _, m := range im.mounts {
		args = append(args, m.from, m.to)
	}
	args = append(args, "--")
	for _, set := range []map[string]string{im.args, im.env} {
		for key, value := range set {
			args = append(args, key+"="+value)
		}
	}
	out, err := exec.Command("unshare", append(args, command...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run %s: %w\n%s", strings.Join(command, " "), err, out)
	}
	return string(out), nil
}

// builder executes the stages of a Dockerfile.
type builder struct {
	context string
	ignore  []string
	args    map[string]string // --build-arg
	work    string            // where the roots of the stages grow
	done    map[string]*image
}

func (b *builder) build(s stage, n int) (*image, error) {
	im := &image{root: filepath.Join(b.work, fmt.Sprint(n)), workdir: "/", user: "0:0", args: map[string]string{},
		env: map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}}
	key, err := b.base(s.base, im)
	if err != nil {
		return nil, err
	}
	first, err := b.restore(s, key, im)
	if err != nil {
		return nil, err
	}
	for i, step := range s.steps {
		if i < first && step.name == "RUN" {
			continue // its result was restored
		}
		if err := b.step(im, step); err != nil {
			return nil, fmt.Errorf("%s %s: %w", step.name, step.args, err)
		}
	}
	b.done[s.name] = im
	return im, nil
}

// restore copies what the stage starts from into place: the base, or what the RUN steps before the first COPY have
// made of it, which is kept because it costs downloads. It returns the number of steps that are included.
func (b *builder) restore(s stage, base string, im *image) (int, error) {
	first, said := 0, base
	for i, step := range s.steps {
		if step.name == "COPY" {
			break
		}
		said += "\n" + step.name + " " + step.args
		if step.name == "RUN" {
			first = i + 1
		}
	}
	if first == 0 {
		return 0, copyTree(base, im.root)
	}
	sum := sha256.Sum256([]byte(said))
	layer := filepath.Join(rootsDir, "layer-"+hex.EncodeToString(sum[:8]))
	unlock, err := lock(layer + ".lock")
	if err != nil {
		return 0, err
	}
	defer unlock()
	if _, err := os.Stat(layer); err == nil {
		return first, copyTree(layer, im.root)
	}
	if err := copyTree(base, im.root); err != nil {
		return 0, err
	}
	fresh := *im
	for _, step := range s.steps[:first] {
		if err := b.step(&fresh, step); err != nil {
			return 0, fmt.Errorf("%s %s: %w", step.name, step.args, err)
		}
	}
	part := layer + ".part"
	if err := errors.Join(os.RemoveAll(part), copyTree(im.root, part)); err != nil {
		return 0, err
	}
	return first, os.Rename(part, layer)
}

// base stands in for a base image and returns the folder it comes from.
func (b *builder) base(name string, im *image) (string, error) {
	debian, err := debianRoot()
	if err != nil {
		return "", err
	}
	switch {
	case name == "debian:"+suite+"-slim":
		return debian, nil
	case strings.HasPrefix(name, "golang:") && strings.HasSuffix(name, "-"+suite):
		goroot, err := goEnv("GOROOT")
		if err != nil {
			return "", err
		}
		// Modules and build results are this machine's: a second run compiles what changed.
		modules, err := goEnv("GOMODCACHE")
		if err != nil {
			return "", err
		}
		cache, err := goEnv("GOCACHE")
		if err != nil {
			return "", err
		}
		im.mounts = []mount{{goroot, "/usr/local/go"}, {modules, "/go/pkg/mod"}, {cache, "/root/.cache/go-build"}}
		// The golang image brings certificates; this machine's know a company's proxy too.
		if _, err := os.Stat("/etc/ssl/certs/ca-certificates.crt"); err == nil {
			im.mounts = append(im.mounts, mount{"/etc/ssl/certs", "/etc/ssl/certs"})
		}
		im.env["PATH"] = "/usr/local/go/bin:" + im.env["PATH"]
		im.env["GOPATH"] = "/go"
		if proxy, err := goEnv("GOPROXY"); err == nil {
			im.env["GOPROXY"] = proxy
		}
		return debian, nil
	}
	return "", fmt.Errorf("nothing stands in for the base image %s", name)
}

func goEnv(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("ask for %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (b *builder) step(im *image, step instruction) error {
	switch step.name {
	case "RUN":
		_, err := im.run(im.user, "sh", "-c", step.args)
		return err
	case "COPY":
		return b.copy(im, step)
	case "ARG":
		name, value, _ := strings.Cut(step.args, "=")
		if given, ok := b.args[name]; ok {
			value = given
		}
		im.args[name] = value
	case "ENV":
		for _, pair := range strings.Fields(step.args) {
			name, value, ok := strings.Cut(pair, "=")
			if !ok {
				return errors.New("want NAME=value")
			}
			im.env[name] = value
		}
	case "USER":
		im.user = step.args
	case "WORKDIR":
		im.workdir = filepath.Join(im.workdir, step.args)
		return os.MkdirAll(im.path("."), 0o755)
	}
	return nil // the rest describes how the image is used
}

func (b *builder) copy(im *image, step instruction) error {
	words := strings.Fields(step.args)
	sources, target := words[:len(words)-1], words[len(words)-1]
	for _, source := range sources {
		to := im.path(target)
		if strings.HasSuffix(target, "/") && !strings.HasSuffix(source, "/") && source != "." {
			to = filepath.Join(to, filepath.Base(source))
		}
		var err error
		if from := step.flags["from"]; from == "" {
			err = b.copyContext(source, to)
		} else if earlier := b.done[from]; earlier != nil {
			err = copyTree(earlier.path(source), to)
		} else {
			err = fmt.Errorf("there is no stage %s", from)
		}
		if err != nil {
			return err
		}
		if mode := step.flags["chmod"]; mode != "" {
			if out, err := exec.Command("chmod", mode, to).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
	}
	return nil
}

// copyContext copies a file or folder of the build context, less what .dockerignore names.
func (b *builder) copyContext(source, to string) error {
	return filepath.WalkDir(filepath.Join(b.context, source), func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name != filepath.Join(b.context, source) {
			return nil // removed by somebody since it was listed
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(b.context, name)
		if err != nil {
			return err
		}
		if b.ignored(rel) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		below, err := filepath.Rel(filepath.Join(b.context, source), name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, below), 0o755)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		return copyFile(name, filepath.Join(to, below))
	})
}

// ignored knows the two forms that our .dockerignore uses: a path, and `**/` before a name.
func (b *builder) ignored(rel string) bool {
	for _, pattern := range b.ignore {
		if deep, ok := strings.CutPrefix(pattern, "**/"); ok {
			if hit, err := filepath.Match(deep, filepath.Base(rel)); err == nil && hit {
				return true
			}
		} else if rel == pattern {
			return true
		}
	}
	return false
}

func readIgnore(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(data)), nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// copyTree copies a file, or the content of a folder, with owners, links and devices.
func copyTree(from, to string) error {
	if info, err := os.Stat(from); err != nil {
		return err
	} else if info.IsDir() {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		from += "/."
	}
	if out, err := exec.Command("cp", "-a", "--reflink=auto", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}

// debianRoot returns a plain Debian, made once.
func debianRoot() (string, error) {
	dir, err := filepath.Abs(filepath.Join(rootsDir, "debian-"+suite))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	cmd := exec.Command("debootstrap", "--variant=minbase", suite, part)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("make a Debian root: %w\n%s", err, lastLines(out.String(), 20))
	}
	return dir, os.Rename(part, dir)
}

// lock keeps two runs from making the same folder; the second finds it made.
func lock(file string) (func(), error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func TestIgnoredFollowsDockerignore(t *testing.T) {
	b := &builder{ignore: []string{".git", "bin", "**/testdata", "**/*_test.go"}}
	var kept []string
	for _, rel := range []string{".git", "bin", "cmd/bin", "a/testdata", "testdata", "a/b_test.go", "a/b.go", ".github"} {
		if !b.ignored(rel) {
			kept = append(kept, rel)
		}
	}
	sort.Strings(kept)
	if got := strings.Join(kept, " "); got != ".github a/b.go cmd/bin" {
		t.Errorf("kept %s", got)
	}
}
