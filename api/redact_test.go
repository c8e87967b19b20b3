package api

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRedactionStaysWithinTexts(t *testing.T) {
	// As greedy as an expression that looks for the end of a key block.
	redact := func(s string) string {
		if i := strings.Index(s, "SECRET"); i >= 0 {
			return s[:i] + "[redacted]"
		}
		return s
	}
	in := map[string]any{"a": "x\nSECRET\"}{", "b": []string{"fine \\", "SECRET"}, "c": 3, "ä<>": "ok"}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(redactJSON(b, redact), &got); err != nil {
		t.Fatalf("broken JSON: %v", err)
	}
	again, _ := json.Marshal(got)
	want := `{"a":"x\n[redacted]","b":["fine \\","[redacted]"],"c":3,"ä\u003c\u003e":"ok"}`
	if string(again) != want {
		t.Fatalf("got  %s\nwant %s", again, want)
	}
}
