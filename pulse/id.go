package pulse

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// The identifiers are opaque strings: UUIDv7 texts, except DaemonID and
// Route, which are names. Only the package that mints an id looks inside it.
type (
	SessionID   string
	IterationID string
	TaskID      string
	TurnID      string
	ProjectID   string
	GateID      string
	NoticeID    string
	OperatorID  string
	InboundID   string
	DaemonID    string
	ClaimToken  string
	SliceID     string
)

// NewUUID returns a UUIDv7 text for the instant t: its first 48 bits are
// t in milliseconds, so that ids of one table sort by the time they were made.
func NewUUID(t time.Time) string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("pulse: the system's random source failed: " + err.Error())
	}
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(t.UnixMilli()))
	copy(b[:6], ms[2:])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	var out [36]byte
	hex.Encode(out[0:8], b[0:4])
	hex.Encode(out[9:13], b[4:6])
	hex.Encode(out[14:18], b[6:8])
	hex.Encode(out[19:23], b[8:10])
	hex.Encode(out[24:36], b[10:16])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

// ValidUUID reports whether s has the shape of a UUID in lower-case hex.
func ValidUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// Short returns the part of an id that people are shown: its last eight
// characters, which differ even between ids made in the same millisecond.
func Short[T ~string](id T) string {
	s := string(id)
	if len(s) <= 8 {
		return s
	}
	return s[len(s)-8:]
}
