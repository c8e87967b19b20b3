// Package proc starts, feeds, reads and ends child processes. Nothing else in
// the product starts one.
//
// It owns the life of a child and of everything the child leaves behind: the
// child runs in a session (and so a process group) of its own, dies with this
// process, and when it ends, whatever it started ends too, found by session,
// by ancestry and by a marker in the environment. It never decides when a
// child has to end, never interprets output, and never inherits environment:
// what a child sees is what its Spec says.
//
// Where a child has walls or limits it is forked here and not by os/exec, so
// that they hold from its first instruction on. What they are is the
// caller's to say.
//
// All functions and methods may be called from several goroutines at once; two
// readers of one Stdout each get part of it. The bookkeeping is process-wide,
// because process ids and the duty to reap are.
//
// Linux has the whole of it. Other Unix systems get groups, escalation and
// bounded pipes, but neither death with the parent nor the search for
// processes that left the group.
package proc
