// Package agenttest is what a daemon needs from the outside, in memory: a
// queue of tasks with leases on a clock, fencing tokens, cancelling, handing
// back and finishing once, which is also the registry and the waker, and a
// Backend whose agent is a shell script.
//
// The queue behaves as a store does, and besides reports to the test what a
// daemon must never do: write long after it was told that its claim is gone,
// append before the task runs, number deltas with gaps (unless faults are set), give two blocks one
// place, refer to a turn that was never stored, finish twice with different
// facts. All methods may be called from several goroutines at once.
package agenttest
