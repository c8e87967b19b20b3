package db

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"pulseloop/pulse"
)

// ownTimeouts are what the server is told so that it ends what the program has given up. The program bounds each call by
// itself, so a pooler may refuse them.
var ownTimeouts = []string{"statement_timeout", "idle_in_transaction_session_timeout"}

// behindPooler makes a connection to learn who answers at the address: PostgreSQL, or a pooler such as PgBouncer, which may
// give each transaction to another connection of its own. Then nothing may be kept in a connection, prepared statements above
// all, and cfg is changed so that nothing is; nor does it keep what such a pooler refuses to be told.
func behindPooler(ctx context.Context, cfg *pgx.ConnConfig, log *slog.Logger) (bool, error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	for ; err != nil; conn, err = pgx.ConnectConfig(ctx, cfg) {
		name, refused := refusedParameter(err)
		if !refused {
			return false, explain("open database", err)
		}
		if _, there := cfg.RuntimeParams[name]; !there || !slices.Contains(ownTimeouts, name) {
			return false, &pulse.Error{Code: pulse.CodeInvalid, Message: "the connection pooler before the database refuses the parameter " + name + " of the database URL",
				Hint: "set it for the role instead (ALTER ROLE ... SET " + name + " = ...), or use the address of PostgreSQL itself", Err: err}
		}
		delete(cfg.RuntimeParams, name)
	}
	defer conn.Close(context.WithoutCancel(ctx)) // nothing is under way on it
	var backend uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&backend); err != nil {
		return false, explain("open database", err)
	}
	if backend == conn.PgConn().PID() {
		return false, nil
	}
	log.Debug("the database is behind a connection pooler")
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	return true, nil
}

// refusedParameter is the name in the refusal of PgBouncer.
func refusedParameter(err error) (string, bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return "", false
	}
	_, name, found := strings.Cut(e.Message, "unsupported startup parameter: ")
	return strings.TrimSpace(name), found
}

// errDeaf: notifications do not come over this connection.
var errDeaf = errors.New("the connection pooler before the database passes no notifications on")

// hearsFor is how long a notification to ourselves is waited for.
const hearsFor = 3 * time.Second

// hears finds out whether notifications come through a pooler: where each transaction may have another connection, they come to
// whoever has the listening one by then. It tries a channel of its own, so that what stays of a vain try is nobody's.
func (n *notifier) hears(ctx context.Context, conn *pgx.Conn) error {
	channel := "pulse_" + strings.ReplaceAll(pulse.NewUUID(time.Now()), "-", "")
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, hearsFor)
	defer cancel()
	if err := n.say(short, channel, ""); err != nil {
		return err
	}
	note, err := conn.WaitForNotification(short)
	switch {
	case err == nil && note.Channel == channel:
		_, err := conn.Exec(ctx, "UNLISTEN "+channel)
		return err
	case err == nil || ctx.Err() == nil && short.Err() != nil:
		return errDeaf
	}
	return err
}
