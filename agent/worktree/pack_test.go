package worktree

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// entry makes one entry of a pack: its type, the size it declares, what stands
// between header and content, and the content.
func entry(kind byte, declared int, between, content []byte) []byte {
	var b bytes.Buffer
	c := kind<<4 | byte(declared&15)
	for declared >>= 4; declared > 0; declared >>= 7 {
		b.WriteByte(c | 0x80)
		c = byte(declared & 0x7f)
	}
	b.WriteByte(c)
	b.Write(between)
	z := zlib.NewWriter(&b)
	_, _ = z.Write(content)
	_ = z.Close()
	return b.Bytes()
}

func packOf(entries ...[]byte) []byte {
	b := append([]byte("PACK"), 0, 0, 0, 2)
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	return append(b, bytes.Join(entries, nil)...)
}

func TestPackSize(t *testing.T) {
	delta := func(source, result uint64) []byte {
		return append(binary.AppendUvarint(binary.AppendUvarint(nil, source), result), 1, 'x')
	}
	d, bomb := delta(10, 700), delta(10, 1<<40)
	for name, c := range map[string]struct {
		pack  []byte
		size  int64
		large bool
		bad   bool
	}{
		"empty":           {pack: packOf(), size: 0},
		"blobs":           {pack: packOf(entry(3, 500, nil, make([]byte, 500)), entry(3, 1, nil, []byte("a"))), size: 501},
		"delta by offset": {pack: packOf(entry(ofsDelta, len(d), []byte{0x81, 0x02}, d)), size: 700},
		"delta by id":     {pack: packOf(entry(refDelta, len(d), make([]byte, 20), d)), size: 700},
		"delta bomb":      {pack: packOf(entry(refDelta, len(bomb), make([]byte, 20), bomb)), large: true},
		"declared large":  {pack: packOf(entry(3, 2000, nil, nil)), large: true},
		"large together":  {pack: packOf(entry(3, 600, nil, make([]byte, 600)), entry(3, 600, nil, make([]byte, 600))), large: true},
		"more than said":  {pack: packOf(entry(3, 5, nil, make([]byte, 1<<20))), bad: true},
		"less than said":  {pack: packOf(entry(3, 50, nil, make([]byte, 5))), bad: true},
		"cut":             {pack: packOf(entry(3, 500, nil, make([]byte, 500)))[:20], bad: true},
		"count too high":  {pack: append([]byte("PACK\x00\x00\x00\x02"), 0xff, 0xff, 0xff, 0xff), bad: true},
		"endless size":    {pack: append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), bytes.Repeat([]byte{0xff}, 40)...), large: true},
		"no pack":         {pack: []byte("GIF89a.............."), bad: true},
		"nothing":         {bad: true},
	} {
		size, err := packSize(bytes.NewReader(c.pack), 20, 1000)
		switch {
		case c.large != errors.Is(err, errTooLarge):
			t.Errorf("%s: err = %v", name, err)
		case c.bad != (err != nil && !c.large):
			t.Errorf("%s: err = %v", name, err)
		case err == nil && size != c.size:
			t.Errorf("%s: size = %d, want %d", name, size, c.size)
		}
	}
}

func TestPackSizeAgreesWithGit(t *testing.T) {
	f := newField(t)
	for i := range 5 {
		f.write(f.repo, "big.txt", strings.Repeat("line of text that is worth a delta\n", 300+i))
		f.git(f.repo, "add", "-A")
		f.git(f.repo, "commit", "-q", "-m", "step")
	}
	f.git(f.repo, "repack", "-q", "-a", "-d")
	var want int64
	for _, n := range strings.Fields(f.git(f.repo, "cat-file", "--batch-all-objects", "--batch-check=%(objectsize)")) {
		var v int64
		for _, c := range n {
			v = v*10 + int64(c-'0')
		}
		want += v
	}
	packs, _ := filepath.Glob(filepath.Join(f.repo, ".git/objects/pack/*.pack"))
	in, err := os.Open(packs[0])
	f.must(err)
	defer in.Close()
	if got, err := packSize(in, 20, 1<<40); got != want || err != nil {
		t.Errorf("size = %d, %v; git says %d", got, err, want)
	}
}

// FuzzPackSize holds the reader of hostile packs to: no panic, no endless
// loop, and never more than the limit without saying so.
func FuzzPackSize(f *testing.F) {
	f.Add(packOf(entry(3, 500, nil, make([]byte, 500))))
	f.Add(packOf(entry(ofsDelta, 3, []byte{0x81, 0x02}, []byte{1, 2, 3})))
	f.Add(packOf(entry(refDelta, 3, make([]byte, 20), []byte{1, 2, 3})))
	f.Fuzz(func(t *testing.T, pack []byte) {
		if n, err := packSize(bytes.NewReader(pack), 20, 1<<16); err == nil && n > 1<<16 {
			t.Errorf("%d bytes passed", n)
		}
		_, _ = looseSize(bytes.NewReader(pack))
	})
}
