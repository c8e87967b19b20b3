package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxToolOutput bounds Tool.Output.
const MaxToolOutput = 64 << 10

// Clean makes text of a program fit to store and show: terminal sequences and
// control characters but line end and tab go, a carriage return becomes a
// line end, and what is not UTF-8 is replaced.
func Clean(s string) string {
	if isClean(s) {
		return s
	}
	var c Cleaner
	return c.Write([]byte(s)) + c.Close()
}

func isClean(s string) bool { return unmarked(s) && utf8.ValidString(s) }

// unmarked reports that s holds none of the bytes that Clean acts on.
func unmarked[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\n' && c != '\t' || c == 0x7f || c == 0xc2 {
			return false
		}
	}
	return true
}

type cleanState uint8

const (
	plain   cleanState = iota
	escaped            // after ESC
	control            // in a control sequence (CSI), up to its final byte
	command            // in a string (OSC, DCS, ...), up to BEL or ST
	ending             // in a string, after ESC
)

// maxSequence ends the search for the end of a terminal sequence: what comes
// after that many bytes is taken for text again.
const maxSequence = 4096

// Cleaner is Clean for a stream: sequences and characters may be split
// between writes. The zero value is ready.
type Cleaner struct {
	state cleanState
	held  []byte // the beginning of a character
	run   int    // length of the current sequence
	cr    bool   // the last byte was a carriage return
}

// Write takes the next piece and gives what of it is text.
func (c *Cleaner) Write(b []byte) string {
	if len(c.held) > 0 {
		b = append(c.held, b...)
		c.held = nil
	}
	if c.state == plain && !c.cr && unmarked(b) && utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	out.Grow(len(b))
	for len(b) > 0 {
		if b[0] >= utf8.RuneSelf && !utf8.FullRune(b) {
			c.held = append([]byte(nil), b...)
			break
		}
		r, size := utf8.DecodeRune(b)
		b = b[size:]
		c.take(&out, r)
	}
	return out.String()
}

// Close gives what was held back for a piece that never came.
func (c *Cleaner) Close() string {
	held := len(c.held) > 0 && c.state == plain
	*c = Cleaner{}
	if held {
		return string(utf8.RuneError)
	}
	return ""
}

func (c *Cleaner) take(out *strings.Builder, r rune) {
	if c.state != plain {
		if c.run++; c.run > maxSequence || r == '\n' && c.state != command {
			c.state = plain
		} else {
			c.state = c.within(r)
			return
		}
	}
	switch {
	case r == 0x1b:
		c.state, c.run = escaped, 0
	case r == 0x9b:
		c.state, c.run = control, 0
	case r == 0x9d || r == 0x90 || r == 0x98 || r == 0x9e || r == 0x9f:
		c.state, c.run = command, 0
	case r == '\n' && c.cr:
		// The carriage return before has already ended the line.
	case r == '\r':
		out.WriteByte('\n')
	case r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f):
		out.WriteRune(r)
	}
	c.cr = r == '\r'
}

// within gives the state after r inside a sequence.
func (c *Cleaner) within(r rune) cleanState {
	switch c.state {
	case escaped:
		switch {
		case r == '[':
			return control
		case strings.ContainsRune("]PX^_", r):
			return command
		case r >= 0x20 && r <= 0x2f:
			return escaped
		}
		return plain
	case control:
		if r >= 0x40 && r <= 0x7e {
			return plain
		}
	case command:
		switch r {
		case 0x07, 0x9c:
			return plain
		case 0x1b:
			return ending
		}
	case ending:
		if r == '\\' {
			return plain
		}
		return command
	}
	return c.state
}

// CutMiddle shortens s to about max bytes by leaving out its middle, at
// characters' borders, and says how much went.
func CutMiddle(s string, max int) string {
	if len(s) <= max {
		return s
	}
	head, tail := max*2/3, len(s)-max/3
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", s[:head], tail-head, s[tail:])
}
