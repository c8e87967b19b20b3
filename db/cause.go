package db

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Cause says why a PostgreSQL could not be used, and what to do, as far as the
// error tells; "" where it does not. No password is in it.
func Cause(err error) (cause, fix string) {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return causeOf(server)
	}
	var name *net.DNSError
	var dial *net.OpError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	where := "the server"
	if errors.As(err, &dial) && dial.Addr != nil {
		where = dial.Addr.String()
	}
	switch {
	case errors.As(err, &name):
		return fmt.Sprintf("there is no host named %q", name.Name), "correct the host in database_url (PULSE_DATABASE_URL)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at " + where, "start PostgreSQL there, or correct the host and the port in database_url (PULSE_DATABASE_URL)"
	case errors.Is(err, syscall.ENOENT):
		return "there is no socket at " + where, "start PostgreSQL, or correct the host in database_url (PULSE_DATABASE_URL)"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no way leads to " + where, "check the network, or correct the host in database_url (PULSE_DATABASE_URL)"
	case errors.As(err, &unknown), errors.As(err, &host):
		return "its certificate is not trusted", "name its authority with sslrootcert=FILE in database_url (PULSE_DATABASE_URL)"
	case err != nil && strings.Contains(err.Error(), "server refused TLS"):
		return "it speaks no TLS", "write sslmode=disable into database_url (PULSE_DATABASE_URL) if the network is yours alone"
	case isTimeout(err):
		return where + " does not answer", "check the host, the port and the firewall before it, and database_url (PULSE_DATABASE_URL)"
	}
	return "", ""
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

func causeOf(e *pgconn.PgError) (cause, fix string) {
	const where = " in database_url (PULSE_DATABASE_URL)"
	switch {
	case e.Code == "28P01":
		return "the password is not that of the user", "correct the user and the password" + where
	case e.Code == "28000":
		return "the server lets this user in from here in no way: " + e.Message, "correct the user" + where + ", or allow it in pg_hba.conf"
	case e.Code == "3D000":
		return e.Message, "make it with `createdb`, or correct the name" + where
	case e.Code == "42501":
		return e.Message, "give the user of database_url (PULSE_DATABASE_URL) the right to make tables: GRANT CREATE ON SCHEMA public"
	case e.Code == "53300":
		return "it has no connection left: " + e.Message, "raise max_connections, or end other programs that use it"
	case e.Code == "57P03":
		return e.Message, "wait until the server has started, and look into its log if it does not"
	case strings.HasPrefix(e.Code, "53"):
		return e.Message, "give the server more of what it lacks"
	}
	return e.Message, ""
}
