package worktree

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// errTooLarge means that what the agent stored would unpack to more than the cap.
var errTooLarge = errors.New("larger than allowed")

// Types of pack entries that say where their base is.
const (
	ofsDelta = 6
	refDelta = 7
)

// packSize adds up what the objects of a pack unpack to, without keeping any
// of it. A small pack can unpack to any size, and git would hold the largest
// object in memory, so this is asked before git sees the pack.
func packSize(r io.Reader, idBytes int, limit int64) (int64, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	var head [12]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return 0, fmt.Errorf("read pack header: %w", err)
	}
	if v := binary.BigEndian.Uint32(head[4:]); string(head[:4]) != "PACK" || v != 2 && v != 3 {
		return 0, errors.New("read pack header: not a pack")
	}
	var total int64
	inflate, _ := zlib.NewReader(bytes.NewReader(emptyZlib))
	for range binary.BigEndian.Uint32(head[8:]) {
		n, err := entrySize(br, inflate, idBytes, limit)
		if err != nil {
			return 0, err
		}
		if total += n; total > limit {
			return total, errTooLarge
		}
	}
	return total, nil
}

// emptyZlib is a stream of nothing, to have an inflater to reset.
var emptyZlib = []byte{0x78, 0x9c, 0x03, 0x00, 0x00, 0x00, 0x00, 0x01}

// entrySize gives the size an entry unpacks to: its own, or for a delta that of
// the object it makes. The declared size is checked against the content.
func entrySize(br *bufio.Reader, inflate io.ReadCloser, idBytes int, limit int64) (int64, error) {
	kind, size, err := entryHeader(br, idBytes)
	if err != nil {
		return 0, fmt.Errorf("read pack entry: %w", err)
	}
	if size > limit {
		return size, errTooLarge
	}
	if err := inflate.(zlib.Resetter).Reset(br, nil); err != nil {
		return 0, fmt.Errorf("read pack entry: %w", err)
	}
	var start bytes.Buffer // the two sizes a delta begins with
	in := io.LimitReader(inflate, size+1)
	n, err := io.CopyN(&start, in, 20)
	if err == nil {
		var more int64
		more, err = io.Copy(io.Discard, in)
		n += more
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read pack entry: %w", err)
	}
	if n != size {
		return 0, fmt.Errorf("read pack entry: it unpacks to %d bytes or more, %d declared", n, size)
	}
	if kind != ofsDelta && kind != refDelta {
		return size, nil
	}
	_, err1 := binary.ReadUvarint(&start)
	result, err2 := binary.ReadUvarint(&start)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("read delta sizes: %w", err)
	}
	if result > uint64(limit) {
		return limit, errTooLarge
	}
	return int64(result), nil
}

func entryHeader(br *bufio.Reader, idBytes int) (kind byte, size int64, err error) {
	c, err := br.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	kind, size = c>>4&7, int64(c&15)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if c, err = br.ReadByte(); err != nil {
			return 0, 0, err
		}
		if shift > 53 {
			return 0, 0, errTooLarge
		}
		size |= int64(c&0x7f) << shift
	}
	switch kind {
	case ofsDelta:
		for c = 0x80; c&0x80 != 0 && err == nil; {
			c, err = br.ReadByte()
		}
	case refDelta:
		_, err = br.Discard(idBytes)
	}
	return kind, size, err
}

// looseSize gives the size a loose object says it unpacks to. Git refuses an
// object that unpacks to another.
func looseSize(r io.Reader) (int64, error) {
	z, err := zlib.NewReader(bufio.NewReaderSize(r, 512))
	if err != nil {
		return 0, fmt.Errorf("read object header: %w", err)
	}
	head := make([]byte, 64)
	n, err := io.ReadFull(z, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, fmt.Errorf("read object header: %w", err)
	}
	text, _, ok := strings.Cut(string(head[:n]), "\x00")
	_, digits, ok2 := strings.Cut(text, " ")
	size, err := strconv.ParseInt(digits, 10, 64)
	if !ok || !ok2 || err != nil || size < 0 {
		return 0, errors.New("read object header: malformed")
	}
	return size, nil
}
