// Package e2etest starts the real binary for tests: built once a run, each time with a home, a data directory, a
// configuration and a port of its own, and watched until nothing of it is left.
//
// It owns the processes it starts, the sample repositories, and the waiting: there is a deadline to every wait, and what the
// program printed is shown when a test fails. It knows what the program prints where a person has to read it (the pairing
// code), and nothing of its inside.
//
// A Pulse belongs to one test and is used from that test's goroutine; any number of tests may have theirs at once.
package e2etest
