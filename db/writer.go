package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"
)

// maxGroup bounds a group commit, so that its first member does not wait for
// an endless queue behind it.
const maxGroup = 256

var errClosed = errors.New("the store is closed")

// job is one closure on its way through the writer.
type job struct {
	ctx  context.Context
	fn   func(context.Context, *work) error
	work *work
	err  error
	done chan struct{}
}

// writer is the goroutine that owns SQLite's one writing connection. What
// arrives while a commit waits for the disk becomes the next group: there is
// no timer. Closures must be pure database work that can run twice, and must
// never call the store.
type writer struct {
	conn bun.Conn
	raw  *prepared
	jobs chan *job // unbuffered: a job that was not taken can be given up
	quit chan struct{}
	over chan struct{}
}

func newWriter(conn bun.Conn) *writer {
	w := &writer{conn: conn, raw: newPrepared(conn.Conn), jobs: make(chan *job), quit: make(chan struct{}), over: make(chan struct{})}
	go w.run()
	return w
}

// do runs fn in a transaction and answers once that is on disk.
func (w *writer) do(ctx context.Context, fn func(context.Context, *work) error) (topicSet, error) {
	j := &job{ctx: ctx, fn: fn, done: make(chan struct{})}
	select {
	case w.jobs <- j:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-w.quit:
		return nil, errClosed
	}
	<-j.done // from here on the outcome is certain, so the answer must be too
	if j.err != nil {
		return nil, j.err
	}
	return j.work.topics, nil
}

func (w *writer) close() {
	close(w.quit)
	<-w.over
	w.raw.close()
}

func (w *writer) run() {
	defer close(w.over)
	for {
		select {
		case first := <-w.jobs:
			w.commit(w.gather(first))
		case <-w.quit:
			return
		}
	}
}

func (w *writer) gather(first *job) []*job {
	batch := []*job{first}
	for len(batch) < maxGroup {
		select {
		case j := <-w.jobs:
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// commit writes the batch as one transaction. If that fails as a whole, its
// members are written one by one, so that only the guilty one fails.
func (w *writer) commit(batch []*job) {
	err := w.group(batch)
	if err != nil && len(batch) > 1 {
		for _, j := range batch {
			w.commit([]*job{j})
		}
		return
	}
	for _, j := range batch {
		if err != nil {
			j.err = err
		}
		close(j.done)
	}
}

func (w *writer) group(batch []*job) error {
	if len(batch) == 1 {
		return w.alone(batch[0])
	}
	ctx := context.Background()
	if err := w.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, j := range batch {
		if err := w.member(j); err != nil {
			return errors.Join(err, w.rollback(ctx))
		}
	}
	if err := w.exec(ctx, "COMMIT"); err != nil {
		return errors.Join(err, w.rollback(ctx))
	}
	return nil
}

// alone is group for one, which needs no savepoint.
func (w *writer) alone(j *job) error {
	if j.err = j.ctx.Err(); j.err != nil {
		return nil
	}
	ctx := context.WithoutCancel(j.ctx)
	if err := w.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if j.err = w.call(ctx, j); j.err != nil {
		return w.rollback(ctx)
	}
	if err := w.exec(ctx, "COMMIT"); err != nil {
		return errors.Join(err, w.rollback(ctx))
	}
	return nil
}

func (w *writer) call(ctx context.Context, j *job) error {
	j.work = &work{db: w.conn, raw: w.raw, topics: topicSet{}}
	w.raw.work = j.work
	return j.fn(ctx, j.work)
}

// member runs one closure inside a savepoint. Its own failure is its own;
// the error returned is one of the group.
func (w *writer) member(j *job) error {
	if j.err = j.ctx.Err(); j.err != nil {
		return nil
	}
	// A cancelled statement would roll back the neighbours too.
	ctx := context.WithoutCancel(j.ctx)
	if err := w.exec(ctx, "SAVEPOINT member"); err != nil {
		return err
	}
	if j.err = w.call(ctx, j); j.err != nil {
		if err := w.exec(ctx, "ROLLBACK TO member"); err != nil {
			return fmt.Errorf("%w (after: %w)", err, j.err)
		}
	}
	return w.exec(ctx, "RELEASE member")
}

// rollback ends what is left of a failed group. SQLite may have rolled back
// by itself (disk full, I/O error), which is no second failure.
func (w *writer) rollback(ctx context.Context) error {
	err := w.exec(ctx, "ROLLBACK")
	if sqliteCode(err) == sqliteError {
		return nil
	}
	return err
}

func (w *writer) exec(ctx context.Context, sql string) error {
	if err := w.raw.control(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}
