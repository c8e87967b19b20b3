package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const someSmaps = `00400000-01181000 r-xp 00000000 fe:00 10175297                           /opt/my pulse/pulse
Size:              13828 kB
Rss:               11888 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
Swap:                  0 kB
Locked:                0 kB
VmFlags: rd ex mr mw me
01181000-01fe0000 r--p 00d81000 fe:00 10175297                           /opt/my pulse/pulse
Rss:               10928 kB
Private_Dirty:         4 kB
Anonymous:             4 kB
Swap:                  0 kB
01fe0000-020a8000 rw-p 01be0000 fe:00 10175297                           /opt/my pulse/pulse
Rss:                 608 kB
Anonymous:             0 kB
020a8000-020b8000 r--p 01be0000 fe:00 10175297                           /opt/my pulse/pulse
Rss:                   8 kB
Anonymous:             0 kB
Swap:                  4 kB
7eb03c00000-7eb04400000 rw-p 00000000 00:00 0
Rss:                4636 kB
7f8194440000-7f8194610000 r-xp 00000000 fe:00 77                         /usr/lib/libc.so.6
Rss:                1556 kB
Anonymous:             0 kB
7f8194618000-7f8194620000 r--s 00000000 fe:00 10175297                   /opt/my pulse/pulse
Rss:                  32 kB
7ffd8cbf0000-7ffd8cbf4000 r--p 00000000 00:00 0                          [vvar]
`

// Pages of the program's own file are given back; a page that somebody wrote
// to (the dynamic linker, a debugger), and what is not of that file, is not.
func TestOnlyUnchangedPagesOfTheProgramAreGivenBack(t *testing.T) {
	got := cleanSpans(someSmaps, "/opt/my pulse/pulse")
	if want := []span{{0x400000, 0x1181000}}; !slices.Equal(got, want) {
		t.Errorf("spans %x, want %x", got, want)
	}
	if got := cleanSpans(someSmaps, "/opt/other"); len(got) != 0 {
		t.Errorf("spans of a file that is not mapped: %x", got)
	}
}

func TestGivingBackShrinksTheProcessAndItGoesOn(t *testing.T) {
	before := residentFile(t)
	if err := unmapOwnFile(); err != nil {
		t.Fatal(err)
	}
	after := residentFile(t)
	if after >= before {
		t.Errorf("%d kB of files before, %d kB after", before, after)
	}
	if !strings.Contains(newRoot(&options{terminal: systemTerminal()}).UsageString(), "pulse") {
		t.Error("the program does not go on as before")
	}
}

func residentFile(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "RssFile:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kb
		}
	}
	t.Fatal("no RssFile in /proc/self/status")
	return 0
}
