package claude

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"pulseloop/agent/cli"
)

type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Close() error                { return nil }

// BenchmarkConverse is the way of a recorded stream through reader and
// decoder; "lines/s" is what the daemon's speed is measured in.
func BenchmarkConverse(b *testing.B) {
	one, err := os.ReadFile(filepath.Join("testdata", "2.1.328", "commit.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	const copies = 200
	stream := bytes.Repeat(one, copies)
	lines := bytes.Count(stream, []byte{'\n'})
	backend, events := New(Config{}), 0
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		err := backend.Converse(b.Context(), cli.Wire{Stdin: nowhere{}, Stdout: bytes.NewReader(stream)}, cli.Input{}, nil, func(cli.Event) { events++ })
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
