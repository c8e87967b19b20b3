// Package matrix holds the real program against agents that behave as badly
// as agents do, and against healthy ones that look as if they did not: what
// becomes of session and iteration, how soon, how much memory the program
// takes for it, and that no process stays, not even when the program itself
// is killed meanwhile.
package matrix
