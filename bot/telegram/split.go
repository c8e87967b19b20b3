package telegram

import "unicode"

// cut is a range of characters.
type cut struct{ from, to int }

// units counts UTF-16 units, in which the platform measures.
func units(text []rune) int {
	n := 0
	for _, r := range text {
		n += width(r)
	}
	return n
}

func width(r rune) int {
	if r >= 0x10000 {
		return 2
	}
	return 1
}

// split cuts text into pieces of at most limit units: between paragraphs, lines or words where there is one in the last third of
// the piece, else between characters as people see them.
func split(text []rune, limit int) []cut {
	var out []cut
	for from := 0; from < len(text); {
		to := fits(text, from, limit)
		if to < len(text) {
			to = from + bestBreak(text[from:to], text[to])
		}
		out = append(out, cut{from, to})
		from = to
	}
	if len(out) == 0 {
		out = []cut{{}}
	}
	return out
}

// fits answers how far limit units reach.
func fits(text []rune, from, limit int) int {
	used := 0
	for i := from; i < len(text); i++ {
		if used += width(text[i]); used > limit {
			return max(i, from+1)
		}
	}
	return len(text)
}

// bestBreak answers how much of piece to take, when next follows it.
func bestBreak(piece []rune, next rune) int {
	floor := len(piece) * 2 / 3
	line, word := 0, 0
	for i := len(piece); i > floor; i-- {
		prev := piece[i-1]
		if !unicode.IsSpace(prev) || !boundary(piece[:i], following(piece, i, next)) {
			continue
		}
		switch {
		case prev == '\n' && i >= 2 && piece[i-2] == '\n':
			return i
		case prev == '\n' && line == 0:
			line = i
		case word == 0:
			word = i
		}
	}
	if line > 0 {
		return line
	}
	if word > 0 {
		return word
	}
	for i := len(piece); i > floor; i-- {
		if boundary(piece[:i], following(piece, i, next)) {
			return i
		}
	}
	return len(piece)
}

func following(piece []rune, i int, next rune) rune {
	if i < len(piece) {
		return piece[i]
	}
	return next
}

// boundary says whether a character as people see it ends before next. It covers what occurs in chats (marks, joiners, skin tones,
// flags, jamo), not all of Unicode's rules.
func boundary(before []rune, next rune) bool {
	prev := before[len(before)-1]
	switch {
	case prev == '\u200D' || next == '\u200D':
		return false
	case unicode.In(next, unicode.Mn, unicode.Me, unicode.Mc), next >= 0x1F3FB && next <= 0x1F3FF, next >= 0xFE00 && next <= 0xFE0F:
		return false
	case prev == '\r' && next == '\n':
		return false
	case regional(prev) && regional(next):
		n := 0
		for i := len(before) - 1; i >= 0 && regional(before[i]); i-- {
			n++
		}
		return n%2 == 0
	case jamo(prev) && next >= 0x1160 && next <= 0x11FF:
		return false
	}
	return true
}

func regional(r rune) bool { return r >= 0x1F1E6 && r <= 0x1F1FF }

func jamo(r rune) bool { return r >= 0x1100 && r <= 0x11FF || r >= 0xAC00 && r <= 0xD7A3 }
