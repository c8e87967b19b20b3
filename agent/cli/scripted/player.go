package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pulseloop/internal/proc"
)

// player plays the steps of one iteration.
type player struct {
	about  promptContext
	root   *os.Root
	env    []string
	stdout io.Writer
	stderr io.Writer

	calls  int
	answer []string // said since the last tool call
	used   usage
	fail   failure
	ended  bool // the result is out
}

func (p *player) play(ctx context.Context, steps []step, sessionID string) error {
	if sessionID == "" {
		sessionID = "scripted"
	}
	if err := p.tell("session", "session_id", sessionID, "model", "scripted"); err != nil {
		return err
	}
	for _, s := range steps {
		if s.when != "" && !strings.Contains(p.about.prompt, s.when) {
			continue
		}
		if s.verb == "ignore_sigterm" {
			signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
			ctx = context.WithoutCancel(ctx)
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.step(ctx, s); err != nil {
			return fmt.Errorf("line %d: %s: %w", s.line, s.verb, err)
		}
	}
	return p.result()
}

func (p *player) step(ctx context.Context, s step) error {
	text, err := p.about.fill(s.text)
	if err != nil {
		return err
	}
	switch s.verb {
	case "say":
		return p.say(text)
	case "signal":
		return p.say("<signal>" + text + "</signal>")
	case "hint":
		return p.say(fmt.Sprintf("<anchor_hint>\n<turn_id>%s</turn_id>\n<reason>%s</reason>\n</anchor_hint>", s.hint.TurnID, s.hint.Reason))
	case "chunks":
		return p.chunks(s.pieces)
	case "think":
		return p.tell("thought", "text", text)
	case "note":
		return p.tell("note", "text", text)
	case "raw":
		return p.write([]byte(text + "\n"))
	case "stderr":
		_, err := fmt.Fprintln(p.stderr, text)
		return err
	case "usage":
		p.used = s.usage
		return p.tell("usage", usageFields(p.used)...)
	case "fail":
		p.fail = s.fail
		return nil
	case "result":
		return p.result()
	case "write", "append":
		return p.file(s)
	case "run":
		return p.run(ctx, text)
	case "tool":
		return p.fake(ctx, s.tool)
	}
	return p.misbehave(ctx, s)
}

// misbehave plays the steps that no healthy agent would.
func (p *player) misbehave(ctx context.Context, s step) error {
	switch s.verb {
	case "sleep":
		return sleep(ctx, s.wait)
	case "spin":
		return spin(ctx, s.wait)
	case "hang":
		// In rounds, because a program all of whose goroutines wait for nothing
		// is ended by the runtime.
		for {
			if err := sleep(ctx, time.Hour); err != nil {
				return err
			}
		}
	case "crash":
		return exitStatus(s.code)
	case "close_stdout":
		if c, ok := p.stdout.(io.Closer); ok {
			p.ended = true // nothing more can be said
			return c.Close()
		}
		return errors.New("standard output cannot be closed")
	case "flood":
		return p.flood(ctx, s.flood)
	case "spawn_orphan":
		return p.orphan(ctx, s.orphan)
	}
	return errors.New("no such verb")
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spin works for a while and says nothing. A fifth of a processor is work
// enough to be seen, and leaves the rest to others.
func spin(ctx context.Context, d time.Duration) error {
	const round, work = 100 * time.Millisecond, 20 * time.Millisecond
	for end := time.Now().Add(d); time.Now().Before(end); {
		for rest := time.Now().Add(work); time.Now().Before(rest); {
			continue
		}
		if err := sleep(ctx, round-work); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) say(text string) error {
	p.answer = append(p.answer, text)
	return p.tell("text", "text", text)
}

func (p *player) chunks(pieces []string) error {
	for _, piece := range pieces {
		if err := p.tell("text_delta", "text", piece); err != nil {
			return err
		}
	}
	return p.say(strings.Join(pieces, ""))
}

// tell writes one line: the type, then pairs of key and value.
func (p *player) tell(kind string, pairs ...any) error {
	line := map[string]any{"type": kind}
	for i := 0; i+1 < len(pairs); i += 2 {
		line[pairs[i].(string)] = pairs[i+1]
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); err != nil {
		return err
	}
	return p.write(b.Bytes())
}

func (p *player) write(b []byte) error {
	_, err := p.stdout.Write(b)
	return err
}

func usageFields(u usage) []any {
	return []any{
		"input_tokens", u.Input, "output_tokens", u.Output, "cache_read_tokens", u.CacheRead,
		"cache_write_tokens", u.CacheWrite, "cost_usd", u.Cost,
	}
}

// result ends the iteration, once.
func (p *player) result() error {
	if p.ended {
		return nil
	}
	p.ended = true
	used := map[string]any{}
	for f := usageFields(p.used); len(f) > 0; f = f[2:] {
		used[f[0].(string)] = f[1]
	}
	pairs := []any{"text", strings.Join(p.answer, "\n\n"), "usage", used}
	if p.fail.Error != "" {
		pairs = append(pairs, "error", p.fail.Error, "hint", p.fail.Hint)
	}
	return p.tell("result", pairs...)
}

// call tells of a tool call around do, which gives its output.
func (p *player) call(name string, input any, do func() (output string, failed bool, err error)) error {
	p.calls++
	p.answer = nil
	id, begin := fmt.Sprintf("call_%d", p.calls), time.Now()
	if err := p.tell("tool_call", "subtype", "started", "name", name, "arguments", input, "call_id", id); err != nil {
		return err
	}
	output, failed, err := do()
	if err != nil {
		return err
	}
	return p.tell("tool_call", "subtype", "ended", "name", name, "duration_ms", time.Since(begin).Milliseconds(),
		"call_id", id, "output", output, "is_error", failed)
}

func (p *player) fake(ctx context.Context, t fakeTool) error {
	input := t.Input
	if input == nil {
		input = json.RawMessage("{}")
	}
	return p.call(t.Name, input, func() (string, bool, error) {
		return t.Output, t.Failed, sleep(ctx, t.Wait)
	})
}

// file writes or extends a file below the working directory, and nowhere else.
func (p *player) file(s step) error {
	path, err := p.about.fill(s.file.Path)
	if err != nil {
		return err
	}
	content, err := p.about.fill(s.file.Content)
	if err != nil {
		return err
	}
	flags, tool := os.O_WRONLY|os.O_CREATE|os.O_TRUNC, "write_file"
	if s.verb == "append" {
		flags, tool = os.O_WRONLY|os.O_CREATE|os.O_APPEND, "append_file"
	}
	return p.call(tool, map[string]string{"path": path, "content": content}, func() (string, bool, error) {
		if dir := filepath.Dir(path); dir != "." {
			if err := p.root.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return "", false, err
			}
		}
		f, err := p.root.OpenFile(path, flags, 0o644)
		if err != nil {
			return "", false, err
		}
		_, err = f.WriteString(content)
		return fmt.Sprintf("%d bytes", len(content)), false, errors.Join(err, f.Close())
	})
}

// run runs a shell command. Its failure is a failed call, as it would be for
// any agent; the script goes on.
func (p *player) run(ctx context.Context, command string) error {
	return p.call("shell", map[string]string{"command": command}, func() (string, bool, error) {
		out, exit, err := proc.Output(ctx, proc.Spec{Path: "/bin/sh", Args: []string{"-c", command}, Env: p.env})
		return string(out) + exit.Stderr, !exit.OK(), err
	})
}

// orphan starts a process in a session of its own and forgets it. It goes
// through a shell, because a child of ours would end with us; the shell waits
// until the orphan has its session, because its group ends with it.
func (p *player) orphan(ctx context.Context, o orphan) error {
	target := "/dev/null"
	if o.KeepStdout {
		target = fmt.Sprintf("/proc/%d/fd/1", os.Getpid())
	}
	_, exit, err := proc.Output(ctx, proc.Spec{Path: "/bin/sh", Env: p.env,
		Args: []string{"-c", "{ setsid sh -c 'echo up; exec sleep 300 >" + target + "' </dev/null 2>/dev/null & } | read -r up"}})
	if err == nil && !exit.OK() {
		err = errors.New(exit.Stderr)
	}
	return err
}

func (p *player) flood(ctx context.Context, f flood) error {
	to := p.stdout
	if f.Stderr {
		to = p.stderr
	}
	if f.JSON {
		if err := p.write([]byte(`{"type":"text","text":"`)); err != nil {
			return err
		}
	}
	unit, n := bytes.Repeat([]byte("x"), 64<<10), f.Bytes
	if f.Lines > 0 {
		line := []byte(`{"type":"text_delta","text":"flood "}` + "\n")
		unit, n = bytes.Repeat(line, 1000), f.Lines*int64(len(line))
	}
	for n > 0 && ctx.Err() == nil {
		w, err := to.Write(unit[:min(n, int64(len(unit)))])
		if err != nil {
			return err
		}
		n -= int64(w)
	}
	end := ""
	switch {
	case f.JSON:
		end = "\"}\n"
	case f.Lines == 0:
		end = "\n"
	}
	if _, err := to.Write([]byte(end)); err != nil {
		return err
	}
	return ctx.Err()
}
