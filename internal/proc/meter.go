package proc

import "time"

// Work is what a family of processes has done in a while.
type Work struct {
	CPU   time.Duration // of all of them, user and system
	Bytes int64         // read and written through system calls, sockets that are read as files included
}
