// Command fetch unpacks the pinned agent CLIs that the contract tests drive.
//
// It owns the cache folder it is given: <dir>/pkg/<package>-<version>/ holds a tarball's content, <dir>/bin/<command>
// links to the binary in it. A package's folder appears by rename, after its checksum was right and the last file was
// written, so its existence is the proof that it is complete. Install scripts are never run.
// Several runs may start at once; a lock makes the later ones wait and find the work done.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

//go:embed manifest.json
var manifestJSON []byte

// Package is one pinned npm tarball for one machine architecture.
type Package struct {
	Command   string `json:"command"`   // name of the link in bin/
	Package   string `json:"package"`   // npm name, for people
	Version   string `json:"version"`   // exact version
	Arch      string `json:"arch"`      // GOARCH; the system is always linux
	Tarball   string `json:"tarball"`   // path below the registry's base address
	Integrity string `json:"integrity"` // as npm prints it: sha512-<base64>
	Binary    string `json:"binary"`    // path inside the tarball
}

// dir is the folder of the package below pkg/.
func (p Package) dir() string {
	return strings.ReplaceAll(strings.TrimPrefix(p.Package, "@"), "/", "-") + "-" + p.Version
}

func main() {
	dir := flag.String("dir", ".cache/cli", "cache folder")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	packages, err := parseManifest(manifestJSON)
	if err == nil {
		err = run(ctx, *dir, runtime.GOOS+"/"+runtime.GOARCH, packages, newDownloader(findRegistry))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		stop()
		os.Exit(1)
	}
}

func parseManifest(data []byte) ([]Package, error) {
	var m struct{ Packages []Package }
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	for _, p := range m.Packages {
		for field, value := range map[string]string{"command": p.Command, "package": p.Package, "version": p.Version,
			"arch": p.Arch, "tarball": p.Tarball, "integrity": p.Integrity, "binary": p.Binary} {
			if value == "" {
				return nil, fmt.Errorf("read manifest: package %q for %q has no %s", p.Package, p.Arch, field)
			}
		}
	}
	return m.Packages, nil
}

// run brings the cache folder up to date and prints one line.
func run(ctx context.Context, dir, platform string, all []Package, d *downloader) error {
	wanted, err := forPlatform(all, platform)
	if err != nil {
		return err
	}
	if complete(dir, wanted) {
		fmt.Printf("agent CLIs: %s, already in %s\n", names(wanted), dir)
		return nil
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	errs := make([]error, len(wanted))
	var wg sync.WaitGroup
	for i, p := range wanted {
		wg.Go(func() {
			if err := install(ctx, dir, p, d); err != nil {
				errs[i] = fmt.Errorf("fetch %s %s: %w", p.Package, p.Version, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Printf("agent CLIs: %s, unpacked into %s\n", names(wanted), dir)
	return nil
}

func forPlatform(all []Package, platform string) ([]Package, error) {
	var wanted []Package
	for _, p := range all {
		if "linux/"+p.Arch == platform {
			wanted = append(wanted, p)
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("no agent CLI is pinned for %s; add its entries to scripts/fetch/manifest.json", platform)
	}
	return wanted, nil
}

func names(packages []Package) string {
	var out []string
	for _, p := range packages {
		out = append(out, p.Command+" "+p.Version)
	}
	return strings.Join(out, ", ")
}

func complete(dir string, packages []Package) bool {
	for _, p := range packages {
		target, err := os.Readlink(filepath.Join(dir, "bin", p.Command))
		if err != nil || target != linkTarget(p) {
			return false
		}
		if _, err := os.Stat(filepath.Join(dir, "bin", p.Command)); err != nil {
			return false
		}
	}
	return true
}

// linkTarget is relative, so that the cache can be moved or copied into a container.
func linkTarget(p Package) string { return path.Join("../pkg", p.dir(), p.Binary) }

func install(ctx context.Context, dir string, p Package, d *downloader) error {
	final := filepath.Join(dir, "pkg", p.dir())
	if _, err := os.Stat(final); errors.Is(err, os.ErrNotExist) {
		if err := unpackInto(ctx, dir, final, p, d); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("look for the unpacked package: %w", err)
	}
	return link(dir, p)
}

func unpackInto(ctx context.Context, dir, final string, p Package, d *downloader) error {
	tmp, err := os.MkdirTemp(dir, "part-")
	if err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	tarball := filepath.Join(tmp, "package.tgz")
	if err := d.download(ctx, p, tarball); err != nil {
		return err
	}
	content := filepath.Join(tmp, "content")
	if err := unpack(ctx, tarball, content); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(content, filepath.FromSlash(p.Binary)))
	if err != nil || info.Mode()&0o111 == 0 {
		return fmt.Errorf("the tarball has no executable %s; the manifest names the wrong path", p.Binary)
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return fmt.Errorf("make package folder: %w", err)
	}
	if err := os.Rename(content, final); err != nil {
		return fmt.Errorf("put package in place: %w", err)
	}
	return nil
}

func link(dir string, p Package) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("make bin folder: %w", err)
	}
	fresh := filepath.Join(bin, "."+p.Command+".new")
	os.Remove(fresh) // left by a run that was killed; Symlink reports anything worse
	if err := os.Symlink(linkTarget(p), fresh); err != nil {
		return fmt.Errorf("link command: %w", err)
	}
	if err := os.Rename(fresh, filepath.Join(bin, p.Command)); err != nil {
		return fmt.Errorf("link command: %w", err)
	}
	return nil
}

// lock serialises runs and clears what killed ones left behind.
func lock(dir string) (func(), error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cache folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("take lock: %w", err)
	}
	parts, _ := filepath.Glob(filepath.Join(dir, "part-*")) // the pattern is constant and well formed
	for _, part := range parts {
		os.RemoveAll(part)
	}
	return func() { f.Close() }, nil
}
