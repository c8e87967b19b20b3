// Package worktree owns git: the person's repository, a bare store of our own
// for each repository, and the tree an agent works in.
//
// Three stores keep an agent's git away from ours. The person's repository is
// read when a tree is made and gains one branch per tree; nothing else in it
// changes. Our store (repos/<id>/store.git) is cloned from it and borrows from
// nobody, so the person's garbage collection cannot break it. The agent's tree
// (worktrees/<key>) has a whole .git directory of its own, which borrows
// objects from our store and with which the agent may do what it likes.
//
// No git process of ours ever runs with the agent's .git directory. Its refs
// are parsed here, its objects are copied here (regular files only, under a
// cap) into a repository of ours, and the store fetches from that copy with
// fsck on. So its config, hooks, filters, alternates and links have nobody to
// talk to. Its uncommitted files are added with our index, our GIT_DIR and
// attributes that store every file byte for byte. After each checkpoint the
// tree gets a new .git directory, so nothing planted there lives on.
//
// The package never decides when to checkpoint or what to publish where, never
// pushes, never checks anything out in the person's repository, never runs a
// hook and never removes work that is in no ref.
//
// All methods of Trees may be called at once, also from several processes on
// one data directory: work is serialised by repository, with a lock file that
// the kernel releases when its holder dies. Checkpoint, Diff and Remove read
// the tree and must be called when the agent's processes are dead.
package worktree
