package db

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/schema"
)

func TestArraysComeBack(t *testing.T) {
	gen := schema.NewQueryGen(pgdialect.New())
	for _, in := range [][]string{nil, {""}, {"a", "b c"}, {`"`, `\`, ",", "{}", "NULL", "'"}, {"\n\t", "é"}} {
		raw, err := list{in}.AppendQuery(gen, nil)
		if err != nil {
			t.Fatal(err)
		}
		literal := strings.TrimSuffix(string(raw), "::text[]")
		literal = strings.ReplaceAll(literal[1:len(literal)-1], "''", "'")
		var out list
		if err := out.Scan(literal); err != nil || !slices.Equal(out.V, in) {
			t.Errorf("%q became %s, then %q, %v", in, literal, out.V, err)
		}
	}
	if _, err := parseArray("nonsense"); err == nil {
		t.Error("nonsense was read as an array")
	}
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "\x00", `\u0000`, `\\u0000`, "\\\x00", "a\xffb", "\\\\\x00\\u0000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw, err := encode(map[string]string{"k": s})
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		if err := json.Unmarshal([]byte(raw), &back); err != nil {
			t.Fatalf("%q is no JSON: %v", raw, err)
		}
		if strings.ContainsRune(back["k"], 0) {
			t.Fatalf("%q still holds a NUL", raw)
		}
		if utf8.ValidString(s) && back["k"] != strings.ReplaceAll(s, "\x00", replacement) {
			t.Fatalf("%q came back as %q", s, back["k"])
		}
	})
}
