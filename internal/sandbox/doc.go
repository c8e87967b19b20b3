// Package sandbox puts a command behind walls: it writes only where it was
// told it may, cannot read what was hidden from it, cannot see into or signal
// the processes outside, and has no privileges, also when it runs as root. What
// it starts is held by the same walls, whatever session or group it moves to.
//
// It owns two kinds of walls. Landlock is a promise that the command makes to
// the kernel before it begins, where proc can have it made, and through a
// second start of our own program elsewhere (see Main). Bubblewrap gives it a file system, a /tmp and a process table of its
// own. The package never decides which level is wanted, never falls back to a
// weaker one, never starts the command itself and never restricts the network.
//
// The difference that remains: a directory on the way to a hidden path can be
// entered but not listed under Landlock, and what is created in it after the
// start cannot be read; who knows the name of a file, hidden or not, can ask
// for its size and change its mode and times, as far as its owner may; and
// sockets that lie in the file system can be connected to, before Linux 7.1.
// It may also write to terminals of its user, because it makes some for itself.
// Under Bubblewrap none of this is so, but a hidden path that does not exist at
// the start is not hidden when it comes to exist later.
//
// Neither knows a second way to the same files: another mount of the same
// disk, or a hard link that was there before. The environment and the open
// files of the command are its starter's matter.
//
// All functions and methods may be called at once.
package sandbox
