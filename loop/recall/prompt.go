package recall

import (
	_ "embed"
	"fmt"
	"strings"
	"unicode/utf8"

	"pulseloop/pulse"
)

//go:embed prompts/rules.md
var rulesText string

//go:embed prompts/signals.md
var signalsText string

// build puts the prompt together, what never changes first, so that the
// providers' prompt caches find the same prefix every time. It answers the
// tokens of the whole, estimated.
func (b *Builder) build(s pulse.Session, p pulse.Project, prev *pulse.Iteration, turns []pulse.Turn) (string, int) {
	var w strings.Builder
	w.WriteString(rulesText)
	w.WriteByte('\n')
	w.WriteString(signalsText)
	fmt.Fprintf(&w, "\n# Project\n%s, on branch %s\n", p.Name, s.BranchName)
	b.writeTurns(&w, turns)
	fmt.Fprintf(&w, "\n# Goal\n%s\n", s.Goal)
	b.writeProgress(&w, s)
	writeInputs(&w, s.Inputs)
	writeFailure(&w, prev)
	fmt.Fprintf(&w, "\n# Now\nThis is iteration %d of at most %d.\n", s.CurrentIteration, s.MaxIterations)
	return w.String(), estimate(w.String())
}

func (b *Builder) writeTurns(w *strings.Builder, turns []pulse.Turn) {
	if len(turns) == 0 {
		return
	}
	w.WriteString("\n# Earlier turns of this project\n")
	for _, t := range turns {
		who := "a person said"
		if t.Role == pulse.TurnAssistant {
			who = "an agent said"
		}
		fmt.Fprintf(w, "<<<DATA turn %s, %s, %s>>>\n%s\n<<<END DATA>>>\n",
			t.ID, t.CreatedAt.UTC().Format("2006-01-02 15:04"), who, fence(cut(t.Text, b.cfg.TurnTokens*4)))
	}
}

func (b *Builder) writeProgress(w *strings.Builder, s pulse.Session) {
	if len(s.ProgressLog) == 0 {
		return
	}
	w.WriteString("\n# Progress so far\n")
	from := max(0, len(s.ProgressLog)-b.cfg.MaxProgress)
	if from > 0 {
		fmt.Fprintf(w, "(%d earlier entries left out)\n", from)
	}
	for _, e := range s.ProgressLog[from:] {
		if len(e.Said) > 0 {
			writeSaid(w, e)
			continue
		}
		fmt.Fprintf(w, "%d. ", e.Iteration)
		if e.Signal != "" {
			fmt.Fprintf(w, "[%s] ", e.Signal)
		}
		w.WriteString(oneLine(e.Summary))
		if e.Note != "" && e.Signal == pulse.SignalBlocked {
			fmt.Fprintf(w, " (blocked: %s)", oneLine(e.Note))
		}
		if e.Commit != "" {
			fmt.Fprintf(w, " (commit %.10s)", e.Commit)
		}
		w.WriteByte('\n')
	}
}

// writeSaid repeats what the person said before an earlier iteration: it
// holds for the whole session.
func writeSaid(w *strings.Builder, e pulse.ProgressEntry) {
	for _, in := range e.Said {
		fmt.Fprintf(w, "%d. The person said (%s): %s\n", e.Iteration, strings.ReplaceAll(string(in.Kind), "_", "-"), oneLine(in.Text))
	}
}

func writeInputs(w *strings.Builder, inputs []pulse.Input) {
	if len(inputs) == 0 {
		return
	}
	w.WriteString("\n# What the person said since\n")
	for _, in := range inputs {
		switch in.Kind {
		case pulse.InputAnswer:
			w.WriteString("Answer to your question: ")
		case pulse.InputFollowUp:
			w.WriteString("The goal above was reached; now they want: ")
		default:
			w.WriteString("Guidance: ")
		}
		w.WriteString(in.Text)
		w.WriteByte('\n')
	}
}

func writeFailure(w *strings.Builder, prev *pulse.Iteration) {
	if prev == nil || prev.Error == "" {
		return
	}
	fmt.Fprintf(w, "\n# What went wrong last time\nIteration %d ended as %s. The tree is as it was left.\n<<<DATA error>>>\n%s\n<<<END DATA>>>\n",
		prev.Number, prev.Status, fence(cut(prev.Error, 4000)))
}

// fence makes sure that quoted text cannot end its own quotation.
func fence(text string) string {
	return strings.NewReplacer("<<<END DATA", "<< <END DATA", "<<<DATA", "<< <DATA").Replace(text)
}

func oneLine(s string) string { return cut(strings.Join(strings.Fields(s), " "), 600) }

// cut shortens a text in its middle, where it matters least, to about n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head, tail := n*2/3, len(s)-n/3
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", s[:head], tail-head, s[tail:])
}
