package console

import (
	"io"
	"strings"
	"unicode"

	"pulseloop/notify"
)

// screen is the lower end of a terminal: what was printed, then the live
// line, if there is one, then the line that is typed. Where the output is no
// terminal everything is simply appended. Its owner holds a lock.
type screen struct {
	out   io.Writer
	tty   bool
	width func() int

	prompted bool // a prompt stands on the last line
	live     string
	slot     string
	steps    map[string]string // not a terminal: the last step printed, by slot
}

const (
	sign      = "› "
	up        = "\x1b[A"
	clearDown = "\r\x1b[J"
	clearLine = "\r\x1b[2K"
	dim       = "\x1b[2m"
	plain     = "\x1b[0m"
)

func (s *screen) write(text string) error {
	_, err := io.WriteString(s.out, text)
	return err
}

// erase takes away the live line and the prompt.
func (s *screen) erase() string {
	switch {
	case s.live != "" && s.prompted:
		return up + clearDown
	case s.live != "" || s.prompted:
		return clearDown
	}
	return ""
}

// foot is the live line and the prompt.
func (s *screen) foot() string {
	text := ""
	if s.live != "" {
		text = dim + s.live + plain
		if s.prompted {
			text += "\n"
		}
	}
	if s.prompted {
		text += sign
	}
	return text
}

// prompt shows that a line can be typed.
func (s *screen) prompt() {
	if !s.tty || s.prompted {
		return
	}
	head := s.erase()
	s.prompted = true
	_ = s.write(head + s.foot()) // a terminal that is gone is noticed by what is printed
}

// leave ends with the cursor on a line of its own.
func (s *screen) leave() {
	if s.tty && (s.prompted || s.live != "") {
		head := s.erase()
		s.prompted, s.live, s.slot = false, "", ""
		_ = s.write(head)
	}
}

// print adds text for good. settles says that it is an outcome, which ends
// the live line.
func (s *screen) print(text string, settles bool) error {
	if !s.tty {
		return s.write(text + "\n")
	}
	head := s.erase()
	if settles {
		s.live, s.slot = "", ""
	}
	return s.write(head + text + "\n" + s.foot())
}

// entered puts the screen in order after lines were typed: the terminal has
// echoed them, so they and the live line above them are drawn anew. Where
// there is no terminal nothing was echoed.
func (s *screen) entered(raw []string) {
	if !s.tty {
		for _, l := range raw {
			if strings.TrimSpace(l) != "" {
				_ = s.write(sign + notify.Clean(l) + "\n")
			}
		}
		return
	}
	rows := 0
	if s.live != "" {
		rows++
	}
	for i, l := range raw {
		if i == 0 {
			l = sign + l
		}
		rows += max(1, (cells(echoed(l))+s.columns()-1)/s.columns())
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(up, rows) + clearDown)
	for _, l := range raw {
		if l = sequence.ReplaceAllString(l, ""); strings.TrimSpace(l) != "" {
			b.WriteString(sign + notify.Clean(l) + "\n")
		}
	}
	_ = s.write(b.String() + s.foot())
}

// echoed is how a terminal shows what is typed: control characters as a sign
// of two cells.
func echoed(line string) string {
	var b strings.Builder
	for _, r := range line {
		if r == 0x7f || r < ' ' && r != '\t' {
			b.WriteByte('^')
			r ^= 0x40
		}
		b.WriteRune(r)
	}
	return b.String()
}

// echo shows a line that somebody else typed.
func (s *screen) echo(text string) {
	_ = s.print(sign+strings.ReplaceAll(text, "\n", "\n  "), false)
}

// progress shows what an agent does right now.
func (s *screen) progress(slot, text string) error {
	head, rest, _ := strings.Cut(text, "\n")
	last := head
	if i := strings.LastIndex(rest, "\n"); rest != "" {
		last = rest[i+1:]
	}
	if !s.tty {
		return s.step(slot, head, last)
	}
	line := head
	if last != head {
		line += " · " + last
	}
	line = s.fit(strings.ReplaceAll(line, "\t", " "))
	if s.live != "" && s.prompted { // the typed line below stays as it is
		s.live, s.slot = line, slot
		return s.write("\x1b7" + up + clearLine + dim + line + plain + "\x1b8")
	}
	before := s.erase()
	s.live, s.slot = line, slot
	return s.write(before + s.foot())
}

// step appends what is new of a live message.
func (s *screen) step(slot, head, last string) error {
	known, ok := s.steps[slot]
	if !ok {
		head, _, _ = strings.Cut(head, " · ") // the time that passed is different with every look
		if err := s.write(head + "\n"); err != nil {
			return err
		}
		s.steps[slot] = ""
	}
	// The mark before a step changes when it ends; that alone is not news.
	mark, name, _ := strings.Cut(last, " ")
	if name == known || name == "" || !strings.Contains("▸✓✗", mark) {
		return nil
	}
	s.steps[slot] = name
	return s.write("   · " + name + "\n")
}

// over takes the live line of an iteration away.
func (s *screen) over(slot string) error {
	delete(s.steps, slot)
	if !s.tty || s.slot != slot || s.live == "" {
		return nil
	}
	head := s.erase()
	s.live, s.slot = "", ""
	return s.write(head + s.foot())
}

func (s *screen) columns() int {
	if w := s.width(); w > 0 {
		return w
	}
	return 80
}

// fit cuts a line so that it never wraps: the screen counts on one row.
func (s *screen) fit(line string) string {
	limit := max(10, s.columns()-1)
	if cells(line) <= limit {
		return line
	}
	n := 0
	for i, r := range line {
		if n += runeCells(r); n >= limit {
			return line[:i] + "…"
		}
	}
	return line
}

// cells is how much of a terminal row a text takes.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

// runeCells overestimates where terminals disagree: a line that is too short
// looks better than one that wraps.
func runeCells(r rune) int {
	switch {
	case r == 0xfe0f:
		return 1 // makes the sign before it an emoji, which is wide
	case r == 0x200d, unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f000 && r <= 0x3ffff,
		r >= 0x231a && r <= 0x23ff, r >= 0x2600 && r <= 0x27bf, r >= 0x2b1b && r <= 0x2b55:
		return 2
	}
	return 1
}
