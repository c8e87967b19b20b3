// Package db is the one store behind every interface of the policy packages:
// sessions, iterations, the task queue, turns, gates, events, outgoing and
// incoming messages, people. It runs on PostgreSQL and on SQLite with the
// same meaning, shown by one suite (dbtest) on both.
//
// It owns the rows, the transactions, the leases and the wake-ups. It never
// decides what happens next: a decision arrives as a pulse.Change and is
// written whole or not at all. Row types stay in here; callers see only the
// types of package pulse.
//
// A *Store may be used by many goroutines at once. On SQLite every write goes
// through one goroutine that commits waiting writes as a group; reads run
// beside it. On PostgreSQL each write is a transaction of its own, but for
// results of tasks that come while others are being written, which go
// together; rows are locked in the order session, task. The queue has a pool
// of its own, of pgx itself; everything else goes through bun.
package db
