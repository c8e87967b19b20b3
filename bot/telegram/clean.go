package telegram

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// direction says which way a text goes: what people send loses what cannot be seen; what they are shown has it made visible,
// since they may be about to approve it.
type direction int

const (
	incoming direction = iota
	outgoing
)

// maxMarks is how many combining marks a letter may carry; no language needs more, and floods of them break screens.
const maxMarks = 8

// clean makes a text safe to store and to show: valid UTF-8, no control characters but newline and tab, no terminal escapes, no
// characters that reorder or hide text. Joiners stay: emoji and several scripts are made with them.
func clean(text string, dir direction) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if dir == outgoing {
		text = stripEscapes(text)
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	var b strings.Builder
	b.Grow(len(text))
	marks := 0
	for _, r := range text {
		if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r) {
			if marks++; marks > maxMarks {
				continue
			}
		} else {
			marks = 0
		}
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == '\r':
			b.WriteByte('\n')
		case unicode.IsControl(r), r == '\uFEFF':
		case hidden(r):
			if dir == outgoing {
				fmt.Fprintf(&b, "<U+%04X>", r)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hidden are characters that reorder the text around them or are never seen: overrides, isolates, tags, invisible spaces.
func hidden(r rune) bool {
	switch {
	case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069, r >= 0x206A && r <= 0x206F:
		return true
	case r == 0x200B, r >= 0x2060 && r <= 0x2064, r == 0x00AD, r == 0x115F, r == 0x1160, r == 0x3164, r == 0xFFA0:
		return true
	case r >= 0xE0000 && r <= 0xE007F, r >= 0xFFF9 && r <= 0xFFFB:
		return true
	}
	return false
}

// stripEscapes removes terminal control sequences: without this their tails ("[31m") would stay behind.
func stripEscapes(s string) string {
	if !strings.ContainsAny(s, "\x1b\u009b\u009d") {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == 0x9b:
			s = afterCSI(s[size:])
		case r == 0x9d:
			s = afterOSC(s[size:])
		case r != 0x1b:
			b.WriteString(s[:size])
			s = s[size:]
		case strings.HasPrefix(s[1:], "["):
			s = afterCSI(s[2:])
		case len(s) > 1 && strings.ContainsRune("]PX^_", rune(s[1])):
			s = afterOSC(s[2:])
		case len(s) > 1 && s[1] >= 0x20 && s[1] < 0x7f:
			s = s[2:]
		default:
			s = s[1:]
		}
	}
	return b.String()
}

func afterCSI(s string) string {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7e:
			return s[i+1:]
		case c < 0x20 || c > 0x7e:
			return s[i:]
		}
	}
	return ""
}

// maxOSC bounds what an unterminated sequence can swallow.
const maxOSC = 4096

func afterOSC(s string) string {
	for i := 0; i < min(len(s), maxOSC); i++ {
		switch {
		case s[i] == 0x07:
			return s[i+1:]
		case s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\':
			return s[i+2:]
		case s[i] == '\n':
			return s[i:]
		}
	}
	return s
}

// clip shortens to max characters.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n := 0
	for i := range s {
		if n++; n > limit {
			return s[:i]
		}
	}
	return s
}
