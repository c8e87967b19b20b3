package proc

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// Output runs a child to its end and returns its standard output. The error
// tells that it could not be started, that ctx ended first, or that there was
// more output than allowed; then the child has been ended, and what was read
// is returned too. A status other than 0 is no error: see Exit.
func Output(ctx context.Context, s Spec) ([]byte, Exit, error) {
	if err := ctx.Err(); err != nil {
		return nil, Exit{Code: -1, Err: err}, fmt.Errorf("run %s: %w", s.Path, context.Cause(ctx))
	}
	if s.Stdin == nil {
		s.Stdin = []byte{}
	}
	if s.MaxOutput <= 0 {
		s.MaxOutput = defaultMaxOutput
	}
	p, err := Start(s)
	if err != nil {
		return nil, Exit{Code: -1, Err: err}, err
	}
	stopped := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(stopped)
		p.Stop(context.Background())
	})
	var out bytes.Buffer
	_, readErr := io.Copy(&out, io.LimitReader(p.Stdout(), s.MaxOutput+1))
	if int64(out.Len()) > s.MaxOutput {
		out.Truncate(int(s.MaxOutput))
		// Nobody waits for the rest of it, so there is nothing to be patient for.
		now, cancel := context.WithCancel(context.Background())
		cancel()
		p.Stop(now)
		readErr = fmt.Errorf("more than %d bytes of output", s.MaxOutput)
	}
	exit := p.await(ctx)
	if !release() {
		<-stopped
		return out.Bytes(), exit, fmt.Errorf("run %s: %w", s.Path, context.Cause(ctx))
	}
	if readErr != nil {
		return out.Bytes(), exit, fmt.Errorf("read output of %s: %w", s.Path, readErr)
	}
	return out.Bytes(), exit, nil
}

// await waits for the end of a child whose output has ended. One that closed
// its output and stays is waited for as long as ctx allows.
func (p *Process) await(ctx context.Context) Exit {
	select {
	case <-p.done:
		return p.exit
	case <-ctx.Done():
		return p.Stop(context.Background())
	}
}
