package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"sort"
	"strings"
	"unicode/utf8"

	"pulseloop/pulse"
)

// maxDepth is far beyond what any request needs, and far below what costs.
const maxDepth = 32

// body reads a JSON object into a request type, and refuses what the
// standard decoder would let pass: unknown, repeated and differently cased
// names, deep nesting, invalid UTF-8 and half surrogates.
func (s *Server) body(w http.ResponseWriter, r *http.Request, into any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.Limits.Body))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return &pulse.Error{Code: pulse.CodeInvalid, Message: "the body could not be read", Hint: "send it whole, and in time", Err: err}
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return errEmpty
	}
	if err := jsonContent(r); err != nil {
		return err
	}
	return decode(b, into)
}

// errEmpty marks a request without a body; some routes allow that.
var errEmpty = pulse.Invalid("the body is empty", "send a JSON object")

// optional is body for the routes that can do without one.
func (s *Server) optional(w http.ResponseWriter, r *http.Request, into any) error {
	if err := s.body(w, r, into); !errors.Is(err, errEmpty) {
		return err
	}
	return nil
}

// jsonContent refuses other content types: a form on a foreign page can
// send those without asking.
func jsonContent(r *http.Request) error {
	refusal := &httpError{status: http.StatusUnsupportedMediaType,
		said: pulse.Invalid("the content type is "+quote(r.Header.Get("Content-Type")), "send Content-Type: application/json")}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return refusal
	}
	if cs, ok := params["charset"]; ok && !strings.EqualFold(cs, "utf-8") {
		return refusal
	}
	if ce := r.Header.Get("Content-Encoding"); ce != "" && !strings.EqualFold(ce, "identity") {
		refusal.said = pulse.Invalid("the content encoding is "+quote(ce), "send the body uncompressed")
		return refusal
	}
	return nil
}

// decode reads one JSON object strictly.
func decode(b []byte, into any) error {
	if !utf8.Valid(b) {
		return pulse.Invalid("the body is not valid UTF-8", "encode it as UTF-8")
	}
	names, err := shape(b)
	if err != nil {
		return err
	}
	allowed := fields(into)
	for _, n := range names {
		if !allowed[n] {
			return pulse.Invalid("unknown field "+quote(n), "known are "+strings.Join(sorted(allowed), ", "))
		}
	}
	if err := json.Unmarshal(b, into); err != nil {
		return wrongType(err)
	}
	return nil
}

// shape walks the tokens of one object and gives the names at its top.
func shape(b []byte) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	first, err := dec.Token()
	if err != nil {
		return nil, notJSON(err)
	}
	if first != json.Delim('{') {
		return nil, pulse.Invalid("the body must be a JSON object", "begin with {")
	}
	w := walker{dec: dec, replacement: bytes.ContainsRune(b, utf8.RuneError) || bytes.Contains(bytes.ToLower(b), []byte(`\ufffd`))}
	names, err := w.object(1)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, pulse.Invalid("there is something after the JSON object", "send one object and nothing else")
	}
	return names, nil
}

type walker struct {
	dec         *json.Decoder
	replacement bool // the body has U+FFFD itself, so that finding one proves nothing
}

func (w walker) object(depth int) ([]string, error) {
	seen := map[string]bool{}
	var names []string
	for w.dec.More() {
		tok, err := w.dec.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		name, _ := tok.(string)
		if seen[name] {
			return nil, pulse.Invalid("the field "+quote(name)+" is there twice", "send each field once")
		}
		seen[name] = true
		names = append(names, name)
		if err := w.value(depth); err != nil {
			return nil, err
		}
	}
	return names, w.end()
}

func (w walker) value(depth int) error {
	tok, err := w.dec.Token()
	if err != nil {
		return notJSON(err)
	}
	switch t := tok.(type) {
	case string:
		return w.text(t)
	case json.Delim:
		if depth >= maxDepth {
			return pulse.Invalid(fmt.Sprintf("the body is nested deeper than %d levels", maxDepth), "send it flat")
		}
		if t == '{' {
			_, err := w.object(depth + 1)
			return err
		}
		for w.dec.More() {
			if err := w.value(depth + 1); err != nil {
				return err
			}
		}
		return w.end()
	}
	return nil
}

// text refuses what no database column and no chat can carry.
func (w walker) text(s string) error {
	if strings.ContainsRune(s, 0) {
		return pulse.Invalid("a text contains the character NUL", "leave it out")
	}
	if !w.replacement && strings.ContainsRune(s, utf8.RuneError) {
		return pulse.Invalid("a text contains half of a surrogate pair", `send both halves, or the character itself`)
	}
	return nil
}

func (w walker) end() error {
	if _, err := w.dec.Token(); err != nil {
		return notJSON(err)
	}
	return nil
}

func notJSON(err error) error {
	return &pulse.Error{Code: pulse.CodeInvalid, Message: "the body is not valid JSON", Hint: "check commas, quotes and brackets", Err: err}
}

func wrongType(err error) error {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) {
		return notJSON(err)
	}
	name := t.Field
	if name == "" {
		name = "the body"
	}
	return &pulse.Error{Code: pulse.CodeInvalid, Message: name + " must be " + kindName(t.Type) + ", not " + quote(t.Value),
		Hint: "correct " + name, Err: err}
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	default:
		return "an object"
	}
}

// fields lists the JSON names of a request type.
func fields(v any) map[string]bool {
	out := map[string]bool{}
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out[name] = true
	}
	return out
}

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for k := range set {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
