package proc

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lateWait is how long a read may wait for data once every process that
	// should hold the other end is gone.
	lateWait = 250 * time.Millisecond
	// lateBytes is how much is read after that: more than a pipe can hold, so
	// it came from a writer that escaped.
	lateBytes = 1 << 20
)

// outlet is the reading end of a child's pipe. It ends when the last writer
// closes it, or a bounded time and amount after finish.
type outlet struct {
	file *os.File
	over atomic.Bool
	late atomic.Int64 // bytes read since over
	end  atomic.Bool
}

// finish says that no legitimate writer is left.
func (o *outlet) finish() {
	o.over.Store(true)
	_ = o.file.SetReadDeadline(time.Now().Add(lateWait))
}

func (o *outlet) Read(b []byte) (int, error) {
	if o.end.Load() {
		return 0, io.EOF
	}
	n, err := o.file.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// The deadline also fails reads that would find data, when the reader
		// was busy elsewhere as it passed. So ask once more.
		_ = o.file.SetReadDeadline(time.Now().Add(lateWait / 5))
		n, err = o.file.Read(b)
	}
	if o.over.Load() {
		if o.late.Add(int64(n)) > lateBytes {
			err = io.EOF
		}
	}
	if err != nil {
		o.end.Store(true)
		_ = o.file.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
			err = io.EOF
		}
	}
	return n, err
}

// inlet is the writing end of a child's standard input; closing it twice, or
// after the child is gone, is fine.
type inlet struct {
	file *os.File
	once sync.Once
	err  error
}

func (i *inlet) Write(b []byte) (int, error) { return i.file.Write(b) }

func (i *inlet) Close() error {
	i.once.Do(func() { i.err = i.file.Close() })
	return i.err
}

// tail keeps the last max bytes written to it.
type tail struct {
	mu  sync.Mutex
	max int
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if n >= t.max {
		t.buf = append(t.buf[:0], b[n-t.max:]...)
		return n, nil
	}
	// Room for twice the tail makes the copy of the survivors rare.
	if len(t.buf)+n > 2*t.max {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.max+n:]...)
	}
	t.buf = append(t.buf, b...)
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.buf) > t.max {
		return string(t.buf[len(t.buf)-t.max:])
	}
	return string(t.buf)
}
