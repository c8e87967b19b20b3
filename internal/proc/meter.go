package proc

import "time"

// Work is what a family of processes has done in a while.
type Work struct {
	CPU   time.Duration // of all of them, user and system
	Bytes int64         // read and written through system calls, sockets that are read as files included

	// Starved is for how long one thread of the family, the one that it
	// happened to most, wanted to run and had no processor. A family whose
	// work is done by many short-lived processes is starved more than it says.
	Starved time.Duration
}
