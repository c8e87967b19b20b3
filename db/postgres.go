package db

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"pulseloop/pulse"
)

// dialer notices a dead peer within half a minute, so that no call hangs for
// longer than that on a network that swallows packets.
var dialer = net.Dialer{
	Timeout:         5 * time.Second,
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
}

// maxIdle is how long the server keeps a transaction for a program from which
// nothing comes. One that was stopped in the middle of it holds rows that
// others want: the task it runs, above all, which has to be somebody else's
// soon after its lease.
const maxIdle = 5 * time.Second

func (s *Store) openPostgres(ctx context.Context) error {
	pool, err := pgxpool.ParseConfig(s.cfg.URL)
	if err != nil {
		// The parser's error repeats the URL with its password masked.
		return &pulse.Error{Code: pulse.CodeInvalid, Message: "the database URL cannot be read", Hint: "write it as postgres://user:password@host:5432/name", Err: err}
	}
	cfg := pool.ConnConfig
	cfg.DialFunc = dialer.DialContext
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	defaults := map[string]string{
		"application_name":                    "pulse",
		"timezone":                            "UTC",
		"statement_timeout":                   strconv.FormatInt(s.cfg.Timeout.Milliseconds(), 10),
		"idle_in_transaction_session_timeout": strconv.FormatInt(maxIdle.Milliseconds(), 10),
	}
	// bun writes its arguments into the text by these two rules, so they are
	// not for the URL to change.
	cfg.RuntimeParams["standard_conforming_strings"] = "on"
	cfg.RuntimeParams["client_encoding"] = "UTF8"
	for k, v := range defaults {
		if _, ok := cfg.RuntimeParams[k]; !ok {
			cfg.RuntimeParams[k] = v
		}
	}
	pooled, err := behindPooler(ctx, cfg, s.log)
	if err != nil {
		return err
	}
	// bun writes its arguments into the text, so preparing would be wasted.
	plain := cfg.Copy()
	plain.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	sqldb := stdlib.OpenDB(*plain)
	sqldb.SetMaxOpenConns(orDefault(s.cfg.ReadConns, 16))
	sqldb.SetMaxIdleConns(orDefault(s.cfg.ReadConns, 16))
	sqldb.SetConnMaxIdleTime(5 * time.Minute)
	s.reads = bun.NewDB(sqldb, pgdialect.New())

	// The queue's few statements are prepared once a connection instead.
	pool.MaxConns = int32(orDefault(s.cfg.ClaimConns, 8))
	pool.MinConns, pool.MinIdleConns = 0, 0
	pool.MaxConnIdleTime = 5 * time.Minute
	pool.PingTimeout = dialer.Timeout
	if s.claims, err = pgxpool.NewWithConfig(ctx, pool); err != nil {
		return errors.Join(explain("open database", err), s.reads.Close())
	}
	if err := s.Ping(ctx); err != nil {
		s.closeClaims()
		return errors.Join(err, s.reads.Close())
	}
	s.news = startNotifier(cfg.Copy(), s.hub, s.log, s.claims, pooled)
	return nil
}

func orDefault(n, d int) int {
	if n > 0 {
		return n
	}
	return d
}

func (s *Store) closePostgres() error {
	s.news.stop()
	s.closeClaims()
	if err := s.reads.Close(); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}

// closeFor is how long Close waits for statements of the queue under way.
const closeFor = 5 * time.Second

// closeClaims closes the queue's pool. The pool waits for what is under way,
// which on a dead network is long, so beyond closeFor it is left to end by
// itself, as its time-outs make it.
func (s *Store) closeClaims() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.claims.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeFor):
		s.log.Warn("statements of the task queue are still under way; they end by themselves")
	}
}
