package notify

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks bounds the combining marks on one character: no script needs
// more, and floods of them paint over the lines around.
const maxMarks = 6

// Clean takes out of a text what a screen would act on instead of showing:
// terminal escape sequences, control characters, direction overrides,
// invisible characters and invalid bytes. Line feeds and tabs stay; carriage
// returns become line feeds, so that nothing can be painted over.
func Clean(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	marks := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == 0x1b || r == 0x9b || r == 0x9d || r == 0x90 {
			i += escapeLen(s[i:], r, n)
			continue
		}
		i += n
		if r == '\r' {
			if !strings.HasPrefix(s[i:], "\n") {
				b.WriteByte('\n')
			}
			continue
		}
		if unicode.In(r, unicode.Mn, unicode.Me) && r != 0xfe0f {
			if marks++; marks > maxMarks {
				continue
			}
		} else {
			marks = 0
		}
		if r == 0x2028 || r == 0x2029 {
			r = '\n'
		}
		if !hidden(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isClean(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 0x20 && c != '\n' && c != '\t') || c >= 0x7f {
			return false
		}
	}
	return true
}

// hidden reports what is neither seen nor needed to see the rest right. The
// zero-width joiner stays: emoji of families and professions need it.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // direction overrides and isolates
		return true
	case r == 0x200b, r == 0x2060, r == 0xfeff, r == 0x00ad:
		return true
	case r >= 0xe0000 && r <= 0xe007f: // tag characters spell invisible words
		return true
	}
	return false
}

// escapeLen is the length of the escape sequence at the start of s, whose
// introducer is the rune r of n bytes. One that does not end swallows the
// introducer alone, so that no text is lost to a stray byte.
func escapeLen(s string, r rune, n int) int {
	kind := r
	at := n
	if r == 0x1b {
		if len(s) == n {
			return n
		}
		kind, at = rune(s[n]), n+1
	}
	switch kind {
	case '[', 0x9b: // CSI: parameters, then one final byte
		for j := at; j < len(s) && j < at+64; j++ {
			if c := s[j]; c >= 0x40 && c <= 0x7e {
				return j + 1
			} else if c < 0x20 || c > 0x7e {
				return j
			}
		}
		return at
	case ']', 'P', 'X', '^', '_', 0x9d, 0x90: // strings: up to BEL or ST
		for j := at; j < len(s); j++ {
			switch {
			case s[j] == 0x07:
				return j + 1
			case s[j] == 0x1b && j+1 < len(s) && s[j+1] == '\\':
				return j + 2
			case s[j] == '\n':
				return at
			}
		}
		return at
	}
	if kind >= 0x30 && kind <= 0x7e {
		return at
	}
	return n
}

// oneLine is a text as part of one line: cleaned, white space joined, and at
// most limit characters long.
func oneLine(s string, limit int) string {
	return clip(strings.Join(strings.Fields(Clean(s)), " "), limit)
}

// clip cuts a text to limit characters; what was cut leaves a mark. It never
// cuts between the parts of one visible character.
func clip(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	r := []rune(s)
	end := limit - 1
	for end > 0 && joins(r[end-1], r[end]) {
		end--
	}
	return strings.TrimRight(string(r[:end]), " \n") + "…"
}

// joins reports whether b belongs to the visible character that a is part of.
func joins(a, b rune) bool {
	return unicode.In(b, unicode.Mn, unicode.Me) || a == 0x200d || b == 0x200d || b >= 0x1f3fb && b <= 0x1f3ff
}
