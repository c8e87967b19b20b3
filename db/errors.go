package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"pulseloop/pulse"
)

// Primary result codes of SQLite, and the extended ones told apart here.
const (
	sqliteError      = 1
	sqliteBusy       = 5
	sqliteReadOnly   = 8
	sqliteIOError    = 10
	sqliteCorrupt    = 11
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteConstraint = 19
	sqliteNotADB     = 26

	sqliteForeignKey = 787
)

// sqliteCode is the extended result code, 0 if err is not SQLite's.
func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// lostRace reports a deadlock or a serialisation failure: nothing was
// written, and the same transaction may well succeed now.
func lostRace(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01")
}

// explain names the operation and gives the errors that a person can do
// something about a message and a hint. What the policy packages decide on
// (sentinels, pulse.Error) stays what it is.
func explain(what string, err error) error {
	var known *pulse.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.Is(err, pulse.ErrStale), errors.Is(err, pulse.ErrFenced),
		errors.Is(err, pulse.ErrDone), errors.Is(err, pulse.ErrNone):
		return err
	}
	if e := explainSQLite(err); e != nil {
		e.Err = fmt.Errorf("%s: %w", what, err)
		return e
	}
	if e := explainPostgres(err); e != nil {
		e.Err = fmt.Errorf("%s: %w", what, err)
		return e
	}
	return fmt.Errorf("%s: %w", what, err)
}

func explainSQLite(err error) *pulse.Error {
	code := sqliteCode(err)
	switch code & 0xff {
	case sqliteFull:
		return &pulse.Error{Code: pulse.CodeUnavailable, Message: "the disk that holds the database is full", Hint: "free some space; pulse goes on by itself"}
	case sqliteIOError, sqliteCantOpen, sqliteReadOnly:
		return &pulse.Error{Code: pulse.CodeUnavailable, Message: "the database file cannot be read or written", Hint: "check the disk and the permissions of the data directory"}
	case sqliteBusy:
		return &pulse.Error{Code: pulse.CodeUnavailable, Message: "the database file is locked by another program", Hint: "close whatever has it open"}
	case sqliteCorrupt, sqliteNotADB:
		return &pulse.Error{Code: pulse.CodeInternal, Message: "the database file is damaged", Hint: "restore it from a backup"}
	case sqliteConstraint:
		if code == sqliteForeignKey {
			return missingRecord()
		}
		return takenRecord()
	case sqliteError:
		switch {
		case strings.Contains(err.Error(), "no such table"):
			return noSchema()
		case strings.Contains(err.Error(), "malformed JSON"):
			return refusedValue()
		}
	}
	return nil
}

func explainPostgres(err error) *pulse.Error {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch {
		case e.Code == "42P01":
			return noSchema()
		case e.Code == "23503":
			return missingRecord()
		case e.Code == "23505":
			return takenRecord()
		case e.Code == "22P02", e.Code == "42804":
			return refusedValue()
		case e.Code == "57014":
			return slow()
		case strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "53"), strings.HasPrefix(e.Code, "08"):
			return unreachable()
		}
		return nil
	}
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled): // who asked has gone
	case errors.As(err, &connect):
		return unreachable()
	case errors.Is(err, context.DeadlineExceeded): // nobody refuses, and nobody answers: a network that swallows, or a lock
		return slow()
	case errors.As(err, &network), errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), strings.Contains(err.Error(), "conn closed"):
		return unreachable()
	}
	return nil
}

func unreachable() *pulse.Error {
	return &pulse.Error{Code: pulse.CodeUnavailable, Message: "the database cannot be reached", Hint: "check that PostgreSQL runs and that PULSE_DATABASE_URL is right"}
}

func slow() *pulse.Error {
	return &pulse.Error{Code: pulse.CodeUnavailable, Message: "the database took too long to answer", Hint: "try again; if it stays so, check the database and the network to it"}
}

func noSchema() *pulse.Error {
	return &pulse.Error{Code: pulse.CodeUnavailable, Message: "the database has no schema of pulse yet", Hint: "run: pulse migrate"}
}

func refusedValue() *pulse.Error {
	return &pulse.Error{Code: pulse.CodeInvalid, Message: "an id is not a UUID, or a value cannot be written as JSON"}
}

func missingRecord() *pulse.Error {
	return &pulse.Error{Code: pulse.CodeInvalid, Message: "a record refers to one that does not exist"}
}

func takenRecord() *pulse.Error {
	return &pulse.Error{Code: pulse.CodeConflict, Message: "a record with this key or name exists already"}
}

// none turns "no rows" into what the caller promised to answer then.
func none(err, instead error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return instead
	}
	return err
}
