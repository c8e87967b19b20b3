package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pulseloop/configs"
	"pulseloop/db"
	"pulseloop/pulse"
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

// A chat that blocks the bot is no fault of the set-up, and still the reason
// why somebody hears nothing.
func TestDoctorTellsOfChatsThatTakeNothing(t *testing.T) {
	cfg := configs.Config{DataDir: t.TempDir(), HTTP: configs.HTTP{Listen: "127.0.0.1:1"}} // where nothing listens
	store, err := db.Open(t.Context(), db.Config{Path: sqliteFile(cfg)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := pulse.Address{Platform: pulse.PlatformTelegram, Chat: "42"}
	if err := store.HoldChat(t.Context(), at, false, time.Time{}, "the bot was blocked"); err != nil {
		t.Fatal(err)
	}
	if err := store.HoldChat(t.Context(), pulse.Address{Platform: pulse.PlatformTelegram, Chat: "43"}, false, time.Now().Add(time.Hour), "too many requests"); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	found := checkDatabase(t.Context(), cfg)
	if len(found) != 2 || found[0].State != stateOK || found[1].State != stateWarn || !strings.Contains(found[1].Detail, "chat 42 on telegram takes no messages: the bot was blocked") || found[1].Fix == "" {
		t.Errorf("%+v", found)
	}
}
