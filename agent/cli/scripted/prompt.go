package scripted

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// promptContext is what a script can refer to.
type promptContext struct {
	prompt    string
	goal      string
	answer    string
	iteration int
}

const (
	goalHeading  = "\n# Goal\n"
	answerPrefix = "\nAnswer to your question: "
	newGoal      = "\nThe goal above was reached; now they want: "
)

// readPrompt finds the goal and the last answer in a prompt of ours. A prompt
// of another form is all goal. Earlier turns come before the goal and may
// quote such headings, so the last one counts.
func readPrompt(prompt string, iteration int) promptContext {
	c := promptContext{prompt: prompt, goal: strings.TrimSpace(prompt), iteration: iteration}
	text := "\n" + prompt
	i := strings.LastIndex(text, goalHeading)
	if i < 0 {
		return c
	}
	rest := text[i+len(goalHeading)-1:]
	goal, _, _ := strings.Cut(rest, "\n# ")
	c.goal = strings.TrimSpace(goal)
	if follow := lastAfter(rest, newGoal); follow != "" {
		c.goal = follow
	}
	c.answer = lastAfter(rest, answerPrefix)
	return c
}

// lastAfter gives the line that the last occurrence of prefix starts.
func lastAfter(text, prefix string) string {
	i := strings.LastIndex(text, prefix)
	if i < 0 {
		return ""
	}
	found, _, _ := strings.Cut(text[i+len(prefix):], "\n")
	return strings.TrimSpace(found)
}

var placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)

// fill replaces {{goal}}, {{answer}} and {{iteration}}.
func (c promptContext) fill(text string) (string, error) {
	var unknown string
	filled := placeholder.ReplaceAllStringFunc(text, func(m string) string {
		switch word := m[2 : len(m)-2]; word {
		case "goal":
			return c.goal
		case "answer":
			return c.answer
		case "iteration":
			return strconv.Itoa(c.iteration)
		default:
			unknown = word
			return m
		}
	})
	if unknown != "" {
		return "", fmt.Errorf("unknown placeholder {{%s}}; there are {{goal}}, {{answer}} and {{iteration}}", unknown)
	}
	return filled, nil
}
