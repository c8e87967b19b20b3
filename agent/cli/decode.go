package cli

import (
	"encoding/json"
	"errors"
	"math"

	"pulseloop/pulse"
)

// Decode reads a line into v as far as it fits: fields of an unexpected type
// stay zero. It reports whether the line was a JSON object at all.
func Decode(line []byte, v any) bool {
	if !startsObject(line) {
		return false
	}
	err := json.Unmarshal(line, v)
	var mismatch *json.UnmarshalTypeError
	return err == nil || errors.As(err, &mismatch)
}

// maxCount is far above any real count of tokens, and far enough from the
// end of int64 to be summed.
const maxCount = 1_000_000_000_000

// Count is a number of tokens as a CLI reports it. What cannot be one
// (negative, huge, a text) becomes the nearest that can.
type Count int64

// UnmarshalJSON accepts any JSON value.
func (c *Count) UnmarshalJSON(b []byte) error {
	*c = Count(clamp(b, maxCount))
	return nil
}

// Money is an amount in dollars as a CLI reports it.
type Money float64

// UnmarshalJSON accepts any JSON value.
func (m *Money) UnmarshalJSON(b []byte) error {
	*m = Money(clamp(b, 1_000_000))
	return nil
}

// Micros is the amount in millionths, rounded.
func (m Money) Micros() int64 { return int64(math.Round(float64(m) * 1e6)) }

func clamp(b []byte, limit float64) float64 {
	var n json.Number
	if json.Unmarshal(b, &n) != nil {
		return 0
	}
	f, err := n.Float64()
	if err != nil && !math.IsInf(f, 0) || math.IsNaN(f) || f < 0 {
		return 0
	}
	return min(f, limit)
}

// AddUsage sums two usages.
func AddUsage(a, b pulse.Usage) pulse.Usage {
	return pulse.Usage{
		InputTokens:      a.InputTokens + b.InputTokens,
		OutputTokens:     a.OutputTokens + b.OutputTokens,
		CacheReadTokens:  a.CacheReadTokens + b.CacheReadTokens,
		CacheWriteTokens: a.CacheWriteTokens + b.CacheWriteTokens,
		CostMicros:       a.CostMicros + b.CostMicros,
	}
}
