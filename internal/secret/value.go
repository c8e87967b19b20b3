// Package secret keeps secrets out of what people and logs see: Value is a
// secret that prints as [redacted], Redactor takes known values and things
// that look like credentials out of texts, and Stream does the same for a
// text that comes in pieces. It stores and sends nothing. All types are safe
// for concurrent use, except Stream.
package secret

import "log/slog"

// Mask stands where a secret was.
const Mask = "[redacted]"

// Value is a secret. Every way of printing or encoding it gives Mask (or
// nothing for an empty one); only Reveal gives the text.
type Value string

// Reveal gives the secret itself.
func (v Value) Reveal() string { return string(v) }

func (v Value) String() string {
	if v == "" {
		return ""
	}
	return Mask
}

// GoString keeps %#v from showing it.
func (v Value) GoString() string { return v.String() }

// MarshalText keeps encoders of text, JSON and YAML from showing it.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// LogValue keeps slog from showing it.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }
