package configs_test

import (
	"strings"
	"testing"

	"pulseloop/configs"
)

func TestSize(t *testing.T) {
	for text, want := range map[configs.Size]uint64{"": 0, "0": 0, "1024": 1024, "512MiB": 512 << 20, "1.5GiB": 3 << 29, "20 GB": 20e9, "75%": 750, "1TiB": 1 << 40} {
		if got, err := text.Bytes(1000); got != want || err != nil {
			t.Errorf("%s: %d %v", text, got, err)
		}
	}
	for _, text := range []configs.Size{" ", "much", "-1", "GiB", "NaN", "1e40GiB", "Inf", "5G", "1 GiB 2"} {
		if got, err := text.Bytes(1000); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestAmounts(t *testing.T) {
	a, err := configs.Defaults("/home/ann").Limits.Amounts(8 << 30)
	if want := (configs.Amounts{Memory: 6 << 30, Written: 100 << 30, FileSize: 20 << 30}); a != want || err != nil {
		t.Errorf("%+v %v", a, err)
	}
	if _, err := (configs.Limits{Memory: "1GiB", Written: "much"}).Amounts(0); err == nil {
		t.Error("what is no size")
	}
}

func TestLimits(t *testing.T) {
	c := configs.Defaults("/home/ann")
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.Limits = configs.Limits{Memory: "96%", Processes: 3, Written: "10%", FileSize: "lots", OpenFiles: -1}
	err := c.Validate()
	for _, key := range []string{"limits.memory: ", "limits.processes: is 3", "limits.written: ", `limits.file_size: "lots" is not a size`, "limits.open_files: is -1"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not in %v", key, err)
		}
	}
	c.Limits = configs.Limits{Memory: "0", Written: "0", FileSize: "0"}
	if err := c.Validate(); err != nil {
		t.Errorf("none: %v", err)
	}
	c.Limits.Memory = "1MiB"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "at least 64MiB") {
		t.Errorf("too little: %v", err)
	}
}
