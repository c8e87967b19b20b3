// Package notify owns the words that go out: how an outcome is worded
// (Words), the live message of a running iteration (Progress), and the
// sending of what waits in the outbox (Dispatcher).
//
// It never decides anything about a session, never talks to a platform
// itself (that is a Sender), and never holds a database transaction. What
// agents and people wrote is data to it: it is cleaned of control characters,
// redacted, and never read as markup.
//
// Words is a value and may be used from anywhere. Progress and Dispatcher
// each run once a process; several processes may share an outbox, because
// every claim is a lease.
package notify
