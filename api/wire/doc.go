// Package wire holds the JSON forms of the API: requests, rows, frames and
// errors, with the conversions from the words of package pulse.
//
// It owns names and shapes on the wire and nothing else: no I/O, no checks
// of who may do what. Requests are in camelCase, rows carry their columns'
// names. All types are plain values, safe for use by many goroutines as long
// as a value is not written concurrently.
package wire

import "time"

// at gives a time for the wire: UTC, and null for the zero time.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	u := t.UTC()
	return &u
}

// list gives an empty slice for nil, because readers in other languages
// expect an array and not null.
func list[T any](in []T) []T {
	if in == nil {
		return []T{}
	}
	return in
}
