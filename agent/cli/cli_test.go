package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func all(t *testing.T, r io.Reader) []Line {
	t.Helper()
	var lines []Line
	for in := NewLines(r); ; {
		l, err := in.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
}

func TestLines(t *testing.T) {
	var got []string
	for _, l := range all(t, strings.NewReader("a\r\n\n{\"b\":1}\nlast")) {
		got = append(got, string(l.Text))
	}
	if want := []string{"a", "", `{"b":1}`, "last"}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q", got)
	}
}

// A long string loses its middle, wherever escapes fall, and the line stays
// JSON whose other fields are whole.
func TestLongStrings(t *testing.T) {
	for _, unit := range []string{"x", `\n`, `\"`, `\\`, `\u00e9`, "é", `\ud83d\ude00`, `a\\\"`, `ab\u0041`} {
		for _, size := range []int{10, stringHead, stringHead + stringTail, stringHead + 2*stringTail + 7, 700_000} {
			for _, shift := range []string{"", "1", "12", "123", "1234", "12345"} {
				body := shift + strings.Repeat(unit, size/len(unit))
				src := `{"before":"` + `\u0062\n` + `","long":"` + body + `END","n":[1,"` + body + `"],"after":"z"}`
				lines := all(t, strings.NewReader(src+"\n{}\n"))
				if len(lines) != 2 || lines[0].Size != int64(len(src)+1) {
					t.Fatalf("%d lines, size %d", len(lines), lines[0].Size)
				}
				var v struct{ Before, Long, After string }
				if err := json.Unmarshal(lines[0].Text, &v); err != nil {
					t.Fatalf("unit %q, size %d, shift %q: %v", unit, size, shift, err)
				}
				var whole string
				if err := json.Unmarshal([]byte(`"`+body+`END"`), &whole); err != nil {
					t.Fatal(err)
				}
				if v.Before != "b\n" || v.After != "z" || !strings.HasSuffix(v.Long, "END") || len(body) < stringHead && v.Long != whole {
					t.Fatalf("unit %q, size %d: %.40q ... %.20q", unit, size, v.Long, v.After)
				}
				if cut := v.Long != whole; cut != strings.Contains(v.Long, cutMark) || cut && !lines[0].Cut {
					t.Fatalf("unit %q, size %d: cut %v, told %v", unit, size, cut, lines[0].Cut)
				}
				if len(lines[0].Text) > 2*(stringHead+2*stringTail+5000)+200 {
					t.Fatalf("%d bytes left", len(lines[0].Text))
				}
			}
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"a":"\u00e9\\"}`+"\n"), uint(70_000))
	f.Add([]byte("plain\n{"), uint(1))
	f.Fuzz(func(t *testing.T, src []byte, pad uint) {
		long := append(bytes.Repeat([]byte{'y'}, int(pad%300_000)), src...)
		quoted, _ := json.Marshal(string(long))
		line := append([]byte(`{"k":`), quoted...)
		for l := range bytes.Lines(append(append(line, '}', '\n'), src...)) {
			got := all(t, bytes.NewReader(l))
			if len(got) != 1 || len(got[0].Text) > maxLine {
				t.Fatalf("%d lines", len(got))
			}
			if json.Valid(l) && !got[0].Cut && !bytes.Equal(got[0].Text, trimEnd(l)) || json.Valid(l) && !json.Valid(got[0].Text) && len(got[0].Text) < maxLine {
				t.Fatalf("spoiled: %.100q", got[0].Text)
			}
		}
	})
}

func TestClean(t *testing.T) {
	tests := map[string]string{
		"plain\ttext\n":                     "plain\ttext\n",
		"\x1b[1;31mred\x1b[0m":              "red",
		"\x1b]0;title\x07a\x1b]8;;u\x1b\\b": "ab",
		"\x1b]52;c;AAAA\x1b\\x":             "x",
		"a\rb\r\nc":                         "a\nb\nc",
		"\x00\x01\x7fa\u0085\u009b1mb":      "ab",
		"\xff\xfeä\xc3":                     "\uFFFD\uFFFDä\uFFFD",
		"\x1bPq#0\x1b\\x\x1b(By\x1b7z":      "xyz",
		"\x1b[31":                           "",
		"\x1b[\nnext":                       "\nnext",
		"é ° €":                             "é ° €",
	}
	for in, want := range tests {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		for split := range len(in) {
			var c Cleaner
			if got := c.Write([]byte(in[:split])) + c.Write([]byte(in[split:])) + c.Close(); got != want {
				t.Errorf("%q split at %d: %q, want %q", in, split, got, want)
			}
		}
	}
	if got := Clean("\x1b]" + strings.Repeat("a", 3*maxSequence)); len(got) < maxSequence {
		t.Error("a sequence without end takes all text with it")
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31mb\x1b]0;x\x07\r\n\xff", 3)
	f.Fuzz(func(t *testing.T, s string, at int) {
		got := Clean(s)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x1b\r\u009b") {
			t.Errorf("%q", got)
		}
		if Clean(got) != got {
			t.Errorf("not stable: %q, then %q", got, Clean(got))
		}
		at = min(max(at, 0), len(s))
		var c Cleaner
		if split := c.Write([]byte(s[:at])) + c.Write([]byte(s[at:])) + c.Close(); split != got {
			t.Errorf("split: %q, whole: %q", split, got)
		}
	})
}

func TestCutMiddle(t *testing.T) {
	s := strings.Repeat("ä", 1000) + "END"
	got := CutMiddle(s, 100)
	if !utf8.ValidString(got) || !strings.HasSuffix(got, "END") || len(got) > 160 || !strings.Contains(got, "bytes left out") {
		t.Errorf("%q", got)
	}
	if CutMiddle("short", 100) != "short" {
		t.Error("a short text is changed")
	}
}

func TestSummarize(t *testing.T) {
	tests := []struct{ tool, input, want string }{
		{"Bash", `{"description":"Run them","command":"go  test\n./..."}`, "go test ./..."},
		{"Read", `{"file_path":"/tree/a/b.go"}`, "a/b.go"},
		{"Read", `{"file_path":"/tree2/a"}`, "/tree2/a"},
		{"Read", `{"file_path":"/tree/../etc/passwd"}`, "/etc/passwd"},
		{"shell", `{"command":["bash","-lc","make test"]}`, "make test"},
		{"shell", `{"command":["ls","-l"]}`, "ls -l"},
		{"Grep", `{"pattern":"x","path":""}`, "x"},
		{"Odd", `{"path":17,"query":"q"}`, "q"},
		{"Odd", `"just text"`, "just text"},
		{"Odd", `[1,2]`, ""},
		{"Odd", ``, ""},
		{"Bash", `{"command":"` + strings.Repeat("é", 5000) + `"}`, strings.Repeat("é", maxSummary-1) + "…"},
		{"Bash", `{"command":"a\u001b[31mb\u0000c"}`, "abc"},
	}
	for _, tt := range tests {
		got := Summarize(tt.tool, json.RawMessage(tt.input), "/tree")
		if tt.want == "/etc/passwd" {
			tt.want = "/tree/../etc/passwd"
		}
		if got != tt.want {
			t.Errorf("%s %.60s: %q, want %q", tt.tool, tt.input, got, tt.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for in, want := range map[string]int64{
		"5": 5, "-5": 0, "1e308": maxCount, "1e999": maxCount, "2.9": 2, `"7"`: 7, `"x"`: 0, "null": 0, "{}": 0, "true": 0, "[1]": 0,
	} {
		var v struct {
			N Count `json:"n"`
			S string
		}
		if !Decode([]byte(`{"n":`+in+`,"S":"kept"}`), &v) || int64(v.N) != want || v.S != "kept" {
			t.Errorf("%s: %+v", in, v)
		}
	}
	var m struct{ M Money }
	if !Decode([]byte(`{"M":0.0000005}`), &m) || m.M.Micros() != 1 {
		t.Errorf("%v", m.M.Micros())
	}
	if Decode([]byte("text"), &m) || Decode([]byte(`{"a":`), &m) || Decode(nil, &m) {
		t.Error("what is no object was decoded")
	}
	if !Decode([]byte(`  {"M":"x","unknown":{}}`), &m) {
		t.Error("an odd field spoils the line")
	}
}

func TestTalk(t *testing.T) {
	stop := errors.New("enough")
	t.Run("the end of output", func(t *testing.T) {
		var n int
		err := Talk{OnLine: func(Line) error { n++; return nil }}.Run(t.Context(), strings.NewReader("a\nb"), nil)
		if err != nil || n != 2 {
			t.Errorf("%d %v", n, err)
		}
	})
	t.Run("a line that ends it", func(t *testing.T) {
		r, w := io.Pipe()
		defer w.Close()
		go func() { _, _ = io.WriteString(w, "a\nb\n") }()
		if err := (Talk{OnLine: func(Line) error { return stop }}).Run(t.Context(), r, nil); !errors.Is(err, stop) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a control that ends it", func(t *testing.T) {
		r, w := io.Pipe()
		defer w.Close()
		controls := make(chan Control, 1)
		controls <- Control{Kind: ControlInterrupt}
		if err := (Talk{OnControl: func(Control) error { return stop }}).Run(t.Context(), r, controls); !errors.Is(err, stop) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a read that fails", func(t *testing.T) {
		if err := (Talk{}).Run(t.Context(), iotest.ErrReader(stop), nil); !errors.Is(err, stop) {
			t.Errorf("%v", err)
		}
	})
	t.Run("silence counts only when settled", func(t *testing.T) {
		r, w := io.Pipe()
		defer w.Close()
		ctx, cancel := context.WithTimeoutCause(t.Context(), 60*time.Millisecond, stop)
		defer cancel()
		talk := Talk{Linger: time.Millisecond, Settled: func() bool { return false }}
		if err := talk.Run(ctx, r, nil); !errors.Is(err, stop) {
			t.Errorf("%v", err)
		}
		talk.Settled = func() bool { return true }
		if err := talk.Run(t.Context(), r, nil); err != nil {
			t.Errorf("%v", err)
		}
	})
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "agent-x")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	t.Setenv("HOME", dir)
	for _, configured := range []string{"", program, "~/agent-x", "agent-x"} {
		if got, err := Find(configured, "agent-x"); err != nil || got != program {
			t.Errorf("%q: %q %v", configured, got, err)
		}
	}
	if _, err := Find("", "agent-y"); err == nil || !strings.Contains(err.Error(), "agent-y") {
		t.Errorf("%v", err)
	}
}

func ExampleSummarize() {
	fmt.Println(Summarize("Edit", json.RawMessage(`{"file_path":"/work/tree/api/health.go","old_string":"a"}`), "/work/tree"))
	// Output: api/health.go
}
