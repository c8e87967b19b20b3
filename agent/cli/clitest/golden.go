package clitest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pulseloop/agent/cli"
)

var update = flag.Bool("update", false, "write the golden files of recorded streams anew")

// Golden decodes every recorded stream testdata/VERSION/NAME.jsonl and
// compares the events with golden/VERSION/NAME.txt. With -update the golden
// files are written.
func Golden(t *testing.T, b cli.Backend) {
	t.Helper()
	streams := recorded(t)
	if len(streams) == 0 {
		t.Fatal("there are no recorded streams")
	}
	for _, path := range streams {
		version, name := filepath.Base(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".jsonl")
		t.Run(version+"/"+name, func(t *testing.T) {
			stream, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			h := converse(t, b, cli.Input{Prompt: "x", Dir: "/repo"}, bytes.NewReader(stream))
			if h.err == nil {
				checkOrder(t, h.events)
			}
			compare(t, filepath.Join("golden", version, name+".txt"), render(h))
		})
	}
}

func recorded(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "*", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}

// render writes one event a line, with all that is in it.
func render(h heard) string {
	var b strings.Builder
	for _, e := range h.events {
		fmt.Fprintf(&b, "%s", e.Kind)
		switch {
		case e.Tool != nil:
			fmt.Fprintf(&b, " %s %s %q input=%s failed=%v output=%q", e.Tool.ID, e.Tool.Name, e.Tool.Summary, compact(e.Tool.Input), e.Tool.Failed, e.Tool.Output)
		case e.Usage != nil:
			fmt.Fprintf(&b, " %+v", *e.Usage)
		case e.Result != nil:
			fmt.Fprintf(&b, " failed=%v text=%q error=%q hint=%q usage=%+v", e.Result.Failed, e.Result.FinalText, e.Result.Error, e.Result.Hint, e.Result.Usage)
		case e.Kind == cli.EventStarted:
			fmt.Fprintf(&b, " conversation=%q model=%q", e.Conversation, e.Model)
		default:
			fmt.Fprintf(&b, " %q", e.Text)
		}
		b.WriteByte('\n')
	}
	if h.err != nil {
		fmt.Fprintf(&b, "error: %v\n", h.err)
	}
	return b.String()
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// Fuzz feeds any bytes to a backend: it must end, keep the order of events,
// and let nothing through that cannot be stored. Recorded streams and the
// given ones are the seeds.
func Fuzz(f *testing.F, b cli.Backend, seeds ...string) {
	for _, path := range recorded(f) {
		stream, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stream)
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		h := converse(t, b, cli.Input{Prompt: "x", Dir: "/repo"}, bytes.NewReader(stream))
		if h.err == nil {
			checkOrder(t, h.events)
		}
		for _, e := range h.events {
			texts := []string{e.Text, e.Model, e.Conversation}
			if e.Tool != nil {
				texts = append(texts, e.Tool.Name, e.Tool.Summary, e.Tool.Output)
			}
			if e.Result != nil {
				texts = append(texts, e.Result.FinalText, e.Result.Error, e.Result.Hint)
				if u := e.Result.Usage; u.InputTokens < 0 || u.OutputTokens < 0 || u.CacheReadTokens < 0 || u.CacheWriteTokens < 0 || u.CostMicros < 0 {
					t.Errorf("negative usage %+v", u)
				}
			}
			for _, text := range texts {
				if !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\x1b") {
					t.Errorf("%s holds %q", e.Kind, text)
				}
			}
		}
	})
}
