package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rawConn is a connection past bun, for statements with bound arguments.
type rawConn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (rawRows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) rawRow
}

type rawRow interface{ Scan(into ...any) error }

type rawRows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
	Close() error
}

// sqlConn is a rawConn over database/sql: a transaction of bun's.
type sqlConn struct {
	to interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
}

func (c sqlConn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return c.to.ExecContext(ctx, query, args...)
}

func (c sqlConn) QueryContext(ctx context.Context, query string, args ...any) (rawRows, error) {
	return c.to.QueryContext(ctx, query, args...)
}

func (c sqlConn) QueryRowContext(ctx context.Context, query string, args ...any) rawRow {
	return c.to.QueryRowContext(ctx, query, args...)
}

// pgxConn is a rawConn of pgx itself, a pool or a transaction. Beside database/sql
// it saves a goroutine a statement, and a conversion each way of every value.
type pgxConn struct {
	to interface {
		Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
		QueryRow(ctx context.Context, query string, args ...any) pgx.Row
	}
	tries int // how often a statement that never reached the server is sent
}

func poolConn(p *pgxpool.Pool) pgxConn { return pgxConn{to: p, tries: maxSent} }
func txConn(tx pgx.Tx) pgxConn         { return pgxConn{to: tx, tries: 1} }

// maxSent is how many connections a statement is tried on: each of the pool
// may have died since it was last used.
const maxSent = 4

// sent runs fn again, on another connection, as long as what it sends cannot
// have reached the server. Whatever may have been received is never repeated.
func sent(ctx context.Context, tries int, fn func() error) error {
	err := fn()
	for n := 1; n < tries && err != nil && pgconn.SafeToRetry(err) && ctx.Err() == nil; n++ {
		err = fn()
	}
	return err
}

func (c pgxConn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	var tag pgconn.CommandTag
	err := sent(ctx, c.tries, func() (err error) {
		tag, err = c.to.Exec(ctx, query, args...)
		return err
	})
	return driver.RowsAffected(tag.RowsAffected()), err
}

func (c pgxConn) QueryContext(ctx context.Context, query string, args ...any) (rawRows, error) {
	var found pgx.Rows
	err := sent(ctx, c.tries, func() (err error) {
		found, err = c.to.Query(ctx, query, args...)
		return err
	})
	return pgxRows{found}, err
}

func (c pgxConn) QueryRowContext(ctx context.Context, query string, args ...any) rawRow {
	return pgxRow{conn: c, ctx: ctx, query: query, args: args}
}

// pgxRow runs its statement when it is read: only then it is known whether the
// statement was sent.
type pgxRow struct {
	conn  pgxConn
	ctx   context.Context
	query string
	args  []any
}

func (r pgxRow) Scan(into ...any) error {
	return sent(r.ctx, r.conn.tries, func() error {
		return r.conn.to.QueryRow(r.ctx, r.query, r.args...).Scan(into...)
	})
}

type pgxRows struct{ pgx.Rows }

func (r pgxRows) Close() error {
	r.Rows.Close()
	return r.Rows.Err()
}

// key reads a UUID, NULL as "", in the forms of both databases.
type key string

// Scan reads text.
func (k *key) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*k = ""
	case string:
		*k = key(v)
	case []byte:
		*k = key(v)
	default:
		return fmt.Errorf("read key: %T is no text", src)
	}
	return nil
}

// ScanUUID spares PostgreSQL the cast to text.
func (k *key) ScanUUID(v pgtype.UUID) error {
	*k = key(v.String())
	return nil
}

// ScanTimestamptz is Scan without a detour over database/sql's values.
func (t *stamp) ScanTimestamptz(v pgtype.Timestamptz) error {
	t.Time = time.Time{}
	if v.Valid {
		t.Time = v.Time.UTC()
	}
	return nil
}

// ScanBytes is Scan without a detour over database/sql's values.
func (d *doc[T]) ScanBytes(v []byte) error {
	var zero T
	d.V = zero
	if len(v) <= len("{}") { // NULL, or an object with nothing in it
		return nil
	}
	return json.Unmarshal(v, &d.V)
}
