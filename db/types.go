package db

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/schema"

	"pulseloop/pulse"
)

const stampLayout = "2006-01-02 15:04:05.000000+00:00"

// stamp is a time as the database keeps it: timestamptz on PostgreSQL,
// microseconds on SQLite, NULL for zero.
type stamp struct{ time.Time }

func at(t time.Time) stamp { return stamp{t} }

// AppendQuery writes the literal of the dialect.
func (t stamp) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	if t.IsZero() {
		return append(b, "NULL"...), nil
	}
	if gen.Dialect().Name() == dialect.SQLite {
		return fmt.Appendf(b, "%d", t.UnixMicro()), nil
	}
	b = append(b, '\'')
	b = t.UTC().AppendFormat(b, stampLayout)
	return append(b, "'::timestamptz"...), nil
}

// Scan reads either form.
func (t *stamp) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		t.Time = time.Time{}
	case int64:
		t.Time = time.UnixMicro(v).UTC()
	case time.Time:
		t.Time = v.UTC()
	default:
		return fmt.Errorf("read time: %T is not a time", src)
	}
	return nil
}

// uid is a UUID key, NULL for "". PostgreSQL refuses anything else, so
// SQLite does too.
type uid string

// AppendQuery writes the literal.
func (u uid) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	if u == "" {
		return append(b, "NULL"...), nil
	}
	if !pulse.ValidUUID(string(u)) {
		return appendRefusal(gen, b), nil
	}
	b = append(b, '\'')
	b = append(b, u...)
	return append(b, '\''), nil
}

// appendRefusal writes SQL that is sure to fail when it runs; explain knows
// the failure. bun would put the text of an error into the statement as it
// is, and that text may hold what somebody else wrote.
func appendRefusal(gen schema.QueryGen, b []byte) []byte {
	if gen.Dialect().Name() == dialect.SQLite {
		return append(b, "json('refused')"...)
	}
	return append(b, "CAST('refused' AS uuid)::text::jsonb"...)
}

// text is any text from outside. PostgreSQL takes neither NUL nor broken
// UTF-8, so both become the replacement character on the way in.
type text string

// AppendQuery writes the literal.
func (s text) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	return gen.Dialect().AppendString(b, clean(string(s))), nil
}

func texts[T ~string](in []T) []text {
	out := make([]text, 0, len(in))
	for _, s := range in {
		out = append(out, text(s))
	}
	return out
}

// opt is text that is NULL when empty.
type opt string

// AppendQuery writes the literal.
func (s opt) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	if s == "" {
		return append(b, "NULL"...), nil
	}
	return gen.Dialect().AppendString(b, clean(string(s))), nil
}

const replacement = "\uFFFD"

func clean(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, replacement), "\x00", replacement)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// doc is a value kept as JSON: jsonb on PostgreSQL, text on SQLite.
type doc[T any] struct{ V T }

// AppendQuery writes the literal.
func (d doc[T]) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	raw, err := encode(d.V)
	if err != nil {
		return appendRefusal(gen, b), nil
	}
	return gen.Dialect().AppendString(b, raw), nil
}

// Scan reads the JSON.
func (d *doc[T]) Scan(src any) error {
	var zero T
	d.V = zero
	switch v := src.(type) {
	case nil:
		return nil
	case []byte:
		return json.Unmarshal(v, &d.V)
	case string:
		return json.Unmarshal([]byte(v), &d.V)
	default:
		return fmt.Errorf("read JSON: %T is no text", src)
	}
}

// encode gives JSON that jsonb accepts: an escaped NUL is valid JSON, but
// PostgreSQL cannot hold it.
func encode(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("write JSON: %w", err)
	}
	if !bytes.Contains(raw, []byte(`\u0000`)) {
		return string(raw), nil
	}
	var out strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 >= len(raw) {
			out.WriteByte(raw[i])
			continue
		}
		if bytes.HasPrefix(raw[i:], []byte(`\u0000`)) {
			out.WriteString(replacement)
			i += 5
			continue
		}
		out.Write(raw[i : i+2]) // an escape is two bytes at least: skip both, so that \\u0000 stays
		i++
	}
	return out.String(), nil
}

// list is text[] on PostgreSQL and a JSON array on SQLite.
type list struct{ V []string }

// AppendQuery writes the literal.
func (l list) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	if gen.Dialect().Name() == dialect.SQLite {
		if l.V == nil {
			return append(b, "'[]'"...), nil
		}
		raw, err := encode(l.V)
		if err != nil {
			return appendRefusal(gen, b), nil
		}
		return gen.Dialect().AppendString(b, raw), nil
	}
	var s strings.Builder
	s.WriteByte('{')
	for i, v := range l.V {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteByte('"')
		s.WriteString(arrayEscapes.Replace(clean(v)))
		s.WriteByte('"')
	}
	s.WriteByte('}')
	return append(gen.Dialect().AppendString(b, s.String()), "::text[]"...), nil
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// Scan reads either form.
func (l *list) Scan(src any) error {
	l.V = nil
	var s string
	switch v := src.(type) {
	case nil:
		return nil
	case []byte:
		s = string(v)
	case string:
		s = v
	default:
		return fmt.Errorf("read list: %T is no text", src)
	}
	if strings.HasPrefix(s, "[") {
		return json.Unmarshal([]byte(s), &l.V)
	}
	var err error
	l.V, err = parseArray(s)
	return err
}

// parseArray reads a one-dimensional array literal of PostgreSQL.
func parseArray(s string) ([]string, error) {
	if len(s) < 2 || s[0] != '{' || s[len(s)-1] != '}' {
		return nil, fmt.Errorf("read list: %q is no array", clip(s, 60))
	}
	s = s[1 : len(s)-1]
	if s == "" {
		return nil, nil
	}
	var out []string
	var item strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			item.WriteByte(s[i])
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			out = append(out, item.String())
			item.Reset()
		default:
			item.WriteByte(c)
		}
	}
	return append(out, item.String()), nil
}
