package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxSummary bounds a summary, in characters.
const maxSummary = 160

// summaryKeys are the inputs that tell a tool call best, in that order.
var summaryKeys = []string{
	"command", "cmd", "file_path", "path", "notebook_path", "filename", "query", "pattern", "url", "prompt", "description", "name", "title",
}

// Summarize says in one line what a tool call is about: the command, the
// path (relative to dir where it lies in it), the query. It is empty when the
// input tells nothing.
func Summarize(tool string, input json.RawMessage, dir string) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		var text string
		_ = json.Unmarshal(input, &text)
		return OneLine(text)
	}
	for _, key := range summaryKeys {
		if text := plainText(fields[key]); text != "" {
			return OneLine(within(dir, text))
		}
	}
	if strings.EqualFold(tool, "TodoWrite") {
		return "the list of what is to be done"
	}
	return ""
}

// plainText reads a string, or a list of strings as the words of a command.
func plainText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var words []string
	if json.Unmarshal(raw, &words) != nil {
		return ""
	}
	// sh -c TEXT is how the text is run, not what is run.
	if len(words) == 3 && (words[1] == "-c" || words[1] == "-lc") {
		return words[2]
	}
	return strings.Join(words, " ")
}

func within(dir, path string) string {
	if dir == "" || !filepath.IsAbs(path) || strings.ContainsAny(path, "\n") {
		return path
	}
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// OneLine makes a text one short line.
func OneLine(s string) string {
	if len(s) > 8*maxSummary {
		s = s[:8*maxSummary]
	}
	s = strings.Join(strings.Fields(Clean(s)), " ")
	if utf8.RuneCountInString(s) <= maxSummary {
		return s
	}
	return strings.TrimSpace(string([]rune(s)[:maxSummary-1])) + "…"
}
