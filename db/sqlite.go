package db

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"pulseloop/pulse"
)

// minSQLite is the first version without the defect by which a reset of the
// write-ahead log could lose commits.
const minSQLite = "3.51.3"

// liteFile is an open SQLite database: one writing connection behind the
// writer, and the lock that keeps other processes out.
type liteFile struct {
	path   string
	lock   *fileLock
	db     *bun.DB // of the writer alone
	writer *writer
}

func (s *Store) openSQLite(ctx context.Context) (err error) {
	if s.cfg.Path == "" {
		return pulse.Invalid("no database file is named", "set data_dir or PULSE_DATABASE_URL")
	}
	path, err := filepath.Abs(s.cfg.Path)
	if err != nil {
		return fmt.Errorf("find database file: %w", err)
	}
	lock, err := lockFile(path)
	if err != nil {
		return err
	}
	f := &liteFile{path: path, lock: lock}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.abandon(s.reads))
		}
	}()
	if err := f.inspect(); err != nil {
		return err
	}
	if f.db, err = openLite(path, false, 1); err != nil {
		return err
	}
	conn, err := f.db.Conn(ctx)
	if err != nil {
		return explain("open database file", err)
	}
	if err := f.check(ctx, conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	f.writer = newWriter(conn)
	readers := s.cfg.ReadConns
	if readers <= 0 {
		readers = 4
	}
	if s.reads, err = openLite(path, true, readers); err != nil {
		return err
	}
	if err := f.lock.mark(stateOpen); err != nil {
		return err
	}
	s.lite = f
	return nil
}

func openLite(path string, readOnly bool, conns int) (*bun.DB, error) {
	q := url.Values{}
	for _, p := range []string{"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"} {
		q.Add("_pragma", p)
	}
	q.Set("_txlock", "immediate")
	q.Set("_time_format", "sqlite")
	if readOnly {
		q.Set("_query_only", "1")
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, fmt.Errorf("open database file: %w", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return bun.NewDB(db, sqlitedialect.New()), nil
}

// inspect refuses what SQLite would take for an empty database or repair by
// forgetting: a missing file, a missing write-ahead log, something else.
func (f *liteFile) inspect() error {
	size, err := fileSize(f.path)
	if err != nil {
		return err
	}
	wal, err := fileSize(f.path + "-wal")
	if err != nil {
		return err
	}
	forget := "restore it, or, to start anew without it, delete " + f.lock.path
	switch {
	case size <= 0 && (f.lock.before != "" || wal > 0):
		return &pulse.Error{Code: pulse.CodeConflict, Message: "the database file " + f.path + " is gone or empty, but pulse has kept data in it", Hint: forget}
	case f.lock.before == stateOpen && wal < 0:
		return &pulse.Error{Code: pulse.CodeConflict, Message: "pulse was not ended in order and the file " + f.path + "-wal with its last writes is gone", Hint: "put it back, or, to go on without those writes, delete " + f.lock.path}
	case size <= 0:
		return nil
	case f.lock.before == stateOpen && !soundLog(f.path+"-wal"):
		return &pulse.Error{Code: pulse.CodeConflict, Message: "pulse was not ended in order and the file " + f.path + "-wal with its last writes is damaged", Hint: "restore it, or, to go on without those writes, delete it and " + f.lock.path}
	}
	head := make([]byte, 16)
	file, err := os.Open(f.path)
	if err != nil {
		return fmt.Errorf("open database file: %w", err)
	}
	defer file.Close()
	if _, err := io.ReadFull(file, head); err != nil || !bytes.Equal(head, []byte("SQLite format 3\x00")) {
		return &pulse.Error{Code: pulse.CodeConflict, Message: "the file " + f.path + " is not a database, or it is damaged", Hint: "restore it from a backup, or move it away", Err: err}
	}
	return nil
}

// fileSize is -1 for a file that does not exist.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at database file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return 0, pulse.Invalid(path+" is not a regular file", "name a file for the database")
	}
	return info.Size(), nil
}

func (f *liteFile) check(ctx context.Context, conn bun.Conn) error {
	var version, mode string
	if err := conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return explain("ask SQLite for its version", err)
	}
	if olderThan(version, minSQLite) {
		return &pulse.Error{Code: pulse.CodeInternal, Message: "SQLite " + version + " can lose committed writes", Hint: "build pulse with SQLite " + minSQLite + " or newer"}
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return explain("open database file", err)
	}
	if mode != "wal" {
		return &pulse.Error{Code: pulse.CodeConflict, Message: "the database file " + f.path + " cannot use a write-ahead log", Hint: "put the data directory on a local disk"}
	}
	// An empty transaction on the header: it finds damage and a read-only
	// file now, and makes sure that the log exists from here on.
	for _, sql := range []string{"BEGIN IMMEDIATE", "SELECT count(*) FROM sqlite_master", "COMMIT"} {
		if _, err := conn.Conn.ExecContext(ctx, sql); err != nil {
			return explain("open database file "+f.path, err)
		}
	}
	return os.Chmod(f.path, 0o600)
}

func olderThan(version, least string) bool {
	have, want := strings.Split(version, "."), strings.Split(least, ".")
	for i := range want {
		if i >= len(have) {
			return true
		}
		h, _ := strconv.Atoi(have[i]) // SQLite's own version is numeric
		w, _ := strconv.Atoi(want[i])
		if h != w {
			return h < w
		}
	}
	return false
}

func (f *liteFile) abandon(readers *bun.DB) error {
	var errs []error
	if readers != nil {
		errs = append(errs, readers.Close())
	}
	if f.writer != nil {
		f.writer.close()
		errs = append(errs, f.writer.conn.Close())
	}
	if f.db != nil {
		errs = append(errs, f.db.Close())
	}
	return errors.Join(append(errs, f.lock.release())...)
}

func (s *Store) closeSQLite() error {
	f := s.lite
	f.writer.close()
	// Before the log disappears with the last connection: a death between
	// the two leaves a log that is simply read again.
	err := f.lock.mark(stateClosed)
	return errors.Join(err, s.reads.Close(), f.writer.conn.Close(), f.db.Close(), f.lock.release())
}

// voidLeases ends what earlier processes held: this one owns the file, so
// they are dead. Their tasks and steps are due at once.
func (s *Store) voidLeases(ctx context.Context) error {
	return s.write(ctx, "void old leases", func(ctx context.Context, w *work) error {
		now := w.now(0)
		for _, sql := range []string{
			"UPDATE inbox_tasks SET lease_until = " + now + " WHERE status IN ('claimed', 'running') AND lease_until > " + now,
			"UPDATE pulse_sessions SET due_at = " + now + ", step_token = NULL, version = version + 1 WHERE step_token IS NOT NULL",
			"UPDATE notifications SET lease_until = " + now + " WHERE status = 'sending' AND lease_until > " + now,
		} {
			if _, err := w.raw.ExecContext(ctx, sql); err != nil {
				return err
			}
		}
		w.wake(pulse.TopicSessions, pulse.TopicTasks)
		return nil
	})
}
