package db_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"pulseloop/db"
	"pulseloop/db/dbtest"
)

const childVar = "PULSE_DB_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childVar); path != "" {
		if err := writeUntilKilled(path); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// writeUntilKilled writes settings as fast as it can and names each on
// standard output once the store has answered.
func writeUntilKilled(path string) error {
	ctx := context.Background()
	s, err := db.Open(ctx, db.Config{Path: path})
	if err != nil {
		return err
	}
	if _, err := s.Migrate(ctx); err != nil {
		return err
	}
	failed := make(chan error)
	for w := range 4 {
		go func() {
			for n := 0; ; n++ {
				key := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, n)
				if err := s.SaveSetting(ctx, key, "v"); err != nil {
					failed <- err
					return
				}
				os.Stdout.WriteString(key + "\n")
			}
		}()
	}
	return <-failed
}

// TestAKilledProcessLosesNoAnsweredWrite kills a writer again and again,
// also while it opens and migrates.
func TestAKilledProcessLosesNoAnsweredWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pulse.db")
	var answered []string
	for _, stopAfter := range []int{0, 1, 60, 0, 200, 25} {
		child := exec.Command(os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), childVar+"="+path)
		out, err := child.StdoutPipe()
		check(t, err)
		check(t, child.Start())
		lines := bufio.NewScanner(out)
		for n := 0; n < stopAfter && lines.Scan(); n++ {
			answered = append(answered, lines.Text())
		}
		check(t, child.Process.Kill())
		for lines.Scan() { // what was answered before the kill and not read yet
			answered = append(answered, lines.Text())
		}
		var ended *exec.ExitError
		if err := child.Wait(); err == nil || !errors.As(err, &ended) {
			t.Fatalf("the child ended by itself: %v", err)
		}
	}
	if len(answered) < 250 {
		t.Fatalf("only %d writes were answered: %q", len(answered), answered)
	}
	place := dbtest.Place{Config: db.Config{Path: path}}
	s := place.Open(t, nil)
	check(t, second(s.Migrate(t.Context())))
	for _, key := range answered {
		if strings.HasPrefix(key, "error:") {
			t.Fatal(key)
		}
		if _, err := s.Setting(t.Context(), key); err != nil {
			t.Fatalf("answered, but lost: %s: %v", key, err)
		}
	}
	var verdict string
	check(t, place.Raw(t).QueryRow("PRAGMA integrity_check").Scan(&verdict))
	if verdict != "ok" {
		t.Errorf("the file is damaged: %s", verdict)
	}
}
