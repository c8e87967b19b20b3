package bot

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes what a person said fit to be stored and put into a prompt:
// valid UTF-8 without control characters, direction overrides or invisible
// characters that could carry words nobody sees.
func clean(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case r == '\r', r == 0x2028, r == 0x2029:
			return '\n'
		case unicode.IsControl(r):
			return -1
		case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200b, r == 0x2060, r == 0xfeff,
			r >= 0xe0000 && r <= 0xe007f:
			return -1
		}
		return r
	}, s))
}

// line is a text as part of one line of at most limit characters.
func line(s string, limit int) string {
	s = strings.Join(strings.Fields(clean(s)), " ")
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	r := []rune(s)[:limit-1]
	return strings.TrimRight(string(r), " \u200d") + "…"
}

// visible reports whether there is anything to see in a text.
func visible(s string) bool {
	return strings.IndexFunc(s, unicode.IsGraphic) >= 0 && strings.TrimSpace(s) != ""
}

// firstWord splits off the first word of a text.
func firstWord(s string) (word, rest string) {
	s = strings.TrimSpace(s)
	if i := strings.IndexFunc(s, unicode.IsSpace); i >= 0 {
		return s[:i], strings.TrimSpace(s[i:])
	}
	return s, ""
}
