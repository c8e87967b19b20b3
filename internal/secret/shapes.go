package secret

import (
	"strings"
	"unicode/utf8"
)

// class is a set of bytes.
type class [256]bool

func newClass(of string) *class {
	var c class
	for i := range len(of) {
		c[of[i]] = true
	}
	return &c
}

const (
	digits   = "0123456789"
	capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	small    = "abcdefghijklmnopqrstuvwxyz"
)

var (
	isAlnum = newClass(digits + capitals + small)
	isWord  = newClass(digits + capitals + small + "_") // what \b of regular expressions goes by
	isName  = newClass(digits + capitals + small + "_-")
	isPart  = newClass(digits + capitals + small + "-")
	isUpper = newClass(digits + capitals)
	isLabel = newClass(capitals + " ")
	isDigit = newClass(digits)
	inSpace = newClass("\t\n\f\r ")
	scheme  = newClass(digits + small + "+.-")
)

// run is where the bytes of the class end, from i on.
func (c *class) run(s string, i int) int {
	for i < len(s) && c[s[i]] {
		i++
	}
	return i
}

// pattern finds credentials by their shape. Regular expressions say the same
// in less space, but take longer by an order of magnitude on every text that
// only nearly holds one; the tests compare the two.
type pattern struct {
	// hint is a text that every match contains; it is searched first.
	hint string
	// match answers where the credential around the hint at i begins and ends
	// (from: where the search may begin). If there is none, ok is false, and
	// end, if it is past i, is where one may begin at the earliest.
	match func(s string, from, i int) (begin, end int, ok bool)
	with  string
}

// token is a prefix at the start of a word, then least bytes of the class or
// more. most, if not 0, is where the credential ends; closed asks for the
// end of the word there.
func token(prefix string, of *class, least, most int, closed bool) pattern {
	return pattern{hint: prefix, with: Mask, match: func(s string, from, i int) (int, int, bool) {
		// What ends at from was taken out, but is still what stands before.
		if i > 0 && isWord[s[i-1]] {
			return 0, 0, false
		}
		reach := len(s)
		if most > 0 {
			reach = min(reach, i+len(prefix)+most)
		}
		end := of.run(s[:reach], i+len(prefix))
		if end < i+len(prefix)+least || closed && end < len(s) && isWord[s[end]] {
			return 0, 0, false
		}
		return i, end, true
	}}
}

var patterns = []pattern{
	{hint: keyBegin, with: Mask, match: privateKey},
	token("sk-", isName, 20, 0, false),
	token("ghp_", isAlnum, 30, 0, false),
	token("gho_", isAlnum, 30, 0, false),
	token("ghu_", isAlnum, 30, 0, false),
	token("ghs_", isAlnum, 30, 0, false),
	token("ghr_", isAlnum, 30, 0, false),
	token("github_pat_", isWord, 30, 0, false),
	token("glpat-", isName, 20, 0, false),
	token("AKIA", isUpper, 16, 16, true),
	token("AIza", isName, 35, 35, false),
	{hint: "xox", with: Mask, match: slackToken},
	token("npm_", isAlnum, 36, 36, true),
	{hint: ":A", with: Mask, match: botToken},
	{hint: "eyJ", with: Mask, match: jsonToken},
	{hint: "://", with: Mask, match: urlPassword},
}

// privateKey ends with its last line, or with the text.
func privateKey(s string, _, i int) (int, int, bool) {
	body, ok := keyLine(s, i+len(keyBegin))
	if !ok {
		return 0, 0, false
	}
	for at := body; ; {
		next := strings.Index(s[at:], keyEnd)
		if next < 0 {
			return i, len(s), true
		}
		at += next + len(keyEnd)
		if end, ok := keyLine(s, at); ok {
			return i, end, true
		}
	}
}

// keyLine reads the rest of a line that begins or ends a private key.
func keyLine(s string, i int) (end int, ok bool) {
	const kind, rule = "PRIVATE KEY", "-----"
	words := isLabel.run(s, i)
	return words + len(rule), strings.HasSuffix(s[i:words], kind) && strings.HasPrefix(s[words:], rule)
}

func slackToken(s string, from, i int) (int, int, bool) {
	if i+5 > len(s) || strings.IndexByte("abprs", s[i+3]) < 0 || s[i+4] != '-' {
		return 0, 0, false
	}
	return token(s[i:i+5], isPart, 10, 0, false).match(s, from, i)
}

// botToken is a Telegram bot's: its number, a colon, its secret.
func botToken(s string, from, i int) (int, int, bool) {
	begin := i
	for begin > from && i-begin <= 12 && isDigit[s[begin-1]] {
		begin--
	}
	end := i + 2 + 34
	switch {
	case i-begin < 8, i-begin > 12, begin > 0 && isWord[s[begin-1]], end > len(s), isName.run(s[:end], i+2) < end:
		return 0, 0, false
	}
	// The word has to end there: after a dash it ends only if one begins.
	if after := end < len(s) && isWord[s[end]]; after == isWord[s[end-1]] {
		return 0, 0, false
	}
	return begin, end, true
}

func jsonToken(s string, _, i int) (int, int, bool) {
	if i > 0 && isWord[s[i-1]] {
		return 0, 0, false
	}
	// Whatever begins within a part that does not go on as it should cannot
	// go on either, so each part is read once.
	head := isName.run(s, i+3)
	if !strings.HasPrefix(s[head:], ".eyJ") {
		return 0, head, false
	}
	body := isName.run(s, head+4)
	if head < i+3+10 || body < head+4+10 || body == len(s) || s[body] != '.' {
		return 0, head, false
	}
	end := isName.run(s, body+1)
	if end < body+1+10 {
		return 0, head, false
	}
	return i, end, true
}

// urlPassword is what stands between the name and the host of an address.
func urlPassword(s string, from, i int) (int, int, bool) {
	letter := false
	for k := i - 1; k >= from && scheme[s[k]] && !letter; k-- {
		letter = s[k] >= 'a' && s[k] <= 'z'
	}
	if !letter {
		return 0, 0, false
	}
	name := i + 3
	for name < len(s) && !inSpace[s[name]] && s[name] != '/' && s[name] != '@' && s[name] != ':' {
		name++
	}
	if name == len(s) || s[name] != ':' {
		return 0, 0, false
	}
	end := name + 1
	for end < len(s) && !inSpace[s[end]] && s[end] != '/' && s[end] != '@' {
		end++
	}
	if end == len(s) || s[end] != '@' || utf8.RuneCountInString(s[name+1:end]) < 3 {
		return 0, 0, false
	}
	return name + 1, end, true
}

// replace takes every match out of the text.
func (p pattern) replace(s string) string {
	at := strings.Index(s, p.hint)
	if at < 0 {
		return s
	}
	var out strings.Builder
	done := 0
	for at >= 0 {
		begin, end, ok := p.match(s, done, at)
		next := max(at+1, end)
		if ok {
			out.WriteString(s[done:begin])
			out.WriteString(p.with)
			done = end
		}
		if at = strings.Index(s[next:], p.hint); at >= 0 {
			at += next
		}
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}
