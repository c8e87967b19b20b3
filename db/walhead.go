package db

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
)

// Of https://sqlite.org/fileformat2.html, section 4.1: the log's header is seven big-endian words, the last two a sum over the
// others. The magic's last bit says in which byte order the summed words are read.
const (
	logHead  = 32
	logMagic = 0x377f0682
)

// soundLog reports whether SQLite will read a write-ahead log. One whose header is damaged it takes for an empty one, and what
// was committed to it is gone without a word. A log that is too short for a header, or never got one, is empty indeed.
func soundLog(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true // to open the database says what is wrong
	}
	defer f.Close()
	head := make([]byte, logHead)
	if _, err := io.ReadFull(f, head); err != nil || bytes.Equal(head, make([]byte, logHead)) {
		return true
	}
	magic := binary.BigEndian.Uint32(head)
	if magic&^1 != logMagic {
		return false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if magic&1 == 1 {
		order = binary.BigEndian
	}
	var a, b uint32
	for i := 0; i < logHead-8; i += 8 {
		a += order.Uint32(head[i:]) + b
		b += order.Uint32(head[i+4:]) + a
	}
	return binary.BigEndian.Uint32(head[24:]) == a && binary.BigEndian.Uint32(head[28:]) == b
}
