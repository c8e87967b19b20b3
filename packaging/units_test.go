package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// composeFile is the part of the compose format that is held against the house's rules.
type composeFile struct {
	Services map[string]struct {
		Image       string
		Build       string
		Ports       []string
		Environment map[string]string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Healthcheck struct{ Test []string }
		Volumes     []string
	}
	Volumes map[string]any
}

func TestComposeKeepsToLoopbackAndAsksForSecrets(t *testing.T) {
	data, err := os.ReadFile("../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c composeFile
	if err := yaml.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	pulse, postgres := c.Services["pulse"], c.Services["postgres"]
	if pulse.Build == "" || !strings.HasPrefix(postgres.Image, "postgres:") {
		t.Errorf("want pulse built here and a postgres, got %q and %q", pulse.Build, postgres.Image)
	}
	if pulse.DependsOn["postgres"].Condition != "service_healthy" || len(postgres.Healthcheck.Test) == 0 {
		t.Error("pulse must wait until PostgreSQL answers")
	}
	for name, service := range c.Services {
		for _, port := range service.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s beyond loopback", name, port)
			}
		}
		for key, value := range service.Environment {
			secret := regexp.MustCompile(`TOKEN|PASSWORD`).MatchString(key)
			if secret && !strings.HasPrefix(value, "${") {
				t.Errorf("%s: the value of %s stands in the file", name, key)
			}
		}
	}
	if url := pulse.Environment["PULSE_DATABASE_URL"]; !strings.Contains(url, ":${POSTGRES_PASSWORD:?") || !strings.Contains(url, "@postgres:5432/") {
		t.Errorf("database address %q", url)
	}
	if !strings.Contains(pulse.Environment["PULSE_HTTP_TOKEN"], ":?") {
		t.Error("beyond loopback a token must be asked for")
	}
}

func TestUnitIsHardened(t *testing.T) {
	data, err := os.ReadFile("pulse.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"User=pulse", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "ProtectHome=tmpfs",
		"PrivateTmp=yes", "PrivateDevices=yes", "StateDirectory=pulse", "KillMode=mixed", "Restart=on-failure"} {
		if !bytes.Contains(data, []byte("\n"+line+"\n")) {
			t.Errorf("no line %s", line)
		}
	}
}

// systemd itself says whether it understands the unit; a key it does not know would be passed over in silence.
func TestUnitIsUnderstoodBySystemd(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		cannot(t, "no systemd-analyze on this machine")
	}
	data, err := os.ReadFile("pulse.service")
	if err != nil {
		t.Fatal(err)
	}
	// The binary need not be installed here to know that the unit is well formed.
	unit := t.TempDir() + "/pulse.service"
	if err := os.WriteFile(unit, bytes.ReplaceAll(data, []byte("/usr/local/bin/pulse"), []byte("/bin/true")), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tool, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("pulse.service:")) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
