package extract

import (
	"regexp"
	"strings"
)

var (
	comment    = regexp.MustCompile(`(?s)<!--.*?(?:-->|$)`)
	verbatim   = regexp.MustCompile(`(?is)<(pre|code|blockquote|samp)\b[^>]*>.*?(?:</(?:pre|code|blockquote|samp)>|$)`)
	inlineCode = regexp.MustCompile("(?s)``.*?``|`[^`]+`")
	blankLine  = regexp.MustCompile(`\n[ \t]*\n`)
)

// unquote gives what the agent says in its own voice: the text without
// fenced, indented and inline code, quotations and HTML comments. fenced reports
// whether there was a block of code. A fence that is never closed swallows
// the rest, as every Markdown reader has it.
func unquote(text string) (said string, fenced bool) {
	var b strings.Builder
	fence, blank, indented := "", true, false
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
		if strings.TrimSpace(line) == "" {
			b.WriteByte('\n')
			blank = true
			continue
		}
		// Four blanks or a tab after an empty line begin a block of code,
		// which goes on for as long as lines are indented.
		if indented = (blank || indented) && isIndented(line); indented {
			fenced = true
			b.WriteByte('\n')
			continue
		}
		blank = false
		if strings.HasPrefix(trimmed, ">") {
			b.WriteByte('\n')
			continue
		}
		b.WriteString(line)
	}
	said = verbatim.ReplaceAllString(comment.ReplaceAllString(b.String(), " "), " ")
	// Inline code may run over a line's end, but not over a paragraph's.
	paragraphs := blankLine.Split(said, -1)
	for i, p := range paragraphs {
		paragraphs[i] = inlineCode.ReplaceAllString(p, " ")
	}
	return strings.Join(paragraphs, "\n\n"), fenced
}

func isIndented(line string) bool {
	return strings.HasPrefix(line, "    ") || strings.HasPrefix(strings.TrimLeft(line, " "), "\t")
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
