package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// DefaultLinger is how long a CLI may stay silent after its result before it
// counts as ended. Some never exit; some go on with work in the background,
// and then are not silent.
const DefaultLinger = 20 * time.Second

// Talk is the conversation with a CLI that answers in lines. Its functions
// are called one at a time, from the goroutine that called Run.
type Talk struct {
	OnLine    func(Line) error    // an error ends the conversation
	OnControl func(Control) error // nil: controls are dropped
	Settled   func() bool         // the CLI has given a result; nil: never
	Linger    time.Duration       // 0 is DefaultLinger
}

// Run reads stdout until it ends, ctx ends, or the CLI has settled and then
// stays silent. The end of output is not an error. A read that is still under
// way when Run returns is given up; what it reads is lost.
func (t Talk) Run(ctx context.Context, stdout io.Reader, controls <-chan Control) error {
	if t.Linger <= 0 {
		t.Linger = DefaultLinger
	}
	left := make(chan struct{})
	defer close(left)
	lines, ended := make(chan Line), make(chan error, 1)
	go read(stdout, lines, ended, left)

	silence := time.NewTimer(t.Linger)
	defer silence.Stop()
	for {
		select {
		case line := <-lines:
			if err := t.OnLine(line); err != nil {
				return err
			}
			silence.Reset(t.Linger)
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read the agent's output: %w", err)
		case c, ok := <-controls:
			if !ok {
				controls = nil
			} else if t.OnControl != nil {
				if err := t.OnControl(c); err != nil {
					return err
				}
			}
		case <-silence.C:
			if t.Settled != nil && t.Settled() {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func read(r io.Reader, lines chan<- Line, ended chan<- error, left <-chan struct{}) {
	in := NewLines(r)
	for {
		line, err := in.Next()
		if err != nil {
			ended <- err
			return
		}
		select {
		case lines <- line:
		case <-left:
			return
		}
	}
}

// Feed writes the whole input of a CLI and closes it, from a goroutine of its
// own, because a child need not read before it writes. The channel gets the
// outcome once. A child that ended without reading everything is no failure:
// what it made of that stands in its result.
func Feed(stdin io.WriteCloser, text string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, _ = io.WriteString(stdin, text)
		done <- stdin.Close()
	}()
	return done
}
