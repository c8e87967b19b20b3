package e2etest

import (
	"strconv"
	"strings"
)

// Screen is what a person sees of printed text: lines, the cursor that moves up, what is erased. Colours are dropped; other
// sequences stay, so that a test which compares notices them. The screen is as wide as its longest line.
func Screen(printed string) string {
	var s screen
	text := []rune(printed)
	for i := 0; i < len(text); i++ {
		switch r := text[i]; {
		case r == '\n':
			s.row++
		case r == '\r':
			s.col = 0
		case r == '\b':
			s.col = max(0, s.col-1)
		case r == '\x1b' && i+1 < len(text):
			i = s.escape(text, i+1)
		default:
			s.put(r)
		}
	}
	lines := make([]string, 0, len(s.rows))
	for _, r := range s.rows {
		lines = append(lines, strings.TrimRight(string(r), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

type screen struct {
	rows     [][]rune
	row, col int
	saved    [2]int
}

func (s *screen) line() *[]rune {
	for len(s.rows) <= s.row {
		s.rows = append(s.rows, nil)
	}
	return &s.rows[s.row]
}

func (s *screen) put(r rune) {
	l := s.line()
	for len(*l) <= s.col {
		*l = append(*l, ' ')
	}
	(*l)[s.col] = r
	s.col++
}

// escape does what the sequence after ESC at i says, and gives the place of its last character.
func (s *screen) escape(text []rune, i int) int {
	switch text[i] {
	case '7':
		s.saved = [2]int{s.row, s.col}
		return i
	case '8':
		s.row, s.col = s.saved[0], s.saved[1]
		return i
	case '[':
		j := i + 1
		for j < len(text)-1 && (text[j] < '@' || text[j] > '~') {
			j++
		}
		s.control(text[j], string(text[i+1:j]))
		return j
	}
	return i - 1
}

func (s *screen) control(verb rune, arg string) {
	l := s.line()
	switch verb {
	case 'A':
		n, _ := strconv.Atoi(arg) // none means one
		s.row = max(0, s.row-max(1, n))
	case 'J':
		*l = (*l)[:min(s.col, len(*l))]
		s.rows = s.rows[:s.row+1]
	case 'K':
		*l = nil
	case 'm':
	default:
		for _, r := range "<" + arg + string(verb) + ">" {
			s.put(r)
		}
	}
}
