package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

type entry struct {
	name string
	mode int64
	kind byte
}

func tarball(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	w := tar.NewWriter(zipped)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Typeflag: e.kind, Linkname: "/etc/passwd"}
		if e.kind == tar.TypeReg {
			h.Size = int64(len("content"))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			if _, err := w.Write([]byte("content")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func pin(data []byte) Package {
	sum := sha512.Sum512(data)
	return Package{Command: "tool", Package: "@acme/tool", Version: "1.0.0", Arch: "amd64", Tarball: "@acme/tool/-/tool-1.0.0.tgz",
		Integrity: "sha512-" + base64.StdEncoding.EncodeToString(sum[:]), Binary: "package/bin/tool"}
}

// registry answers each request with the next handler; the last one repeats.
func registry(t *testing.T, answers ...http.HandlerFunc) (*downloader, *atomic.Int32) {
	t.Helper()
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(calls.Add(1))
		answers[min(n, len(answers))-1](w, r)
	}))
	t.Cleanup(server.Close)
	d := newDownloader(func() string { return server.URL + "/" })
	d.pause = func(context.Context, int) error { return nil }
	return d, &calls
}

func serve(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(data) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestRunUnpacksOnceAndThenDoesNothing(t *testing.T) {
	data := tarball(t, entry{"package/bin/tool", 0o755, tar.TypeReg}, entry{"package/README.md", 0o644, tar.TypeReg})
	p, dir := pin(data), t.TempDir()
	d, calls := registry(t, serve(data))
	for range 2 {
		if err := run(t.Context(), dir, "linux/amd64", []Package{p}, d); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
	info, err := os.Stat(filepath.Join(dir, "bin", "tool"))
	if err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("bin/tool: %v, %v; want an executable", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "part-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRunReplacesTheLinkOfAnOlderVersion(t *testing.T) {
	data := tarball(t, entry{"package/bin/tool", 0o755, tar.TypeReg})
	p, dir := pin(data), t.TempDir()
	d, _ := registry(t, serve(data))
	if err := run(t.Context(), dir, "linux/amd64", []Package{p}, d); err != nil {
		t.Fatal(err)
	}
	p.Version = "1.1.0"
	if err := run(t.Context(), dir, "linux/amd64", []Package{p}, d); err != nil {
		t.Fatal(err)
	}
	if target, _ := os.Readlink(filepath.Join(dir, "bin", "tool")); !strings.Contains(target, "1.1.0") {
		t.Errorf("bin/tool links to %s, want version 1.1.0", target)
	}
}

func TestRunTriesAgainAfterAServerErrorAndACutTransfer(t *testing.T) {
	data := tarball(t, entry{"package/bin/tool", 0o755, tar.TypeReg})
	d, calls := registry(t, status(http.StatusBadGateway), serve(data[:len(data)/2]), serve(data))
	if err := run(t.Context(), t.TempDir(), "linux/amd64", []Package{pin(data)}, d); err != nil {
		t.Fatal(err)
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("%d downloads, want 3", n)
	}
}

func TestRunRefusesAWrongChecksumAndLeavesNothing(t *testing.T) {
	data := tarball(t, entry{"package/bin/tool", 0o755, tar.TypeReg})
	d, _ := registry(t, serve(append(data, 'x')))
	dir := t.TempDir()
	err := run(t.Context(), dir, "linux/amd64", []Package{pin(data)}, d)
	if err == nil || !strings.Contains(err.Error(), "checksum") || !strings.Contains(err.Error(), "@acme/tool 1.0.0") {
		t.Fatalf("error %v, want one that names the package and the checksum", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pkg")); err == nil {
		t.Error("the package was unpacked all the same")
	}
}

func TestRunDoesNotRepeatWhatCannotSucceed(t *testing.T) {
	d, calls := registry(t, status(http.StatusNotFound))
	if err := run(t.Context(), t.TempDir(), "linux/amd64", []Package{pin(nil)}, d); err == nil {
		t.Fatal("a missing tarball went unnoticed")
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestUnpackRefusesWhatLeavesItsFolder(t *testing.T) {
	for name, e := range map[string]entry{
		"parent":   {"../evil", 0o644, tar.TypeReg},
		"absolute": {"/evil", 0o644, tar.TypeReg},
		"symlink":  {"package/link", 0o644, tar.TypeSymlink},
		"hardlink": {"package/link", 0o644, tar.TypeLink},
	} {
		t.Run(name, func(t *testing.T) {
			data := tarball(t, e, entry{"package/bin/tool", 0o755, tar.TypeReg})
			d, _ := registry(t, serve(data))
			dir := t.TempDir()
			if err := run(t.Context(), dir, "linux/amd64", []Package{pin(data)}, d); err == nil {
				t.Error("unpacked")
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "evil")); err == nil {
				t.Error("a file was written outside")
			}
		})
	}
}

func TestRunNamesAPlatformWithoutPins(t *testing.T) {
	d, _ := registry(t, status(http.StatusNotFound))
	err := run(t.Context(), t.TempDir(), "plan9/mips", []Package{pin(nil)}, d)
	if err == nil || !strings.Contains(err.Error(), "plan9/mips") {
		t.Errorf("error %v, want one that names the platform", err)
	}
}

func TestManifestPinsTheSameCommandsForEachArchitecture(t *testing.T) {
	packages, err := parseManifest(manifestJSON)
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]map[string]bool{}
	for _, p := range packages {
		if commands[p.Arch] == nil {
			commands[p.Arch] = map[string]bool{}
		}
		if commands[p.Arch][p.Command] {
			t.Errorf("%s is pinned twice for %s", p.Command, p.Arch)
		}
		commands[p.Arch][p.Command] = true
		if !strings.Contains(p.Tarball, p.Version) {
			t.Errorf("%s: tarball %s is not version %s", p.Package, p.Tarball, p.Version)
		}
	}
	for command := range commands["amd64"] {
		if !commands["arm64"][command] {
			t.Errorf("%s is pinned for amd64 alone", command)
		}
	}
}

func TestRegistryComesFromTheEnvironmentThenNpmrc(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("npm_config_registry", "")
	t.Setenv("NPM_CONFIG_REGISTRY", "")
	t.Setenv("PATH", home) // no npm to ask
	if got := findRegistry(); got != npmDefault {
		t.Errorf("nothing configured: %s, want npm's default", got)
	}
	if err := os.WriteFile(filepath.Join(home, ".npmrc"), []byte("fund=false\nregistry = \"https://mirror.example/npm\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := findRegistry(); got != "https://mirror.example/npm/" {
		t.Errorf(".npmrc: %s", got)
	}
	t.Setenv("NPM_CONFIG_REGISTRY", "https://env.example/")
	if got := findRegistry(); got != "https://env.example/" {
		t.Errorf("environment: %s", got)
	}
}
