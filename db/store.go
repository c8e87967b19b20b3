package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

// Config says which database is opened and how.
type Config struct {
	URL  string // postgres://...; "" means SQLite
	Path string // the SQLite file, used when URL is ""
	Log  *slog.Logger
	// Clock, if set, is the time of every lease and due date. Without it
	// PostgreSQL's own clock counts, so that the hosts' clocks need not agree.
	Clock func() time.Time

	ReadConns  int           // SQLite: readers beside the writer; PostgreSQL: connections; 0 = 4 or 16
	ClaimConns int           // PostgreSQL: connections of the task queue; 0 = 8
	Timeout    time.Duration // bound of one operation; 0 = 30 s
}

// Store is the database. Close it when nothing uses it any more.
type Store struct {
	cfg     Config
	log     *slog.Logger
	hub     *hub
	pg      bool
	reads   *bun.DB
	lite    *liteFile     // SQLite only
	claims  *pgxpool.Pool // PostgreSQL only: prepared statements for the queue
	news    *notifier     // PostgreSQL only
	results results
	present presence
	counted counted
	doubts  doubts
	once    sync.Once
	closed  error
}

// work is one running write: where to write, its one instant, and whom to
// wake when it is committed.
type work struct {
	db     bun.IDB
	raw    rawConn
	at     time.Time
	dbTime bool // the database's own clock counts
	pg     bool
	topics topicSet
}

func (w *work) wake(topics ...pulse.Topic) {
	for _, t := range topics {
		w.topics[t] = struct{}{}
	}
}

// now is SQL for the transaction's instant plus d.
func (w *work) now(d time.Duration) string { return nowSQL(w.pg, w.dbTime, w.at, d) }

// clockArg stands for the transaction's instant in a statement of SQLite.
const clockArg = "@now"

// clock is now for statements that go to w.raw: on SQLite the instant is an
// argument there, so that the statement's text is always the same.
func (w *work) clock(d time.Duration) string {
	switch {
	case w.pg:
		return w.now(d)
	case d == 0:
		return clockArg
	default:
		return fmt.Sprintf("(%s + %d)", clockArg, d.Microseconds())
	}
}

func (s *Store) work() *work {
	return &work{at: s.now(), dbTime: s.dbTime(), pg: s.pg, topics: topicSet{}}
}

func (w *work) on(c rawConn) *work {
	w.raw = c
	return w
}

func (s *Store) dbTime() bool { return s.pg && s.cfg.Clock == nil }

// now is this process's idea of the time, to the microsecond that both
// databases keep.
func (s *Store) now() time.Time {
	clock := s.cfg.Clock
	if clock == nil {
		clock = time.Now
	}
	return clock().UTC().Truncate(time.Microsecond)
}

func (s *Store) sqlNow(d time.Duration) string { return nowSQL(s.pg, s.dbTime(), s.now(), d) }

func nowSQL(pg, dbTime bool, t time.Time, d time.Duration) string {
	switch {
	case dbTime && d == 0:
		return "now()"
	case dbTime:
		return fmt.Sprintf("(now() + interval '%d microseconds')", d.Microseconds())
	case pg:
		return "'" + t.Add(d).Format(stampLayout) + "'::timestamptz"
	default:
		return fmt.Sprint(t.Add(d).UnixMicro())
	}
}

// Open connects to the database. It migrates nothing; it refuses a schema
// newer than this program knows. On SQLite it takes the file for this process
// alone and voids the leases that an earlier one left behind.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	s := &Store{cfg: cfg, log: cfg.Log, hub: newHub(), pg: cfg.URL != ""}
	open := s.openSQLite
	if s.pg {
		open = s.openPostgres
	}
	if err := open(ctx); err != nil {
		return nil, err
	}
	version, err := s.Version(ctx)
	if err == nil {
		err = s.refuseNewer(version)
	}
	if err == nil && version > 0 && !s.pg {
		err = s.voidLeases(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close gives everything back. Calls after it fail.
func (s *Store) Close() error {
	s.once.Do(func() {
		if s.pg {
			s.closed = s.closePostgres()
		} else {
			s.closed = s.closeSQLite()
		}
	})
	return s.closed
}

// Ping asks the database for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	return s.view(ctx, "ping database", func(ctx context.Context, db bun.IDB) error {
		var one int
		return db.NewRaw("SELECT 1").Scan(ctx, &one)
	})
}

// write runs fn in one transaction and, once that is committed, wakes whom it
// named. fn may run more than once.
func (s *Store) write(ctx context.Context, what string, fn func(context.Context, *work) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	topics, err := s.commit(ctx, fn)
	if err != nil {
		return explain(what, err)
	}
	s.announce(topics)
	return nil
}

func (s *Store) commit(ctx context.Context, fn func(context.Context, *work) error) (topicSet, error) {
	if !s.pg {
		return s.lite.writer.do(ctx, func(ctx context.Context, w *work) error {
			w.at, w.dbTime, w.pg = s.now(), s.dbTime(), s.pg
			return fn(ctx, w)
		})
	}
	var w *work
	err := again(ctx, func() error {
		w = s.work()
		return s.reads.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			w.db, w.raw = tx, sqlConn{tx.Tx}
			return fn(ctx, w)
		})
	})
	if err != nil {
		return nil, err
	}
	return w.topics, nil
}

// queue is write for the task queue: on PostgreSQL over its own pool, with
// prepared statements. fn sees w.raw only.
func (s *Store) queue(ctx context.Context, what string, fn func(context.Context, *work) error) error {
	if !s.pg {
		return s.write(ctx, what, fn)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var w *work
	err := again(ctx, func() error {
		w = s.work()
		var tx pgx.Tx
		err := sent(ctx, maxSent, func() (err error) {
			tx, err = s.claims.Begin(ctx)
			return err
		})
		if err != nil {
			return err
		}
		w.raw = txConn(tx)
		if err := fn(ctx, w); err != nil {
			_ = tx.Rollback(ctx) // the pool throws away what is not at rest
			return err
		}
		return tx.Commit(ctx)
	})
	if err != nil {
		return explain(what, err)
	}
	s.announce(w.topics)
	return nil
}

// queueOne is queue for a single statement, which needs no BEGIN and COMMIT.
func (s *Store) queueOne(ctx context.Context, what string, fn func(context.Context, *work) error) error {
	if !s.pg {
		return s.write(ctx, what, fn)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	w := s.work()
	w.raw = poolConn(s.claims)
	if err := fn(ctx, w); err != nil {
		return explain(what, err)
	}
	s.announce(w.topics)
	return nil
}

// view runs a read, bounded in time. Several statements of it may see
// different commits.
func (s *Store) view(ctx context.Context, what string, fn func(context.Context, bun.IDB) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := fn(ctx, s.reads); err != nil {
		return explain(what, err)
	}
	return nil
}

func (s *Store) announce(topics topicSet) {
	if len(topics) == 0 {
		return
	}
	s.hub.wake(topics)
	if s.news != nil {
		s.news.announce(topics)
	}
}

// again repeats a transaction that lost against another one.
func again(ctx context.Context, fn func() error) error {
	const tries = 5
	var err error
	for range tries {
		if err = fn(); err == nil || !lostRace(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}
