package secret

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// minValue is the shortest configured value that is looked for: a shorter
// one would stand in ordinary words.
const minValue = 6

// pattern finds credentials by their shape. hint is a text that every match
// contains, so that most texts never meet the expression.
type pattern struct {
	hint string
	re   *regexp.Regexp
	with string
}

var patterns = []pattern{
	{"PRIVATE KEY-----", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), Mask},
	{"sk-", regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{20,}`), Mask},
	{"gh", regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{30,}`), Mask},
	{"github_pat_", regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{30,}`), Mask},
	{"glpat-", regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20,}`), Mask},
	{"AKIA", regexp.MustCompile(`\bAKIA[0-9A-Z]{16}\b`), Mask},
	{"AIza", regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}`), Mask},
	{"xox", regexp.MustCompile(`\bxox[abprs]-[A-Za-z0-9-]{10,}`), Mask},
	{"npm_", regexp.MustCompile(`\bnpm_[A-Za-z0-9]{36}\b`), Mask},
	{":A", regexp.MustCompile(`\b[0-9]{8,12}:A[A-Za-z0-9_-]{34}\b`), Mask}, // a Telegram bot's token
	{"eyJ", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`), Mask},
	{"://", regexp.MustCompile(`([a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]{3,}@`), "${1}" + Mask + "@"},
}

// Redactor takes secrets out of texts. A nil Redactor leaves texts alone.
type Redactor struct {
	exact   *strings.Replacer
	longest int
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
	// The longest first: of two values one of which contains the other, the
	// whole must go.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	forms = slices.Compact(forms)
	var pairs []string
	for _, f := range forms {
		pairs = append(pairs, f, Mask)
		r.longest = max(r.longest, len(f))
	}
	r.exact = strings.NewReplacer(pairs...)
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
	s = r.exact.Replace(s)
	for _, p := range patterns {
		if strings.Contains(s, p.hint) {
			s = p.re.ReplaceAllString(s, p.with)
		}
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
	cut := len(s.held) - max(s.r.longest, shape)
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
	whole := s.r.exact.Replace(s.held)
	for i := cut; i > 0; i-- {
		if i = strings.LastIndexAny(s.held[:i], " \t\n") + 1; i == 0 {
			break
		}
		if strings.HasPrefix(whole, s.r.exact.Replace(s.held[:i])) {
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
