package console_test

import (
	"strconv"
	"strings"
	"sync"
)

// terminal is as much of a terminal as the console uses: lines, the cursor,
// and the sequences that move it, erase, and save its place. Styles are
// dropped, anything else is kept visible as <...>.
type terminal struct {
	mu    sync.Mutex
	rows  [][]rune
	r, c  int
	saved [2]int
	wide  int
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := []rune(string(p))
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\n':
			t.r, t.c = t.r+1, 0
		case '\r':
			t.c = 0
		case 0x1b:
			i = t.escape(text, i)
		default:
			t.put(text[i])
		}
	}
	return len(p), nil
}

func (t *terminal) escape(text []rune, i int) int {
	switch text[i+1] {
	case '7':
		t.saved = [2]int{t.r, t.c}
		return i + 1
	case '8':
		t.r, t.c = t.saved[0], t.saved[1]
		return i + 1
	case '[':
		j := i + 2
		for text[j] < '@' || text[j] > '~' {
			j++
		}
		switch arg := string(text[i+2 : j]); text[j] {
		case 'A':
			n, _ := strconv.Atoi(arg)
			t.r = max(0, t.r-max(1, n))
		case 'J':
			t.grow()
			t.rows[t.r] = t.rows[t.r][:min(t.c, len(t.rows[t.r]))]
			t.rows = t.rows[:t.r+1]
		case 'K':
			t.grow()
			t.rows[t.r] = nil
		case 'm':
		default:
			for _, r := range "<" + arg + string(text[j]) + ">" {
				t.put(r)
			}
		}
		return j
	}
	t.put('<')
	t.put('>')
	return i + 1
}

func (t *terminal) grow() {
	for len(t.rows) <= t.r {
		t.rows = append(t.rows, nil)
	}
}

func (t *terminal) put(r rune) {
	if t.wide > 0 && t.c == t.wide {
		t.r, t.c = t.r+1, 0
	}
	t.grow()
	for len(t.rows[t.r]) <= t.c {
		t.rows[t.r] = append(t.rows[t.r], ' ')
	}
	t.rows[t.r][t.c] = r
	t.c++
}

// typeKeys is what a terminal shows of keys that are pressed.
func (t *terminal) typeKeys(s string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range s {
		if r == '\n' {
			t.r, t.c = t.r+1, 0
			continue
		}
		t.put(r)
	}
}

// shown is what stands on the screen.
func (t *terminal) shown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, r := range t.rows {
		out = append(out, strings.TrimRight(string(r), " "))
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n")
}
