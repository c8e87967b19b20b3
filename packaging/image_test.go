package packaging

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// cannot skips, or fails where nothing may be skipped.
func cannot(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// engine returns the container engine that answers, "" if there is none.
func engine() string {
	for _, name := range []string{"docker", "podman"} {
		if exec.Command(name, "info").Run() == nil {
			return name
		}
	}
	return ""
}

const builtVersion = "v0.0.0-image-test"

// TestImage builds the image, by an engine if one runs, else by executing the Dockerfile's stages in a chroot.
func TestImage(t *testing.T) {
	if _, err := os.Stat("../cmd/pulse"); err != nil {
		t.Fatal(err)
	}
	if name := engine(); name != "" {
		t.Logf("built by %s", name)
		testByEngine(t, name)
		return
	}
	if os.Geteuid() != 0 {
		cannot(t, "no container engine answers, and a chroot needs root")
	}
	for _, tool := range []string{"debootstrap", "unshare", "chroot"} {
		if _, err := exec.LookPath(tool); err != nil {
			if _, err := exec.LookPath("/usr/sbin/" + tool); err != nil {
				cannot(t, "no container engine answers, and %s is not installed", tool)
			}
		}
	}
	if _, err := debianRoot(); err != nil {
		cannot(t, "no container engine answers, and there is no Debian root: %v", err)
	}
	testInChroot(t)
}

func testByEngine(t *testing.T, name string) {
	const tag = "pulse-image-test"
	if out, err := exec.Command(name, "build", "-q", "-t", tag, "--build-arg", "VERSION="+builtVersion, "..").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	defer exec.Command(name, "rmi", "-f", tag).Run()
	out, err := exec.Command(name, "run", "--rm", tag, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), builtVersion) {
		t.Errorf("version: %v\n%s", err, out)
	}
	out, err = exec.Command(name, "run", "--rm", "--entrypoint", "id", tag, "-u").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) == "0" {
		t.Errorf("runs as user %s, %v", out, err)
	}
}

func testInChroot(t *testing.T) {
	ignore, err := readIgnore("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{context: "..", ignore: ignore, args: map[string]string{"VERSION": builtVersion}, work: t.TempDir(), done: map[string]*image{}}
	var final *image
	stages := readStages(t)
	for i, s := range stages {
		if final, err = b.build(s, i); err != nil {
			t.Fatal(err)
		}
	}
	last := stages[len(stages)-1]
	entry, _ := last.last("ENTRYPOINT")
	words, err := entry.words()
	if err != nil {
		t.Fatal(err)
	}

	t.Run("answers version", func(t *testing.T) {
		out, err := final.run(final.user, append(words, "version")...)
		if err != nil || !strings.Contains(out, builtVersion) {
			t.Errorf("said %q, %v; want %s", out, err, builtVersion)
		}
	})
	t.Run("is not root", func(t *testing.T) {
		out, err := final.run(final.user, "id", "-u")
		if err != nil || strings.TrimSpace(out) != "10001" {
			t.Errorf("runs as %q, %v", out, err)
		}
		if out, err := final.run(final.user, "touch", "/usr/local/bin/pulse"); err == nil {
			t.Errorf("may change its own binary: %s", out)
		}
	})
	t.Run("has what it needs", func(t *testing.T) {
		for _, command := range []string{"git --version", "test -s /etc/ssl/certs/ca-certificates.crt", `touch "$PULSE_DATA_DIR/a"`, `touch "$HOME/a"`} {
			if _, err := final.run(final.user, "sh", "-c", command); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(filepath.Join(final.root, "usr/local/go/bin/go")); err == nil {
			t.Error("the final image holds a compiler")
		}
	})
	t.Run("knows its health", func(t *testing.T) { testHealth(t, final, last) })
}

func testHealth(t *testing.T, im *image, s stage) {
	step, _ := s.last("HEALTHCHECK")
	_, command, _ := strings.Cut(step.args, "CMD ")
	words, err := instruction{name: "CMD", args: command}.words()
	if err != nil {
		t.Fatal(err)
	}
	var status atomic.Int64
	status.Store(http.StatusOK)
	var asked atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.URL.Path)
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	im.env["PULSE_HTTP_LISTEN"] = "0.0.0.0:" + server.URL[strings.LastIndex(server.URL, ":")+1:]
	if _, err := im.run(im.user, words...); err != nil || asked.Load() != "GET /healthz" {
		t.Errorf("well: %v, asked %q", err, asked.Load())
	}
	status.Store(http.StatusServiceUnavailable)
	if _, err := im.run(im.user, words...); err == nil {
		t.Error("unwell, but the check passed")
	}
	server.Close()
	if _, err := im.run(im.user, words...); err == nil {
		t.Error("gone, but the check passed")
	}
}
