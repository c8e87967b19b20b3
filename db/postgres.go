package db

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
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

func (s *Store) openPostgres(ctx context.Context) error {
	cfg, err := pgx.ParseConfig(s.cfg.URL)
	if err != nil {
		// The parser's error repeats the URL with its password masked.
		return &pulse.Error{Code: pulse.CodeInvalid, Message: "the database URL cannot be read", Hint: "write it as postgres://user:password@host:5432/name", Err: err}
	}
	cfg.DialFunc = dialer.DialContext
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	defaults := map[string]string{
		"application_name":                    "pulse",
		"timezone":                            "UTC",
		"statement_timeout":                   strconv.FormatInt(s.cfg.Timeout.Milliseconds(), 10),
		"idle_in_transaction_session_timeout": strconv.FormatInt(2*s.cfg.Timeout.Milliseconds(), 10),
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
	// bun writes its arguments into the text, so preparing would be wasted.
	plain := cfg.Copy()
	plain.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	sqldb := stdlib.OpenDB(*plain)
	sqldb.SetMaxOpenConns(orDefault(s.cfg.ReadConns, 16))
	sqldb.SetMaxIdleConns(orDefault(s.cfg.ReadConns, 16))
	sqldb.SetConnMaxIdleTime(5 * time.Minute)
	s.reads = bun.NewDB(sqldb, pgdialect.New())

	// The queue's few statements are prepared once a connection instead.
	s.claims = stdlib.OpenDB(*cfg)
	s.claims.SetMaxOpenConns(orDefault(s.cfg.ClaimConns, 8))
	s.claims.SetMaxIdleConns(orDefault(s.cfg.ClaimConns, 8))
	s.claims.SetConnMaxIdleTime(5 * time.Minute)
	if err := s.Ping(ctx); err != nil {
		return errors.Join(err, s.reads.Close(), s.claims.Close())
	}
	s.news = startNotifier(cfg.Copy(), s.hub, s.log, s.claims)
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
	if err := errors.Join(s.reads.Close(), s.claims.Close()); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}
