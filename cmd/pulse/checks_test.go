package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"pulseloop/configs"
)

// The other checks are broken one by one in e2e; a disk cannot be filled there.
func TestALackOfRoomNamesItsFix(t *testing.T) {
	dir := t.TempDir()
	cfg := configs.Config{DataDir: dir}
	if f := checkRoom(cfg, 0); len(f) != 1 || f[0].State != stateOK {
		t.Errorf("room enough: %+v", f)
	}
	if f := checkRoom(cfg, math.MaxUint64); len(f) != 1 || f[0].State != stateFail || !strings.Contains(f[0].Fix, "make room on the disk of "+dir) {
		t.Errorf("too little room: %+v", f)
	}
	if f := checkRoom(configs.Config{DataDir: filepath.Join(dir, "none")}, 0); len(f) != 1 || f[0].State != stateWarn || f[0].Fix == "" {
		t.Errorf("no directory: %+v", f)
	}
}
