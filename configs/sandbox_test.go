package configs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pulseloop/configs"
)

func TestSandboxLevels(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	load := func(text string, env configs.Env) (configs.Config, error) {
		file := filepath.Join(t.TempDir(), "pulse.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return configs.Load(file, env)
	}
	if c, err := load("projects: {a: {path: /src/a, sandbox: none}, b: {path: /src/b}}\n", none); err != nil || c.Sandbox != "auto" || c.Projects["a"].Sandbox != "none" || c.Projects["b"].Sandbox != "" {
		t.Errorf("%+v %v", c.Projects, err)
	}
	byEnv := func(name string) (string, bool) {
		return "bubblewrap", name == "PULSE_SANDBOX" || name == "PULSE_PROJECTS_A_SANDBOX"
	}
	if c, err := load("projects: {a: {path: /src/a, sandbox: none}}\n", byEnv); err != nil || c.Sandbox != "bubblewrap" || c.Projects["a"].Sandbox != "bubblewrap" {
		t.Errorf("%+v %v", c, err)
	}
	_, err := load("sandbox: docker\nprojects: {a: {path: /src/a, sandbox: strong}}\n", none)
	if err == nil || !strings.Contains(err.Error(), `sandbox: there is no sandbox "docker"`) || !strings.Contains(err.Error(), `projects.a.sandbox: there is no sandbox "strong"`) {
		t.Errorf("%v", err)
	}
}
