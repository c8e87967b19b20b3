package db_test

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"pulseloop/db"
	"pulseloop/db/dbtest"
)

// TestWhyPostgreSQLCannotBeUsed opens databases that are wrong in each way, and wants the way named.
func TestWhyPostgreSQLCannotBeUsed(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	check(t, err)
	defer silent.Close()
	cases := map[string][3]string{
		"nobody listens":   {"postgres://pulse:hunter2@127.0.0.1:1/pulse", "nothing listens at 127.0.0.1:1", "start PostgreSQL there"},
		"no such host":     {"postgres://pulse:hunter2@nowhere.invalid/pulse", `no host named "nowhere.invalid"`, "correct the host"},
		"no such socket":   {"postgres://pulse:hunter2@/pulse?host=/nonexistent", "no socket at /nonexistent", "start PostgreSQL"},
		"it does not talk": {"postgres://pulse:hunter2@" + silent.Addr().String() + "/pulse?connect_timeout=1&sslmode=disable", "does not answer", "firewall"},
	}
	place := dbtest.NewPostgres(t)
	if u, err := url.Parse(place.Config.URL); err == nil {
		other := *u
		other.Path = "/missing"
		cases["no such database"] = [3]string{other.String(), `database "missing" does not exist`, "createdb"}
		if _, needed := u.User.Password(); needed {
			other = *u
			other.User = url.UserPassword(u.User.Username(), "hunter2")
			cases["a wrong password"] = [3]string{other.String(), "the password is not that of the user", "the password"}
		}
		q := u.Query()
		q.Set("sslmode", "require")
		other = *u
		other.RawQuery = q.Encode()
		cases["no TLS"] = [3]string{other.String(), "it speaks no TLS", "sslmode=disable"}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := db.Open(t.Context(), db.Config{URL: c[0]})
			if err == nil {
				s.Close()
				t.Skip("this server takes it")
			}
			cause, fix := db.Cause(err)
			if !strings.Contains(cause, c[1]) || !strings.Contains(fix, c[2]) || !strings.Contains(fix, "PULSE_DATABASE_URL") {
				t.Errorf("cause %q, fix %q\n%v", cause, fix, err)
			}
			if strings.Contains(cause+fix, "hunter2") {
				t.Errorf("the password is in %q %q", cause, fix)
			}
		})
	}
}
