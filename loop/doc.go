// Package loop owns the decisions about sessions: the use cases by which
// people steer them (start, pause, resume, abort, answer, say) and the
// Runner that takes them from one iteration to the next.
//
// It never holds a transaction, never renders words, never runs an agent and
// names no technology: a decision is a pure function of what was read, and
// returns a pulse.Change that the store writes if its guard still holds. When
// the guard does not hold, the decision is made again on fresh data.
//
// Actions and Runner may be used from many goroutines and many processes at
// once; the store's guards keep them apart.
package loop
