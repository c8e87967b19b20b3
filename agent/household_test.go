package agent

import (
	"os"
	"path/filepath"
	"testing"

	"pulseloop/agent/cli"
)

// home makes a person's home of a CLI, and the household of a run from it.
func home(t *testing.T) (dir string, h *household) {
	t.Helper()
	root := t.TempDir()
	dir = filepath.Join(root, "cli")
	for name, text := range map[string]string{"settings.json": `{"a":1}`, "skills/one/SKILL.md": "skill", "auth.json": `{"token":"old"}`,
		"history.jsonl": "other work", "config.toml": "x = 1", "state.json": `{"theme":"dark","projects":{"/src":{}},"mcpServers":{"x":"key"}}`} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h = &household{dir: filepath.Join(root, "run")}
	err := h.furnish(cli.Home{Dir: dir, Share: []string{"settings.json", "skills", "missing"}, Keep: []string{"auth.json", "no.json"},
		Copies: map[string]string{"config.toml": filepath.Join(dir, "config.toml"), "none": filepath.Join(dir, "none"),
			"state.json": filepath.Join(dir, "state.json")}, Forget: []string{"projects", "mcpServers"}})
	if err != nil {
		t.Fatal(err)
	}
	return dir, h
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHouseholdHasWhatIsNeededAndNoMore(t *testing.T) {
	dir, h := home(t)
	entries, err := os.ReadDir(h.dir)
	if err != nil || len(entries) != 5 {
		t.Fatalf("%v %v", entries, err)
	}
	if text(t, filepath.Join(h.dir, "skills", "one", "SKILL.md")) != "skill" || len(h.shared) != 2 {
		t.Errorf("shared: %v", h.shared)
	}
	if got := text(t, filepath.Join(h.dir, "state.json")); got != `{"theme":"dark"}` {
		t.Errorf("state.json: %s", got)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "config.toml"), []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text(t, filepath.Join(dir, "config.toml")) != "x = 1" {
		t.Error("the copy is the person's file")
	}
}

// A login that is renewed during a run is the person's afterwards, however it was written.
func TestHouseholdKeepsARenewedLogin(t *testing.T) {
	for name, renew := range map[string]func(path string) error{
		"in place":  func(path string) error { return os.WriteFile(path, []byte(`{"token":"new"}`), 0o600) },
		"by rename": func(path string) error { return replaceFile(path, []byte(`{"token":"new"}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, h := home(t)
			if err := renew(filepath.Join(h.dir, "auth.json")); err != nil {
				t.Fatal(err)
			}
			if err := h.keep(); err != nil {
				t.Fatal(err)
			}
			if got := text(t, filepath.Join(dir, "auth.json")); got != `{"token":"new"}` {
				t.Errorf("%s", got)
			}
			if info, err := os.Stat(filepath.Join(dir, "auth.json")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", info.Mode(), err)
			}
		})
	}
}

// What an agent puts in its place otherwise is left where it is.
func TestHouseholdKeepsNothingElse(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir, path string){
		"removed":  func(*testing.T, string, string) {},
		"no JSON":  func(t *testing.T, _, path string) { put(t, path, "garbage") },
		"too long": func(t *testing.T, _, path string) { put(t, path, `"`+string(make([]byte, maxKept))+`"`) },
		"a link": func(t *testing.T, dir, path string) {
			if err := os.Symlink(filepath.Join(dir, "settings.json"), path); err != nil {
				t.Fatal(err)
			}
		},
		"theirs is newer": func(t *testing.T, dir, path string) {
			put(t, path, `{"token":"mine"}`)
			put(t, filepath.Join(dir, "auth.json"), `{"token":"old"} `)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, h := home(t)
			path := filepath.Join(h.dir, "auth.json")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			change(t, dir, path)
			before := text(t, filepath.Join(dir, "auth.json"))
			if err := h.keep(); err != nil {
				t.Error(err)
			}
			if got := text(t, filepath.Join(dir, "auth.json")); got != before {
				t.Errorf("%q, was %q", got, before)
			}
		})
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
