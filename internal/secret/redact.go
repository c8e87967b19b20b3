package secret

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// minValue is the shortest configured value that is looked for: a shorter
// one would stand in ordinary words.
const minValue = 6

// Redactor takes secrets out of texts. A nil Redactor leaves texts alone.
type Redactor struct {
	exact *values
}

// New returns a Redactor of the values given, in their usual encodings too,
// and of everything that looks like a credential.
func New(values ...string) *Redactor {
	r := &Redactor{}
	var forms []string
	for _, v := range values {
		if len(v) >= minValue {
			forms = append(forms, encodings(v)...)
		}
	}
	r.exact = newValues(sortForms(forms))
	return r
}

// encodings gives a value in the forms in which it usually leaves a program.
func encodings(v string) []string {
	quoted, _ := json.Marshal(v) // a string always encodes
	return []string{
		v, url.QueryEscape(v), url.PathEscape(v), string(quoted[1 : len(quoted)-1]), hex.EncodeToString([]byte(v)),
		base64.RawStdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v)),
	}
}

// String gives the text without its secrets.
func (r *Redactor) String(s string) string {
	if r == nil || s == "" {
		return s
	}
	s = r.exact.replace(s)
	for _, p := range patterns {
		s = p.replace(s)
	}
	return s
}

// shape is how far back an unfinished credential of the patterns may begin.
const shape = 256

// Stream redacts a text that comes in pieces: what may still become part of
// a secret is held back until the next piece, or Rest, decides.
type Stream struct {
	r    *Redactor
	held string
}

// Stream returns a fresh stream.
func (r *Redactor) Stream() *Stream { return &Stream{r: r} }

// Next takes a piece and gives what may be shown now.
func (s *Stream) Next(piece string) string {
	if s.r == nil {
		return piece
	}
	s.held += piece
	cut := len(s.held) - max(s.r.exact.longest, shape)
	if begin := strings.LastIndex(s.held, keyBegin); begin >= 0 && !strings.Contains(s.held[begin:], keyEnd) && len(s.held) < maxHeld {
		cut = min(cut, begin) // a key in the middle of coming
	}
	i := s.border(cut)
	out := s.r.String(s.held[:i])
	s.held = s.held[i:]
	return out
}

const (
	keyBegin = "-----BEGIN "
	keyEnd   = "-----END "
	maxHeld  = 64 << 10 // beyond it the text is shown as far as it goes
)

// border gives a place at or before cut where no secret can be in the
// middle: behind white space, and not inside a known value that has white
// space itself.
func (s *Stream) border(cut int) int {
	_, _, known := s.r.exact.next(s.held, 0)
	whole := ""
	if known {
		whole = s.r.exact.replace(s.held)
	}
	for i := cut; i > 0; i-- {
		if i = strings.LastIndexAny(s.held[:i], " \t\n") + 1; i == 0 {
			break
		}
		if !known || strings.HasPrefix(whole, s.r.exact.replace(s.held[:i])) {
			return i
		}
	}
	if len(s.held) < maxHeld || cut <= 0 {
		return 0
	}
	for cut > 0 && s.held[cut]&0xC0 == 0x80 {
		cut--
	}
	return cut
}

// Rest gives what was held back.
func (s *Stream) Rest() string {
	out := s.r.String(s.held)
	s.held = ""
	return out
}
