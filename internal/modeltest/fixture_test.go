package modeltest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// recordVar makes the contract tests write their streams to the backends' testdata.
const recordVar = "PULSE_RECORD"

// scrub replaces what belongs to this machine and this run: the repository becomes /repo, the home /home/agent, the port 1.
func scrub(lines [][]byte, dir string, env []string, url string) [][]byte {
	home := ""
	for _, kv := range env {
		if h, ok := strings.CutPrefix(kv, "HOME="); ok {
			home = h
		}
	}
	dashed := func(s string) string { return regexp.MustCompile(`[^A-Za-z0-9]`).ReplaceAllString(s, "-") }
	replace := strings.NewReplacer(
		dir, "/repo", dashed(dir), "-repo",
		home, "/home/agent", dashed(home), "-home-agent",
		strings.TrimPrefix(url, "http://"), "127.0.0.1:1",
	)
	var out [][]byte
	for _, l := range lines {
		out = append(out, socket.ReplaceAll([]byte(replace.Replace(string(l))), []byte("/run/agent.sock")))
	}
	return out
}

// socket is where claude listens for other instances of itself; the name has its process id.
var socket = regexp.MustCompile(`/[^"]*/cc-socks/\d+\.sock`)

// fixture records a stream, or compares its shape with the recorded one; a loose stream has no fixed shape.
func fixture(t *testing.T, p program, name string, lines [][]byte, loose bool) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "agent", "cli", p.name, "testdata", p.version, name+".jsonl")
	if os.Getenv(recordVar) == "1" {
		// A path cut in two by a delta escapes the scrubbing.
		if at := bytes.Index(bytes.Join(lines, nil), []byte(filepath.Join(os.TempDir(), "Test"))); at >= 0 {
			t.Fatal("the stream names a temporary directory; make the delta break elsewhere")
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(bytes.Join(lines, []byte("\n")), '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if loose {
		return
	}
	recorded, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read fixture (record it with %s=1): %v", recordVar, err)
	}
	want, got := shapes(t, p, bytes.Split(bytes.TrimSpace(recorded), []byte("\n"))), shapes(t, p, lines)
	if !slices.Equal(want, got) {
		t.Errorf("the stream no longer looks like %s.\nrecorded %s\nnow      %s", file, strings.Join(want, " "), strings.Join(got, " "))
	}
}

func shapes(t *testing.T, p program, lines [][]byte) []string {
	t.Helper()
	var out []string
	for _, l := range lines {
		var o obj
		if err := json.Unmarshal(l, &o); err != nil {
			t.Fatalf("not JSON: %v: %s", err, l)
		}
		if s := p.shape(o); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// str reads a string deep in an event; the path may lead nowhere.
func str(v any, path ...string) string {
	for _, p := range path {
		o, _ := v.(obj)
		v = o[p]
	}
	s, _ := v.(string)
	return s
}

func num(v any, path ...string) float64 {
	for _, p := range path {
		o, _ := v.(obj)
		v = o[p]
	}
	n, _ := v.(float64)
	return n
}

// quote spells a text as a JSON, and so a JavaScript, string.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}
