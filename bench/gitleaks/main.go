// Command gitleaks measures how fast gitleaks, as a library, looks through a text: the file named, in pieces of 64 KiB.
package main

import (
	"encoding/json"
	"fmt"
	"os"
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
	begin := time.Now()
	for at := 0; at < len(text); at += 64 << 10 {
		found += len(detector.DetectString(string(text[at:min(len(text), at+64<<10)])))
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"MB/s": float64(len(text)) / 1e6 / time.Since(begin).Seconds(), "found": float64(found)})
}
