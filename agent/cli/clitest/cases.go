package clitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"pulseloop/agent/cli"
)

func (s suite) conversation(t *testing.T) {
	h := s.mustFinish(t, strings.NewReader(s.whole()))
	r := h.result()
	if r.Failed || strings.TrimSpace(r.FinalText) != final {
		t.Errorf("result: %+v", *r)
	}
	if r.Usage != s.d.Usage {
		t.Errorf("usage %+v, want %+v", r.Usage, s.d.Usage)
	}
	if s.d.Plain {
		return
	}
	if !strings.Contains(h.text(cli.EventText), "I begin.") || h.text(cli.EventThought) != "let me look" {
		t.Errorf("text or thought is missing:\n%s", h.story())
	}
	var ends []string
	for _, e := range h.events {
		if e.Kind == cli.EventToolEnd {
			ends = append(ends, fmt.Sprintf("%s %v", e.Tool.ID, e.Tool.Failed))
		}
	}
	if got := strings.Join(ends, ", "); got != "call-1 false, call-2 true" {
		t.Errorf("tools ended: %s", got)
	}
}

// A signal may be split anywhere between two reads.
func (s suite) byteByByte(t *testing.T) {
	whole := s.mustFinish(t, strings.NewReader(s.whole()))
	pieces := s.mustFinish(t, iotest.OneByteReader(strings.NewReader(s.whole())))
	if whole.story() != pieces.story() {
		t.Errorf("by the byte:\n%s\nat once:\n%s", pieces.story(), whole.story())
	}
	// Without the last line's end, too.
	cut := s.mustFinish(t, strings.NewReader(strings.TrimSuffix(s.whole(), "\n")))
	if strings.TrimSpace(cut.result().FinalText) != final {
		t.Errorf("without the last line end: %+v", *cut.result())
	}
}

// Banners, half lines, foreign types, wrong fields: skipped, wherever they are.
func (s suite) noise(t *testing.T) {
	noise := []string{
		"Welcome to the agent!", "", "   ", "null", "[]", "17", `"text"`, "{}", "{", `{"type"`, `{"type":null}`, `{"type":17}`,
		`{"type":"never_heard_of","x":[1,2,{"y":null}]}`, `{"type":{"type":"text"}}`, "\x00\x01\xff\xfe", "\xef\xbb\xbf",
		`{"type":"assistant"}`, `{"type":"assistant","message":17}`, `{"type":"user","message":{"content":{"a":1}}}`,
		`{"type":"item.completed"}`, `{"type":"item.completed","item":[]}`, `{"type":"tool_call","subtype":17}`,
		`{"type":"stream_event","event":"x"}`, `{"type":"system","subtype":["init"]}`,
		strings.Repeat("[", 20000), `{"a":` + strings.Repeat(`{"a":`, 20000), `{"type":"usage","input_tokens":-5,"output_tokens":1e308}`,
		"\x1b]0;title\x07\x1b[2J", `{"type":"text","text":17}`,
	}
	want := s.mustFinish(t, strings.NewReader(s.whole())).story()
	var mixed []string
	for _, line := range append(s.head(), s.d.Done(final)) {
		mixed = append(mixed, noise...)
		mixed = append(mixed, line)
	}
	got := s.mustFinish(t, strings.NewReader(strings.Join(append(mixed, noise...), "\n")+"\n")).story()
	if got != want {
		t.Errorf("with noise:\n%s\nwithout:\n%s", got, want)
	}
}

// repeat gives n copies of a text without holding them.
func repeat(text string, n int) io.Reader {
	return io.LimitReader(&repeater{text: []byte(text)}, int64(n)*int64(len(text)))
}

type repeater struct {
	text []byte
	at   int
}

func (r *repeater) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		c := copy(b[n:], r.text[r.at:])
		n += c
		r.at = (r.at + c) % len(r.text)
	}
	return n, nil
}

// maxRun is the memory a run may take beside its events.
const maxRun = 16 << 20

// peak reports the most heap beyond the start that was seen during f.
func peak(t *testing.T, f func()) int64 {
	t.Helper()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	done, most := make(chan struct{}), make(chan int64)
	go func() {
		var top int64
		for {
			var now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&now)
			top = max(top, int64(now.HeapAlloc)-int64(before.HeapAlloc))
			select {
			case <-done:
				most <- top
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	return <-most
}

func (s suite) longLine(t *testing.T) {
	const size = 100 << 20
	readers := map[string]func() io.Reader{
		"text without end": func() io.Reader {
			return io.MultiReader(strings.NewReader(lines(s.head()...)), repeat("x", size), strings.NewReader("\n"+s.d.Done(final)+"\n"))
		},
	}
	if !s.d.Plain {
		readers["a string without end"] = func() io.Reader {
			return io.MultiReader(strings.NewReader(lines(s.head()...)+`{"type":"unknown","data":"`),
				repeat(`\"\\é`, size/8), strings.NewReader("\"}\n"+s.d.Done(final)+"\n"))
		}
		readers["many small values"] = func() io.Reader {
			return io.MultiReader(strings.NewReader(lines(s.head()...)+`{"type":"unknown","data":[`),
				repeat(`"a",`, size/16), strings.NewReader("1]}\n"+s.d.Done(final)+"\n"))
		}
		// The signal at the end of an answer that is far too long survives.
		before, after, _ := strings.Cut(s.d.Done("HERE"+final), "HERE")
		readers["the final answer itself"] = func() io.Reader {
			return io.MultiReader(strings.NewReader(lines(s.head()...)+before), repeat("words and ", size/10), strings.NewReader(after+"\n"))
		}
	}
	for name, reader := range readers {
		t.Run(name, func(t *testing.T) {
			var text string
			used := peak(t, func() {
				b := s.backend()
				err := b.Converse(t.Context(), cli.Wire{Stdin: &input{}, Stdout: reader()}, cli.Input{Prompt: "x"}, nil, func(e cli.Event) {
					if e.Kind == cli.EventResult {
						text = e.Result.FinalText
					}
				})
				if err != nil {
					t.Error(err)
				}
			})
			if !strings.HasSuffix(strings.TrimSpace(text), "<signal>COMPLETE</signal>") {
				t.Errorf("the end of the final text is lost: %.100q", text)
			}
			t.Logf("took %d KiB", used>>10)
			if used > maxRun {
				t.Errorf("took %d MiB", used>>20)
			}
		})
	}
}

func (s suite) flood(t *testing.T) {
	const count = 50_000
	line := s.d.Text("one more line") + "\n"
	events := 0
	used := peak(t, func() {
		stdout := io.MultiReader(repeat(line, count), strings.NewReader(s.d.Done(final)+"\n"))
		err := s.backend().Converse(t.Context(), cli.Wire{Stdin: &input{}, Stdout: stdout}, cli.Input{Prompt: "x"}, nil, func(e cli.Event) {
			if e.Kind == cli.EventText {
				events++
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	if !s.d.Plain && events < count {
		t.Errorf("%d of %d lines arrived", events, count)
	}
	if used > maxRun {
		t.Errorf("took %d MiB", used>>20)
	}
}

// The end of the stream without a result is an error, except where the stream
// is the result.
func (s suite) noResult(t *testing.T) {
	for name, stream := range map[string]string{"nothing at all": "", "cut off": lines(s.head()...)} {
		h := converse(t, s.backend(), cli.Input{Prompt: "x"}, strings.NewReader(stream))
		if s.d.Plain {
			if h.err != nil || h.result() == nil {
				t.Errorf("%s: %v %+v", name, h.err, h.result())
			}
			continue
		}
		if h.err == nil || h.result() != nil {
			t.Errorf("%s: error %v, result %+v", name, h.err, h.result())
		}
	}
	broken := iotest.ErrReader(errors.New("the disk is gone"))
	if h := converse(t, s.backend(), cli.Input{Prompt: "x"}, broken); h.err == nil || !strings.Contains(h.err.Error(), "the disk is gone") {
		t.Errorf("a read that fails: %v", h.err)
	}
}

func (s suite) failure(t *testing.T) {
	h := s.mustFinish(t, strings.NewReader(lines(s.d.Started(), s.d.Fail("the model is on fire"))))
	if r := h.result(); !r.Failed || !strings.Contains(r.Error, "the model is on fire") {
		t.Errorf("result: %+v", *r)
	}
}

func (s suite) hangAfterResult(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = io.WriteString(w, s.whole()) }()
	b := s.d.New("/bin/sh", 100*time.Millisecond)
	h := converse(t, b, cli.Input{Prompt: "x"}, r)
	if h.err != nil || h.result() == nil || h.result().Failed {
		t.Fatalf("%v %+v", h.err, h.result())
	}
}

func (s suite) contextEnds(t *testing.T) {
	ended := errors.New("time is up")
	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- s.backend().Converse(ctx, cli.Wire{Stdin: &input{}, Stdout: r}, cli.Input{Prompt: "x"}, nil, func(cli.Event) {})
	}()
	if _, err := io.WriteString(w, lines(s.head()...)); err != nil {
		t.Fatal(err)
	}
	cancel(ended)
	select {
	case err := <-done:
		if !errors.Is(err, ended) {
			t.Errorf("error %v", err)
		}
	case <-time.After(patience):
		t.Error("it goes on")
	}
	_ = w.Close()
}

func (s suite) controls(t *testing.T) {
	controls := make(chan cli.Control, 3)
	controls <- cli.Control{Kind: cli.ControlGuide, Text: "use tabs"}
	controls <- cli.Control{Kind: cli.ControlInterrupt}
	controls <- cli.Control{Kind: "never heard of"}
	close(controls)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var results int
	err := s.backend().Converse(ctx, cli.Wire{Stdin: &input{}, Stdout: strings.NewReader(s.whole())}, cli.Input{Prompt: "x"}, controls, func(e cli.Event) {
		if e.Kind == cli.EventResult {
			results++
		}
	})
	if err != nil || results != 1 {
		t.Errorf("%d results, error %v", results, err)
	}
}

// What is stored and shown holds no terminal sequences, no NUL, only UTF-8.
func (s suite) cleanText(t *testing.T) {
	const dirty = "a\x1b[31mred\x1b[0m \x1b]52;c;c3RvbGVu\x07\x00b\x7f \u009b31mc \xff\xfe end"
	stream := lines(dirty)
	if !s.d.Plain {
		esc := "a\\u001b[31mred\\u001b[0m \\u001b]52;c;c3RvbGVu\\u0007\\u0000b\\u007f \\u009b31mc \xff\xfe \\ud800 end"
		swap := strings.NewReplacer("DIRT", esc)
		stream = swap.Replace(lines(s.d.Started(), s.d.Thought("DIRT"), s.d.Text("DIRT"), s.d.Delta("DIRT"),
			s.d.ToolStart("t1", "Read"), s.d.ToolEnd("t1", "DIRT", false), s.d.Done("DIRT")))
	}
	h := s.mustFinish(t, strings.NewReader(stream))
	check := func(where, text string) {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
			return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f
		}) || strings.Contains(text, "c3RvbGVu") {
			t.Errorf("%s: %q", where, text)
		}
		if !strings.Contains(text, "end") {
			t.Errorf("%s lost its text: %q", where, text)
		}
	}
	for _, e := range h.events {
		switch e.Kind {
		case cli.EventText, cli.EventThought, cli.EventTextDelta:
			check(string(e.Kind), e.Text)
		case cli.EventToolEnd:
			check("tool", e.Tool.Output)
		case cli.EventResult:
			check("result", e.Result.FinalText)
		}
	}
}

// Starts that are repeated and ends that nobody started are left out.
func (s suite) toolPairs(t *testing.T) {
	big := strings.Repeat("z", 300<<10)
	h := s.mustFinish(t, strings.NewReader(lines(s.d.Started(),
		s.d.ToolStart("a", "Read"), s.d.ToolStart("b", "Bash"), s.d.ToolStart("a", "Read"),
		s.d.ToolEnd("b", big, false), s.d.ToolEnd("a", "x", true), s.d.Text("so"), s.d.Done(final))))
	names := map[string]string{}
	for _, e := range h.events {
		if e.Kind == cli.EventToolStart {
			names[e.Tool.ID] = e.Tool.Name
		}
	}
	if len(names) != 2 || names["a"] == "" {
		t.Errorf("tools: %v", names)
	}
}

func (s suite) concurrent(t *testing.T) {
	b := s.backend()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			mine := fmt.Sprintf("answer %d\n<signal>CONTINUE</signal>", i)
			h := heard{stdin: &input{}}
			h.err = b.Converse(t.Context(), cli.Wire{Stdin: h.stdin, Stdout: strings.NewReader(lines(s.d.Started(), s.d.Text(mine), s.d.Done(mine)))},
				cli.Input{Prompt: fmt.Sprint(i)}, nil, func(e cli.Event) { h.events = append(h.events, e) })
			if h.err != nil || !strings.Contains(h.result().FinalText, mine) {
				t.Errorf("%d: %v %+v", i, h.err, h.result())
			}
			if _, closed := h.stdin.got(); !closed {
				t.Errorf("%d: its input is still open", i)
			}
		})
	}
	wg.Wait()
}
