package extract

import (
	"strings"
	"unicode/utf8"
)

// SummaryRunes bounds a summary, in characters.
const SummaryRunes = 240

// Summary gives what an answer says in one line: its first paragraph in the
// agent's own voice, without tags and Markdown marks, cut at a word.
func Summary(text string) string {
	said, _ := unquote(text)
	said = signalTag.ReplaceAllString(said, " ")
	said = hintTag.ReplaceAllString(said, " ")
	for p := range strings.SplitSeq(strings.ReplaceAll(said, "\r\n", "\n"), "\n\n") {
		var lines []string
		for line := range strings.Lines(p) {
			line = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "#*-• "))
			if line != "" {
				lines = append(lines, line)
			}
		}
		joined := strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
		if joined = strings.ReplaceAll(joined, "**", ""); joined != "" {
			return cutWords(joined, SummaryRunes)
		}
	}
	return ""
}

// cutWords shortens s to at most n characters, at a space where one is near.
func cutWords(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	s = firstRunes(s, n-1)
	if i := strings.LastIndexByte(s, ' '); i > len(s)*3/4 {
		s = s[:i]
	}
	return s + "…"
}
