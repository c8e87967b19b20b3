package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// span is a piece of the address space.
type span struct{ from, to uintptr }

// unmapOwnFile takes the pages of the program's file that nobody changed out
// of this process; the next use of one brings it back.
func unmapOwnFile() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program's file: %w", err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read the memory map: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("read the memory map: %w", err)
	}
	var errs []error
	for _, s := range cleanSpans(string(raw), self) {
		if _, _, e := unix.Syscall(unix.SYS_MADVISE, s.from, s.to-s.from, unix.MADV_DONTNEED); e != 0 {
			errs = append(errs, fmt.Errorf("give back %x to %x: %w", s.from, s.to, e))
		}
	}
	return errors.Join(errs...)
}

// cleanSpans finds, in the text of /proc/self/smaps, what is mapped of the
// file, cannot be written to, and holds no page of the process's own: one that
// the dynamic linker or a debugger wrote would be lost.
func cleanSpans(smaps, file string) []span {
	var all []span
	var at span
	ours, clean := false, false
	flush := func() {
		if ours && clean {
			all = append(all, at)
		}
	}
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if from, to, ok := strings.Cut(fields[0], "-"); ok && len(fields) >= 5 {
			flush()
			a, errA := strconv.ParseUint(from, 16, 64)
			b, errB := strconv.ParseUint(to, 16, 64)
			at = span{uintptr(a), uintptr(b)}
			ours = errA == nil && errB == nil && fields[1][1] == '-' && fields[1][3] == 'p' && strings.HasSuffix(strings.TrimSpace(line), " "+file)
			clean = true
			continue
		}
		switch fields[0] {
		case "Anonymous:", "Swap:": // dirty is also what a new file is until it is on disk
			clean = clean && fields[1] == "0"
		}
	}
	flush()
	return all
}
