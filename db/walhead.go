package db

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"os"
)

// Of https://sqlite.org/fileformat2.html, section 4: the log begins with eight big-endian words, of which the fifth and sixth
// are salts, the last two a sum over the others. Frames follow, each a head of six words and a page; the second word is not
// zero where a commit ends, then come the salts again, and a sum over all since the beginning. The magic's last bit says in
// which byte order the summed words are read.
const (
	logHead   = 32
	logMagic  = 0x377f0682
	frameHead = 24
	mostPage  = 64 << 10
)

// logSum is the running sum of a log.
type logSum struct {
	order binary.ByteOrder
	a, b  uint32
}

func (s *logSum) add(words []byte) {
	for i := 0; i+8 <= len(words); i += 8 {
		s.a += s.order.Uint32(words[i:]) + s.b
		s.b += s.order.Uint32(words[i+4:]) + s.a
	}
}

func (s *logSum) is(sum []byte) bool {
	return binary.BigEndian.Uint32(sum) == s.a && binary.BigEndian.Uint32(sum[4:]) == s.b
}

// soundLog reports whether SQLite will read all of a write-ahead log. It reads up to the first frame that is not in order, and
// takes a log whose head is not for an empty one: what was committed beyond is gone without a word.
//
// The end of a log may be torn by a power cut while its last commit was written. But a commit begins only when the one before is
// on the disk: where two commits end after the first frame that is not in order, that frame was in order once. A log that is
// too short for a head, or never got one, is empty indeed.
func soundLog(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true // to open the database says what is wrong
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	head := make([]byte, logHead)
	if _, err := io.ReadFull(r, head); err != nil || bytes.Equal(head, make([]byte, logHead)) {
		return true
	}
	magic, page := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[8:])
	sum := logSum{order: binary.LittleEndian}
	if magic&1 == 1 {
		sum.order = binary.BigEndian
	}
	sum.add(head[:logHead-8])
	if magic&^1 != logMagic || !sum.is(head[logHead-8:]) || page > mostPage {
		return false
	}
	frame, whole, later := make([]byte, frameHead+page), true, 0
	for {
		if _, err := io.ReadFull(r, frame); err != nil {
			return later < 2
		}
		ours := bytes.Equal(frame[8:16], head[16:24])
		if whole && ours {
			sum.add(frame[:8])
			sum.add(frame[frameHead:])
		}
		whole = whole && ours && sum.is(frame[16:])
		if !whole && ours && binary.BigEndian.Uint32(frame[4:]) != 0 {
			later++
		}
	}
}
