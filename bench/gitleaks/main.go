// Command gitleaks measures how fast gitleaks, as a library, looks through a text: the file named, in pieces of 64 KiB.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/zricethezav/gitleaks/v8/detect"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gitleaks:", err)
		os.Exit(1)
	}
}

func run() error {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	detector, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return err
	}
	text = text[:min(len(text), 4<<20)]
	found := 0
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		return err
	}
	begin := time.Now()
	for at := 0; at < len(text); at += 64 << 10 {
		found += len(detector.DetectString(string(text[at:min(len(text), at+64<<10)])))
	}
	took := time.Since(begin)
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		return err
	}
	used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	mb := float64(len(text)) / 1e6
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"MB/s": mb / used.Seconds(), "MB/s by the clock": mb / took.Seconds(), "found": float64(found)})
}
