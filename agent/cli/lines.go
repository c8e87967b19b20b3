package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	// maxLine bounds a line after its strings were cut. A run's memory is a
	// small multiple of it.
	maxLine = 2 << 20
	// A string longer than stringHead + 2*stringTail loses its middle: agents
	// print whole files, but the end of an answer may carry its signal.
	stringHead = 64 << 10
	stringTail = 64 << 10
)

// cutMark stands where the middle of a string was.
const cutMark = " [...] "

// Line is one line of a child's output, without its end.
type Line struct {
	Text []byte
	Cut  bool  // strings inside, or the line's end, were left out
	Size int64 // bytes read for it
}

// Lines reads lines of any length in bounded memory. A line that starts as a
// JSON object stays one: its long strings lose their middle. What is then
// still too long is cut at its end.
type Lines struct {
	r *bufio.Reader
}

// NewLines reads from r.
func NewLines(r io.Reader) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 64<<10)}
}

// Next gives the next line; its text is the caller's to keep. A last line
// without an end counts. Then the error is io.EOF or what reading failed with.
func (l *Lines) Next() (Line, error) {
	chunk, err := l.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		if len(chunk) == 0 {
			return Line{}, err
		}
		return Line{Text: bytes.Clone(trimEnd(chunk)), Size: int64(len(chunk))}, nil
	}
	s := squeezer{json: startsObject(chunk)}
	size := int64(0)
	for {
		size += int64(len(chunk))
		s.write(chunk)
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		chunk, err = l.r.ReadSlice('\n')
	}
	s.endString()
	return Line{Text: trimEnd(s.out), Cut: s.cut, Size: size}, nil
}

func trimEnd(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte{'\n'}), []byte{'\r'})
}

func startsObject(b []byte) bool {
	b = bytes.TrimLeft(b, " \t")
	return len(b) > 0 && b[0] == '{'
}

// squeezer copies a line and leaves out the middle of long JSON strings. It
// cuts only between characters of the string's encoding, never inside an
// escape, so that what was JSON stays JSON.
type squeezer struct {
	json bool
	cut  bool
	out  []byte

	inString bool
	escape   int    // bytes of an escape still to come
	head     int    // bytes of the current string that were copied at once
	old, new []byte // the two halves of what may become its tail
	dropped  bool   // an older half was thrown away
}

func (s *squeezer) write(b []byte) {
	if !s.json {
		s.emit(b)
		return
	}
	for len(b) > 0 {
		b = b[s.step(b):]
	}
}

// step takes a run of bytes that are treated alike and returns its length.
func (s *squeezer) step(b []byte) int {
	switch {
	case !s.inString:
		n := bytes.IndexByte(b, '"') + 1
		if n == 0 {
			n = len(b)
		} else {
			s.inString = true
		}
		s.emit(b[:n])
		return n
	case s.escape > 0:
		if s.escape--; b[0] == 'u' && s.escape == 0 {
			s.escape = 4
		}
		s.keep(b[:1], false)
		return 1
	case b[0] == '"':
		s.endString()
		s.emit(b[:1])
		return 1
	case b[0] == '\\':
		s.escape = 1
		s.keep(b[:1], true)
		return 1
	}
	b = b[:min(len(b), 4096)]
	n := bytes.IndexAny(b, "\"\\")
	if n < 0 {
		n = len(b)
	}
	s.keep(b[:n], true)
	return n
}

// keep takes bytes of a string: into its head, then into the newer half of
// its tail. between tells that they begin a character.
func (s *squeezer) keep(b []byte, between bool) {
	if len(s.new)+len(s.old) == 0 && (s.head < stringHead || !between) {
		s.head += len(b)
		s.emit(b)
		return
	}
	if between && len(s.new) >= stringTail {
		s.dropped = s.dropped || len(s.old) > 0
		s.old, s.new = s.new, s.old[:0]
	}
	s.new = append(s.new, b...)
}

func (s *squeezer) endString() {
	if s.dropped {
		s.cut = true
		s.emit([]byte(cutMark))
	}
	s.emit(s.old)
	s.emit(s.new)
	s.inString, s.escape, s.head, s.dropped = false, 0, 0, false
	s.old, s.new = s.old[:0], s.new[:0]
}

func (s *squeezer) emit(b []byte) {
	if room := maxLine - len(s.out); len(b) > room {
		b, s.cut = b[:room], true
	}
	s.out = append(s.out, b...)
}
