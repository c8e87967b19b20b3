package bot

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"pulseloop/pulse"
)

// CodeLife is how long a pairing code can be used.
const CodeLife = 10 * time.Minute

// alphabet is Crockford's base 32: no letter can be taken for a digit.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// codeLen is the number of characters of a code: one for the role, the rest
// random, 55 bits.
const codeLen = 12

// The first character says what the code makes of whoever sends it. It can
// be trusted like the rest: a code with another one has another hash.
var roleLetters = map[pulse.OperatorRole]byte{pulse.RoleOwner: 'W', pulse.RoleOperator: 'P', pulse.RoleViewer: 'V'}

// NewCode makes a pairing code to be shown to a person, such as
// P7K2-9QXM-4TZB, and the record to be stored, which has only its hash. An
// unknown role means operator.
func NewCode(now time.Time, role pulse.OperatorRole) (code string, pc pulse.PairingCode) {
	letter, ok := roleLetters[role]
	if !ok {
		role, letter = pulse.RoleOperator, roleLetters[pulse.RoleOperator]
	}
	var b [codeLen]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("bot: the system's random source failed: " + err.Error())
	}
	for i := range b {
		b[i] = alphabet[b[i]&31]
	}
	b[0] = letter
	s := string(b[:])
	code = s[:4] + "-" + s[4:8] + "-" + s[8:]
	return code, pulse.PairingCode{Hash: HashCode(code), Role: role, CreatedAt: now.UTC(), ExpiresAt: now.Add(CodeLife).UTC()}
}

// HashCode is what is stored of a code. Case, dashes, spaces and the letters
// people confuse with digits make no difference.
func HashCode(code string) string {
	sum := sha256.Sum256([]byte(normalCode(code)))
	return hex.EncodeToString(sum[:])
}

func normalCode(code string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '-', ' ', '\t', '\n', '_', '‐', '‑', '–', '—': // phones like to make dashes longer
			return -1
		case 'O', 'o':
			return '0'
		case 'I', 'i', 'L', 'l':
			return '1'
		}
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, code)
}

// codeRole reads the role out of a code that is otherwise proven right.
func codeRole(code string) pulse.OperatorRole {
	code = normalCode(code)
	for role, letter := range roleLetters {
		if code != "" && code[0] == letter {
			return role
		}
	}
	return pulse.RoleOperator
}
