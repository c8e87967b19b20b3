package db

import (
	"context"
	"database/sql"
	"strings"
)

// maxPrepared bounds the statements kept. The queue has about twenty; more
// would mean that somebody writes values into their text.
const maxPrepared = 64

// prepared is SQLite's writing connection for statements with bound
// arguments: parsing one takes longer than running it, so each is parsed
// once. The instant of the work that runs is the argument @now. It belongs
// to the writer's goroutine.
type prepared struct {
	conn  *sql.Conn
	known map[string]*sql.Stmt
	work  *work // the one that runs
}

func newPrepared(conn *sql.Conn) *prepared {
	return &prepared{conn: conn, known: map[string]*sql.Stmt{}}
}

// statement gives the parsed statement and its arguments; nil for one that
// is not worth keeping, or that cannot be parsed, which running it will say.
func (p *prepared) statement(ctx context.Context, query string, args []any) (*sql.Stmt, []any) {
	if strings.Contains(query, clockArg) {
		args = append(args[:len(args):len(args)], sql.Named(clockArg[1:], p.work.at.UnixMicro()))
	} else if len(args) == 0 {
		return nil, args
	}
	stmt, ok := p.known[query]
	if ok {
		return stmt, args
	}
	if len(p.known) == maxPrepared {
		return nil, args
	}
	stmt, err := p.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, args
	}
	p.known[query] = stmt
	return stmt, args
}

func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	stmt, args := p.statement(ctx, query, args)
	if stmt == nil {
		return p.conn.ExecContext(ctx, query, args...)
	}
	return stmt.ExecContext(ctx, args...)
}

func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (rawRows, error) {
	stmt, args := p.statement(ctx, query, args)
	if stmt == nil {
		return p.conn.QueryContext(ctx, query, args...)
	}
	return stmt.QueryContext(ctx, args...)
}

func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) rawRow {
	stmt, args := p.statement(ctx, query, args)
	if stmt == nil {
		return p.conn.QueryRowContext(ctx, query, args...)
	}
	return stmt.QueryRowContext(ctx, args...)
}

// control runs a statement that opens or ends a transaction.
func (p *prepared) control(ctx context.Context, query string) error {
	stmt, ok := p.known[query]
	if !ok {
		var err error
		if stmt, err = p.conn.PrepareContext(ctx, query); err != nil {
			return err
		}
		p.known[query] = stmt
	}
	_, err := stmt.ExecContext(ctx)
	return err
}

func (p *prepared) close() {
	for _, stmt := range p.known {
		stmt.Close() // the connection is closed next, and reports what is wrong with it
	}
}
