package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"pulseloop/agent"
	"pulseloop/agent/cli"
	"pulseloop/agent/cli/claude"
	"pulseloop/internal/secret"
	"pulseloop/pulse"
	"pulseloop/pulse/extract"
)

// root is where the product's source lies.
func root() string { return os.Getenv("BENCH_ROOT") }

// words is what agents talk about: source, with a credential now and then.
func words(size int) (string, error) {
	var all strings.Builder
	err := filepath.WalkDir(root(), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || all.Len() > size {
			if d != nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root() {
				return filepath.SkipDir
			}
			return nil
		}
		raw, err := os.ReadFile(path)
		all.Write(raw)
		fmt.Fprintf(&all, "\nand log in as postgres://me:%s@host/db with %s\n", "hunter22", "ghp_"+strings.Repeat("a1B2", 9))
		return err
	})
	if err != nil || all.Len() == 0 {
		return "", fmt.Errorf("read the source at %q: %w", root(), err)
	}
	for all.Len() < size {
		all.WriteString(all.String()[:min(all.Len(), size-all.Len())])
	}
	return all.String()[:size], nil
}

func redactor() *secret.Redactor {
	var values []string
	for i := range 8 { // as many as a configured installation has
		values = append(values, fmt.Sprintf("s3cr3t/value-%d\"with+signs==%040d", i, i))
	}
	return secret.New(values...)
}

// megabytes is a rate by the processor time used, which does not depend on
// what else the machine does, and one by the clock.
func megabytes(n int, begin time.Time, used time.Duration) sample {
	return sample{"MB/s": float64(n) / 1e6 / (processorTime() - used).Seconds(), "MB/s by the clock": float64(n) / 1e6 / time.Since(begin).Seconds()}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// redactStream is text that comes in pieces, and the signal of what it was.
func redactStream(size, piece int) program {
	return func(context.Context, []string) (sample, error) {
		text, err := words(size)
		if err != nil {
			return nil, err
		}
		r := redactor()
		begin, used := time.Now(), processorTime()
		stream, n := r.Stream(), 0
		for at := 0; at < len(text); at += piece {
			n += len(stream.Next(text[at:min(len(text), at+piece)]))
		}
		n += len(stream.Rest())
		extract.Signal(text[len(text)-4096:] + "\n<signal>COMPLETE</signal>")
		if n == 0 {
			return nil, fmt.Errorf("nothing came out")
		}
		return megabytes(len(text), begin, used), nil
	}
}

// redactBlocks is text that comes in whole blocks.
func redactBlocks(size int) program {
	return func(context.Context, []string) (sample, error) {
		text, err := words(size)
		if err != nil {
			return nil, err
		}
		r := redactor()
		begin, used := time.Now(), processorTime()
		for at := 0; at < len(text); at += 4096 {
			r.String(text[at:min(len(text), at+4096)])
		}
		return megabytes(len(text), begin, used), nil
	}
}

// scanLines is the anchor: bufio over the same text.
func scanLines(context.Context, []string) (sample, error) {
	text, err := words(64 << 20)
	if err != nil {
		return nil, err
	}
	begin, used := time.Now(), processorTime()
	lines := bufio.NewScanner(strings.NewReader(text))
	n := 0
	for lines.Scan() {
		n += len(lines.Bytes())
	}
	return megabytes(len(text), begin, used), lines.Err()
}

// gitleaks has its program look through the same text.
func gitleaks(ctx context.Context, _ []string) (sample, error) {
	text, err := words(8 << 20)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(os.Getenv("BENCH_DIR"), "words.txt")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write text: %w", err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(os.Getenv("BENCH_BIN"), "gitleaks"), name).Output()
	if err != nil {
		return nil, fmt.Errorf("run gitleaks: %w", err)
	}
	var s sample
	err = json.Unmarshal(out, &s)
	return s, err
}

var callID = regexp.MustCompile(`toolu_[0-9]+`)

// recording is a stream of Claude Code as it was recorded, n times its
// middle, each with tool calls of its own, with one end.
func recording(n int) ([]byte, int, error) {
	one, err := os.ReadFile(filepath.Join(root(), "agent/cli/claude/testdata/2.1.328/commit.jsonl"))
	if err != nil {
		return nil, 0, fmt.Errorf("read recording: %w", err)
	}
	lines := bytes.SplitAfter(bytes.TrimSpace(one), []byte("\n"))
	middle := bytes.Join(lines[1:len(lines)-1], nil)
	var out bytes.Buffer
	out.Write(lines[0])
	for i := range n {
		out.Write(callID.ReplaceAll(middle, fmt.Appendf(nil, "${0}_%d", i)))
	}
	out.Write(lines[len(lines)-1])
	out.WriteByte('\n')
	return out.Bytes(), bytes.Count(out.Bytes(), []byte("\n")), nil
}

const copies = 600

// decode is the backend's decoder alone.
func decode(context.Context, []string) (sample, error) {
	stream, lines, err := recording(copies)
	if err != nil {
		return nil, err
	}
	begin, events := time.Now(), 0
	err = claude.New(claude.Config{}).Converse(context.Background(), cli.Wire{Stdin: deaf{}, Stdout: bytes.NewReader(stream)}, cli.Input{}, nil,
		func(cli.Event) { events++ })
	return sample{"lines/s": rate(lines, begin), "events": float64(events)}, err
}

// parse is the anchor: each line of the same stream through encoding/json.
func parse(context.Context, []string) (sample, error) {
	stream, lines, err := recording(copies)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	scanner := bufio.NewScanner(bytes.NewReader(stream))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var v map[string]any
		if err := json.Unmarshal(scanner.Bytes(), &v); err != nil {
			return nil, err
		}
	}
	return sample{"lines/s": rate(lines, begin)}, scanner.Err()
}

type deaf struct{}

func (deaf) Write(p []byte) (int, error) { return len(p), nil }
func (deaf) Close() error                { return nil }

// player is Claude Code, but for the program: it prints a recording.
type player struct {
	*claude.Backend

	file  string
	begun chan time.Time
}

func (p player) Command(cli.Input) (cli.Command, error) {
	p.begun <- time.Now()
	return cli.Command{Path: "/bin/cat", Args: []string{p.file}}, nil
}

// watched says when a result was stored.
type watched struct {
	agent.Queue

	done chan time.Time
}

func (q watched) Finish(ctx context.Context, f pulse.Fence, r pulse.TaskResult) error {
	err := q.Queue.Finish(ctx, f, r)
	q.done <- time.Now()
	if r.Error != "" {
		return fmt.Errorf("the run failed: %s", r.Error)
	}
	return err
}

// record is the whole way of an agent's output: process, decoder, redaction,
// turns, messages, tools, events and deltas, store on SQLite.
func record(ctx context.Context, _ []string) (sample, error) {
	stream, lines, err := recording(copies)
	if err != nil {
		return nil, err
	}
	s, err := openSQLite(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	dir := os.Getenv("BENCH_DIR")
	file := filepath.Join(dir, "stream.jsonl")
	if err := os.WriteFile(file, stream, 0o600); err != nil {
		return nil, fmt.Errorf("write stream: %w", err)
	}
	begun, done := make(chan time.Time, 1), make(chan time.Time, 4)
	id := pulse.DaemonID(pulse.NewUUID(time.Now()))
	b := player{claude.New(claude.Config{}), file, begun}
	defer serving(ctx, s, watched{s, done}, func(c *agent.Config) {
		c.ID, c.Backends, c.Trees, c.StateDir, c.Redactor = id, map[string]cli.Backend{"claude": b}, flatTrees{dir}, filepath.Join(dir, "run"), redactor()
	})()
	session := newSession(time.Now(), pulse.SessionRunning)
	task := newTask(time.Now(), session.ID)
	task.Route, task.Spec.Agent = pulse.DaemonRoute(id), "claude"
	if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{NewSession: &session, Tasks: []pulse.Task{task}}); err != nil {
		return nil, err
	}
	begin := <-begun
	end := <-done
	turns, err := s.Turns(ctx, session.ID)
	if err != nil {
		return nil, err
	}
	if len(turns) != 1 || len(turns[0].Tools) != 2*copies {
		return nil, fmt.Errorf("%d turns were stored, not one with %d tool calls", len(turns), 2*copies)
	}
	took := end.Sub(begin).Seconds()
	return sample{"lines/s": float64(lines) / took, "MB/s": float64(len(stream)) / 1e6 / took}, nil
}
