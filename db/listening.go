package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// checkEvery is how long nothing may come before the listening connection is asked whether it is there. The kernel notices a
// peer that is gone, but not one behind a proxy or a firewall that goes on answering for it.
const checkEvery = 15 * time.Second

// next waits for a notification, for as long as the connection lives.
func (n *notifier) next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, checkEvery)
		note, err := conn.WaitForNotification(wait)
		quiet := wait.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !quiet || conn.IsClosed() {
			return note, err
		}
		asked, cancel := context.WithTimeout(ctx, dialer.Timeout)
		err = conn.Ping(asked)
		cancel()
		if err != nil {
			return nil, err
		}
	}
}
