package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pulseloop/pulse"
)

// unanswered reports whether a write may have been committed although it failed: the connection was lost with the answer. What
// such a write took hold of would lie there, in nobody's hand, until its lease ends.
func (s *Store) unanswered(err error) bool {
	var never *pgconn.ConnectError
	return err != nil && s.pg && pulse.CodeOf(err) == pulse.CodeUnavailable && !errors.As(err, &never)
}

// askFor is how long the answer to a lost answer is waited for: longer than a database takes to start again, shorter than a lease.
const askFor = 20 * time.Second

// ask looks what became of a write, by its token, as soon as the database answers again. It gives the write's own error, lost,
// when there is nothing of it, or nothing to be learnt.
func (s *Store) ask(ctx context.Context, lost error, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		err := look(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, pulse.ErrNone) || pulse.CodeOf(explain("look again", err)) != pulse.CodeUnavailable {
			return lost
		}
		select {
		case <-ctx.Done():
			return lost
		case <-time.After(wait):
		}
	}
}
