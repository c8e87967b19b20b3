package extract

import (
	"regexp"
	"strings"

	"pulseloop/pulse"
)

// The phrases of the protocol, in the order in which they are tried: a
// question must not be overlooked because the same answer also sounds done.
var (
	blockedPhrases  = phrases("need your input", "please provide", "cannot proceed")
	completePhrases = phrases("all tasks are complete", "implementation is complete")
	continuePhrases = phrases("created file", "next step")
)

func phrases(list ...string) *regexp.Regexp {
	for i, p := range list {
		list[i] = strings.ReplaceAll(regexp.QuoteMeta(p), " ", `\s+`)
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(list, "|") + `)`)
}

// hedge is what turns a phrase of completion into its opposite or into a
// plan ("not all tasks are complete", "once the implementation is complete").
var hedge = regexp.MustCompile(`(?i)\b(?:not|n't|never|until|once|when|before|if|after|unless|far from)\b|n't\b|n’t\b`)

// infer reads a signal out of the wording; nothing recognisable is BLOCKED,
// because a person looking is cheaper than a loop going on blindly.
func infer(said string, fenced bool) pulse.Verdict {
	if at := blockedPhrases.FindStringIndex(said); at != nil {
		return pulse.Verdict{Signal: pulse.SignalBlocked, Reason: bound(sentence(said, at)), Inferred: true}
	}
	for _, at := range completePhrases.FindAllStringIndex(said, -1) {
		if !hedge.MatchString(said[sentenceStart(said, at[0]):at[0]]) && !strings.HasSuffix(sentence(said, at), "?") {
			return pulse.Verdict{Signal: pulse.SignalComplete, Inferred: true}
		}
	}
	if fenced || continuePhrases.MatchString(said) {
		return pulse.Verdict{Signal: pulse.SignalContinue, Inferred: true}
	}
	reason := "the agent ended without a signal"
	if last := lastParagraph(said); last != "" {
		reason += "; its last words: " + last
	} else {
		reason += " and without a word"
	}
	return pulse.Verdict{Signal: pulse.SignalBlocked, Reason: bound(reason), Inferred: true}
}

// sentence gives the sentence around a match.
func sentence(s string, at []int) string {
	end := len(s)
	if i := strings.IndexAny(s[at[1]:], ".?!\n"); i >= 0 {
		end = at[1] + i + 1
	}
	return strings.Join(strings.Fields(s[sentenceStart(s, at[0]):end]), " ")
}

func sentenceStart(s string, pos int) int {
	return strings.LastIndexAny(s[:pos], ".?!\n;:") + 1
}

func lastParagraph(s string) string {
	parts := strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n\n")
	for i := len(parts) - 1; i >= 0; i-- {
		if p := strings.Join(strings.Fields(parts[i]), " "); p != "" {
			return firstRunes(p, 500)
		}
	}
	return ""
}
