package command

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// keepBlock is the unit in which the oldest text is dropped.
const keepBlock = 32 << 10

// keeper holds the last MaxText bytes of a text, a block more or less. Blocks
// make dropping cheap without a buffer of twice the size.
type keeper struct {
	blocks  []string
	current strings.Builder
	size    int
	dropped int64
}

func (k *keeper) add(s string) {
	if k.current.Len() == 0 {
		k.current.Grow(keepBlock)
	}
	k.current.WriteString(s)
	k.size += len(s)
	if k.current.Len() >= keepBlock/2 {
		k.blocks = append(k.blocks, k.current.String())
		k.current.Reset()
	}
	for k.size > MaxText && len(k.blocks) > 1 {
		k.size -= len(k.blocks[0])
		k.dropped += int64(len(k.blocks[0]))
		k.blocks[0] = ""
		k.blocks = k.blocks[1:]
	}
}

// String gives what was kept, and says so if it is not all.
func (k *keeper) String() string {
	if k.dropped == 0 {
		return strings.Join(append(k.blocks, k.current.String()), "")
	}
	kept := append([]string{""}, k.blocks...)
	kept = append(kept, k.current.String())
	first := kept[1]
	for len(first) > 0 && !utf8.RuneStart(first[0]) {
		first = first[1:]
	}
	kept[0], kept[1] = fmt.Sprintf("[... the first %d bytes are left out ...]\n", k.dropped), first
	return strings.Join(kept, "")
}
