package secret

import (
	"slices"
	"strings"
)

// values finds texts that are known beforehand. What does not begin like one
// of them, which is nearly everything, costs one look at a small table a
// byte.
type values struct {
	forms   []string            // the longest first
	starts  [1 << 9]uint64      // a bit for what three bytes may begin a form
	begin   map[[3]byte][]int32 // the forms by their first three bytes, in order
	longest int
}

// newValues wants forms of three bytes at least, sorted by length, the
// longest first: where two begin at the same place, the whole must go.
func newValues(forms []string) *values {
	v := &values{forms: forms, begin: map[[3]byte][]int32{}}
	for n, f := range forms {
		v.longest = max(v.longest, len(f))
		key := [3]byte{f[0], f[1], f[2]}
		v.begin[key] = append(v.begin[key], int32(n))
		h := hash(uint32(f[0])<<16 | uint32(f[1])<<8 | uint32(f[2]))
		v.starts[h>>6] |= 1 << (h & 63)
	}
	return v
}

// hash spreads three bytes over the table's bits.
func hash(three uint32) uint32 { return (three * 0x9E3779B1) >> 17 }

// next is the first form in s from i on: where it begins and ends.
func (v *values) next(s string, i int) (begin, end int, ok bool) {
	if i+3 > len(s) || len(v.forms) == 0 {
		return 0, 0, false
	}
	three := uint32(s[i])<<8 | uint32(s[i+1])
	for k := i + 2; k < len(s); k++ {
		three = (three<<8 | uint32(s[k])) & 0xFFFFFF
		h := hash(three)
		if v.starts[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		at := k - 2
		for _, n := range v.begin[[3]byte{s[at], s[at+1], s[at+2]}] {
			if strings.HasPrefix(s[at:], v.forms[n]) {
				return at, at + len(v.forms[n]), true
			}
		}
	}
	return 0, 0, false
}

// replace takes every form out of the text.
func (v *values) replace(s string) string {
	begin, end, ok := v.next(s, 0)
	if !ok {
		return s
	}
	var out strings.Builder
	done := 0
	for ok {
		out.WriteString(s[done:begin])
		out.WriteString(Mask)
		done = end
		begin, end, ok = v.next(s, done)
	}
	out.WriteString(s[done:])
	return out.String()
}

// sortForms puts the longest first, each once.
func sortForms(forms []string) []string {
	slices.SortFunc(forms, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(forms)
}
