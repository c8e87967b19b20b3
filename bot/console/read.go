package console

import (
	"bufio"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"time"
)

// typed is one message: a line, lines joined by backslashes, or a paste.
type typed struct {
	text    string
	raw     []string // as they stand on the screen
	tooLong bool
	cut     bool // the terminal has thrown away what followed
}

const (
	// pause is the time within which the next line belongs to the same paste;
	// nobody types that fast.
	pause = 30 * time.Millisecond
	// mostTyped is what a terminal keeps of one line, in bytes.
	mostTyped = 4095
)

// reader makes messages of what comes in.
type reader struct {
	in  io.Reader
	tty bool
}

// line is one line as it was read, with the error that came with it.
type line struct {
	text    string
	tooLong bool
	err     error
}

// run reads until the input ends or ctx does. A read that cannot be taken back
// holds up its end.
func (r reader) run(ctx context.Context, out chan<- typed) error {
	in, left := make(chan line), make(chan struct{})
	go func() {
		defer close(left)
		buffer := bufio.NewReaderSize(r.in, 64<<10)
		for {
			var l line
			l.text, l.tooLong, l.err = readLine(buffer)
			select {
			case in <- l:
			case <-ctx.Done():
				return
			}
			if l.err != nil {
				return
			}
		}
	}()
	var now message
	for {
		var quiet <-chan time.Time
		if now.complete() {
			quiet = time.After(pause)
		}
		var err error
		select {
		case <-ctx.Done():
			<-left
			return nil
		case l := <-in:
			err = l.err
			if err == nil || l.text != "" || l.tooLong {
				now.add(l, r.tty)
			}
			if err == nil && (now.open || r.tty && !now.command()) {
				continue
			}
		case <-quiet:
		}
		if len(now.raw) > 0 || now.tooLong {
			select {
			case out <- now.take():
			case <-ctx.Done():
				<-left
				return nil
			}
		}
		if err != nil {
			return eof(err)
		}
	}
}

// message is what has come of one so far.
type message struct {
	typed
	body strings.Builder
	open bool // the last line ended with a backslash
}

func (m *message) complete() bool { return !m.open && (len(m.raw) > 0 || m.tooLong) }

// command reports whether it is one: a command is a single line, and waits
// for nothing.
func (m *message) command() bool { return strings.HasPrefix(strings.TrimSpace(m.body.String()), "/") }

func (m *message) add(l line, tty bool) {
	body, more := strings.CutSuffix(sequence.ReplaceAllString(l.text, ""), `\`)
	m.open = more && l.err == nil
	m.cut = m.cut || tty && len(l.text) >= mostTyped
	m.tooLong = m.tooLong || l.tooLong || m.body.Len()+len(body) > maxLine
	if m.tooLong {
		return
	}
	if len(m.raw) > 0 {
		m.body.WriteByte('\n')
	}
	m.raw = append(m.raw, l.text)
	m.body.WriteString(body)
}

func (m *message) take() typed {
	t := m.typed
	t.text = strings.Trim(m.body.String(), "\n")
	*m = message{}
	return t
}

// sequence is what keys such as the arrows send, and what a terminal puts
// around a paste: nobody means to say it.
var sequence = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|O.|[ -/]*[0-Z\\^-~])?`)

func eof(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// readLine reads up to the next line feed; of a line that is too long the
// rest is read and forgotten.
func readLine(r *bufio.Reader) (text string, tooLong bool, err error) {
	var b strings.Builder
	for {
		part, err := r.ReadSlice('\n')
		if b.Len()+len(part) > maxLine {
			tooLong = true
		}
		if !tooLong {
			b.Write(part)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return strings.TrimRight(b.String(), "\r\n"), tooLong, err
	}
}
