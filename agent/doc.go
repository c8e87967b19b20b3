// Package agent owns the hands: the daemon that claims tasks, makes the
// worktree ready, runs an agent CLI in it, stores what the agent does while
// it does it, checkpoints the tree, and reports facts.
//
// It decides nothing about sessions: what a result means is loop's matter. It
// names no database and no CLI: work comes from Queue, agents are
// cli.Backends handed to it by name.
//
// A Daemon runs as many tasks at once as it has slots, but never two of one
// session, whose tree they would share. Whatever it writes is fenced by the
// token of the claim; it ends its agent before the claim's lease does. What is
// stored or observed has gone through the redactor.
package agent
