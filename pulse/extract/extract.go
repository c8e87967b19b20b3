// Package extract reads an agent's final text: the signal, the anchor hint,
// a short summary. It is pure: the same text gives the same answer, nothing
// is read or written, and any input, however long or broken, is normal.
//
// What an agent quotes is not what it says: text inside code fences, inline
// code, quotations and HTML comments never carries a signal or a hint.
package extract

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"pulseloop/pulse"
)

// MaxReason bounds the reason of a verdict, in bytes.
const MaxReason = 2000

var (
	signalTag = regexp.MustCompile(`(?is)<signal>(.*?)</signal>`)
	hintTag   = regexp.MustCompile(`(?is)<anchor_hint>(.*?)</anchor_hint>`)
	turnTag   = regexp.MustCompile(`(?is)<turn_id>(.*?)</turn_id>`)
	reasonTag = regexp.MustCompile(`(?is)<reason>(.*?)</reason>`)
)

// Signal reads the one signal of a final text. Exactly one explicit signal
// counts as it is; two different ones, or one that is none of the three, are
// BLOCKED with that reason; without an explicit one the wording is read.
func Signal(text string) pulse.Verdict {
	said, fenced := unquote(text)
	var claimed []pulse.Verdict
	for _, m := range signalTag.FindAllStringSubmatchIndex(said, -1) {
		if alone(said, m[0], m[1]) {
			claimed = append(claimed, parseSignal(said[m[2]:m[3]]))
		}
	}
	if len(claimed) == 0 {
		return infer(said, fenced)
	}
	last := claimed[len(claimed)-1]
	for _, c := range claimed {
		if c.Claimed == "" {
			return c
		}
		if c.Signal != last.Signal {
			return pulse.Verdict{
				Signal: pulse.SignalBlocked, Claimed: last.Signal,
				Reason: fmt.Sprintf("the agent gave two different signals in one answer, %s and %s", c.Signal, last.Signal),
			}
		}
	}
	if last.Signal == pulse.SignalBlocked && last.Reason == "" {
		last.Reason = question(said)
	}
	return last
}

// question is what an agent that gave the bare signal asks: agents put their
// question before it, and the person has to see it.
func question(said string) string {
	if last := lastParagraph(hintTag.ReplaceAllString(signalTag.ReplaceAllString(said, " "), " ")); last != "" {
		return bound(last)
	}
	return "the agent is blocked and gave no reason"
}

// marks may stand around a signal on its line: emphasis, list signs, ends of
// sentences. Quotation marks may not: what stands in them is quoted.
const marks = " \t\r*_-•.!:"

// alone reports whether a tag begins or ends a line of its own accord. In the
// middle of a sentence, between quotation marks, or in a cell of a table an
// agent speaks about a signal, and does not give it.
func alone(s string, start, end int) bool {
	before := s[strings.LastIndexByte(s[:start], '\n')+1 : start]
	after, _, _ := strings.Cut(s[end:], "\n")
	if strings.TrimLeft(before, marks) == "" {
		return true
	}
	last, _ := utf8.DecodeLastRuneInString(before)
	return strings.Trim(after, marks) == "" && !strings.ContainsRune("\"'“„«‹‘|(", last)
}

// parseSignal reads the inside of a signal tag.
func parseSignal(body string) pulse.Verdict {
	body = strings.TrimSpace(body)
	word, reason, hasReason := strings.Cut(body, ":")
	switch s := pulse.Signal(strings.ToUpper(strings.TrimSpace(word))); s {
	case pulse.SignalContinue, pulse.SignalComplete:
		if hasReason {
			reason = strings.TrimSpace(reason)
		}
		return pulse.Verdict{Signal: s, Claimed: s, Reason: bound(reason)}
	case pulse.SignalBlocked:
		return pulse.Verdict{Signal: s, Claimed: s, Reason: bound(strings.TrimSpace(reason))}
	}
	return pulse.Verdict{
		Signal: pulse.SignalBlocked,
		Reason: fmt.Sprintf("the agent ended with an unknown signal %q", bound(firstRunes(body, 80))),
	}
}

// Hint reads the last anchor hint of a final text. ok is false when there is
// none; an id that is not a UUID is no hint.
func Hint(text string) (hint pulse.AnchorHint, ok bool) {
	said, _ := unquote(text)
	all := hintTag.FindAllStringSubmatch(said, -1)
	if len(all) == 0 {
		return pulse.AnchorHint{}, false
	}
	body := all[len(all)-1][1]
	id := turnTag.FindStringSubmatch(body)
	if id == nil {
		return pulse.AnchorHint{}, false
	}
	hint.TurnID = pulse.TurnID(strings.ToLower(strings.TrimSpace(id[1])))
	if !pulse.ValidUUID(string(hint.TurnID)) {
		return pulse.AnchorHint{}, false
	}
	if r := reasonTag.FindStringSubmatch(body); r != nil {
		hint.Reason = bound(strings.TrimSpace(r[1]))
	}
	return hint, true
}

// bound cuts a reason to MaxReason bytes at a character's border.
func bound(s string) string {
	if len(s) <= MaxReason {
		return s
	}
	cut := MaxReason
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func firstRunes(s string, n int) string {
	i := 0
	for pos := range s {
		if i == n {
			return s[:pos]
		}
		i++
	}
	return s
}
