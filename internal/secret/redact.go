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
	// What is known of held, so that a piece costs its own length and not
	// that of all that waits: how far it was searched for the marks of a
	// private key, where the last one begins (-1: nowhere) and whether it is
	// over, and from where on a known value may still begin.
	marked  int
	key     int
	keyOver bool
	clean   int
}

// Stream returns a fresh stream.
func (r *Redactor) Stream() *Stream { return &Stream{r: r, key: -1} }

// Next takes a piece and gives what may be shown now.
func (s *Stream) Next(piece string) string {
	if s.r == nil {
		return piece
	}
	s.held += piece
	s.mark()
	cut := len(s.held) - max(s.r.exact.longest, shape)
	if s.key >= 0 && !s.keyOver && len(s.held) < maxHeld {
		cut = min(cut, s.key) // a key in the middle of coming
	}
	if cut <= 0 {
		return ""
	}
	i := s.border(cut)
	out := s.r.String(s.held[:i])
	s.held = s.held[i:]
	s.marked, s.clean = s.marked-i, max(0, s.clean-i)
	if s.key -= i; s.key < 0 {
		s.key = -1
	}
	return out
}

// mark looks for the marks of a private key in what has come.
func (s *Stream) mark() {
	const before = len(keyBegin) - 1 // of a mark that came in two pieces
	from := max(0, s.marked-before)
	for {
		at := strings.Index(s.held[from:], keyBegin)
		if at < 0 {
			break
		}
		s.key, s.keyOver = from+at, false
		from += at + 1
	}
	if s.key >= 0 && !s.keyOver {
		s.keyOver = strings.Contains(s.held[max(s.key, s.marked-before, 0):], keyEnd)
	}
	s.marked = len(s.held)
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
	begin, _, known := s.r.exact.next(s.held, s.clean)
	if known {
		s.clean = begin
	} else {
		s.clean = max(s.clean, len(s.held)-s.r.exact.longest)
	}
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
	*s = Stream{r: s.r, key: -1}
	return out
}
