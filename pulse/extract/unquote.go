package extract

import (
	"regexp"
	"strings"
)

var (
	comment    = regexp.MustCompile(`(?s)<!--.*?-->`)
	inlineCode = regexp.MustCompile("``[^\n]*?``|`[^`\n]+`")
)

// unquote gives what the agent says in its own voice: the text without
// fenced code, quotations, inline code and HTML comments. fenced reports
// whether there was a block of code. A fence that is never closed swallows
// the rest, as every Markdown reader has it.
func unquote(text string) (said string, fenced bool) {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimLeft(line, " \t")
		if fence != "" {
			if closes(trimmed, fence) {
				fence = ""
			}
			continue
		}
		if f := opens(trimmed); f != "" {
			fence, fenced = f, true
			continue
		}
		if strings.HasPrefix(trimmed, ">") {
			b.WriteByte('\n')
			continue
		}
		b.WriteString(line)
	}
	said = comment.ReplaceAllString(b.String(), " ")
	return inlineCode.ReplaceAllString(said, " "), fenced
}

// opens gives the fence that a line starts, "" if it starts none.
func opens(line string) string {
	for _, c := range []string{"`", "~"} {
		n := len(line) - len(strings.TrimLeft(line, c))
		if n < 3 {
			continue
		}
		// The info string of a backtick fence has no backtick in it: such a
		// line is inline code that happens to stand at the start.
		if c == "`" && strings.Contains(line[n:], "`") {
			continue
		}
		return strings.Repeat(c, n)
	}
	return ""
}

// closes reports whether a line ends the fence: at least as many of the same
// character, and nothing else.
func closes(line, fence string) bool {
	c := fence[:1]
	rest := strings.TrimLeft(line, c)
	return len(line)-len(rest) >= len(fence) && strings.TrimSpace(rest) == ""
}
