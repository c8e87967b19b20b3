package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// npmDefault is the address every npm client uses when nobody configured another. It stands here, once, because a
// machine without npm has nowhere to ask for it; the environment and .npmrc come first.
const npmDefault = "https://registry." + npmDomain + "/"

const npmDomain = "npmjs.org"

// findRegistry returns the base address of the npm registry this machine is configured for, with a final slash.
func findRegistry() string {
	for _, find := range []func() string{registryFromEnv, registryFromNpmrc, registryFromNpm} {
		if base := strings.TrimSpace(find()); strings.HasPrefix(base, "http://") || strings.HasPrefix(base, "https://") {
			return strings.TrimRight(base, "/") + "/"
		}
	}
	return npmDefault
}

func registryFromEnv() string {
	if v := os.Getenv("NPM_CONFIG_REGISTRY"); v != "" {
		return v
	}
	return os.Getenv("npm_config_registry")
}

func registryFromNpmrc() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	f, err := os.Open(filepath.Join(home, ".npmrc"))
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if ok && strings.TrimSpace(key) == "registry" {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

func registryFromNpm() string {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return ""
	}
	out, err := exec.Command(npm, "config", "get", "registry").Output()
	if err != nil {
		return ""
	}
	return string(out)
}
