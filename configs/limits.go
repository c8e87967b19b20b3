package configs

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limits is what one run of an agent may take, with everything it starts. 0
// is no limit.
type Limits struct {
	Memory    Size `yaml:"memory"`     // of all its processes together; also a part of the machine's, such as 75%
	Processes int  `yaml:"processes"`  // at once, each thread counted
	Written   Size `yaml:"written"`    // to disks, all in all
	FileSize  Size `yaml:"file_size"`  // of one file
	OpenFiles int  `yaml:"open_files"` // of one process
}

// defaultLimits are far above what builds and tests of large projects take:
// they are for what has gone wrong.
func defaultLimits() Limits {
	return Limits{Memory: "75%", Processes: 4096, Written: "100GiB", FileSize: "20GiB", OpenFiles: 65536}
}

// Amounts are the sizes of Limits in bytes.
type Amounts struct{ Memory, Written, FileSize uint64 }

// Amounts gives them for a machine with that much memory.
func (l Limits) Amounts(memory uint64) (a Amounts, err error) {
	var errs [3]error
	a.Memory, errs[0] = l.Memory.Bytes(memory)
	a.Written, errs[1] = l.Written.Bytes(0)
	a.FileSize, errs[2] = l.FileSize.Bytes(0)
	if err = errors.Join(errs[:]...); err != nil {
		err = fmt.Errorf("read the limits of agents: %w", err)
	}
	return a, err
}

// Size is an amount of bytes as people write it: 512MiB, 20GiB, 75%. Empty is
// 0.
type Size string

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"", 1}}

// Bytes gives the number; a percentage is one of whole.
func (s Size) Bytes(whole uint64) (uint64, error) {
	text, unit := strings.TrimSpace(string(s)), 1.0
	if share, ok := strings.CutSuffix(text, "%"); ok {
		text, unit = share, float64(whole)/100
	} else {
		for _, u := range sizeUnits {
			if rest, ok := strings.CutSuffix(text, u.suffix); ok {
				text, unit = rest, u.bytes
				break
			}
		}
	}
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || n < 0 || math.IsNaN(n) || n*unit >= math.MaxInt64 {
		return 0, errors.New("not a size such as 512MiB or 20GiB")
	}
	return uint64(n * unit), nil
}

func (c Config) validateLimits(bad func(string, string, ...any)) {
	for _, one := range []struct {
		key   string
		size  Size
		least uint64
	}{{"memory", c.Limits.Memory, 64 << 20}, {"written", c.Limits.Written, 1 << 20}, {"file_size", c.Limits.FileSize, 1 << 20}} {
		n, err := one.size.Bytes(math.MaxInt64)
		switch {
		case err != nil:
			bad("limits."+one.key, "%q is %w; 0 for no limit", string(one.size), err)
		case strings.HasSuffix(string(one.size), "%") && (one.key != "memory" || n > math.MaxInt64/100*95):
			bad("limits."+one.key, "is %q; a percentage is for memory alone, up to 95%%", string(one.size))
		case n != 0 && n < one.least:
			bad("limits."+one.key, "is %q, with which no agent could work; write at least %dMiB, or 0 for no limit", string(one.size), one.least>>20)
		}
	}
	if n := c.Limits.Processes; n != 0 && n < 16 {
		bad("limits.processes", "is %d, with which no agent could work; write at least 16, or 0 for no limit", n)
	}
	if n := c.Limits.OpenFiles; n != 0 && n < 64 {
		bad("limits.open_files", "is %d, with which no agent could work; write at least 64, or 0 for no limit", n)
	}
}
