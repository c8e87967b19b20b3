package notify

import (
	"fmt"
	"strings"
	"time"

	"pulseloop/pulse"
)

// Lengths, in characters, of what goes into a message.
const (
	maxHead    = 300  // free text within the first line
	maxSummary = 2500 // an agent's account of what it did
	maxData    = 64   // bytes of a button's data, on every platform
)

// Words renders what people are told of a session. It implements the
// wording seam of the loop. The zero value is ready.
type Words struct{}

// IterationDone tells that an iteration ended, and whether the next one
// follows by itself.
func (Words) IterationDone(s pulse.Session, it pulse.Iteration) pulse.Message {
	var m message
	goesOn := " Continuing..."
	if s.Status == pulse.SessionPaused || s.Status == pulse.SessionBlocked {
		goesOn = ""
	}
	m.line("📍 [%s] Iteration %d/%d: %s%s", project(s), it.Number, s.MaxIterations, sentence(it.OutputSummary, "done"), goesOn)
	m.commit(it)
	return m.done()
}

// Completed tells that the goal is reached.
func (Words) Completed(s pulse.Session, it pulse.Iteration) pulse.Message {
	var m message
	m.line("✅ [%s] Session complete (%s, %s)", project(s),
		count(int64(s.CurrentIteration), "iteration"), count(s.TotalCommits, "commit"))
	if text := summary(it); text != "" {
		m.line("\n%s\n", text)
	}
	if s.BranchName != "" {
		m.pair("Branch: ", s.BranchName)
	}
	m.commit(it)
	if used := usage(s); used != "" {
		m.line("%s", used)
	}
	if s := sandboxed(s); s != "" {
		m.line("%s", s)
	}
	m.line("Unverified: no verify command was run.")
	m.span("\nTo go on from here, reply to this message or send ", pulse.StylePlain)
	m.span("/resume "+pulse.Short(s.ID)+" TEXT", pulse.StyleCode)
	return m.done()
}

// Blocked tells what a person has to decide.
func (Words) Blocked(s pulse.Session, g pulse.Gate) pulse.Message {
	var m message
	question := strings.TrimSpace(Clean(g.Prompt))
	if question == "" {
		question = strings.TrimSpace(Clean(s.StatusReason))
	}
	if question == "" {
		question = "the agent needs a person and did not say why"
	}
	head := oneLine(question, maxHead)
	m.line("⏸️ [%s] Blocked: %s", project(s), head)
	if head != question {
		m.line("\n%s", question)
	}
	m.line("")
	if len(g.Options) == 0 {
		m.span("Reply to this message with the answer, or send ", pulse.StylePlain)
		m.span("/answer "+pulse.Short(s.ID)+" TEXT", pulse.StyleCode)
		return m.done()
	}
	row, rest := buttons(g)
	if len(row) > 0 {
		m.msg.Buttons = [][]pulse.Button{row}
	}
	m.span("Choose one: ", pulse.StylePlain)
	for i, o := range g.Options {
		if i > 0 {
			m.span(", ", pulse.StylePlain)
		}
		m.span(oneLine(o.Key, 40), pulse.StyleCode)
		if o.Label != "" && !strings.EqualFold(o.Label, o.Key) {
			m.span(" ("+oneLine(o.Label, 80)+")", pulse.StylePlain)
		}
	}
	if rest {
		m.span(". Not all fit a button: write the word instead", pulse.StylePlain)
	}
	m.span(". Or reply with the word, or send ", pulse.StylePlain)
	m.span("/answer "+pulse.Short(s.ID)+" "+oneLine(g.Options[0].Key, 40), pulse.StyleCode)
	return m.done()
}

// Failed tells that a session ended without its goal, why, and what to do.
func (Words) Failed(s pulse.Session, reason, hint string) pulse.Message {
	var m message
	reason = strings.TrimSpace(Clean(reason))
	if reason == "" {
		reason = "no reason was given"
	}
	head := oneLine(reason, maxHead)
	m.line("❌ [%s] Failed: %s", project(s), head)
	if head != reason {
		m.line("\n%s", clip(reason, maxSummary))
	}
	if hint = strings.TrimSpace(Clean(hint)); hint != "" {
		m.line("\n%s", clip(hint, maxSummary))
	}
	m.span("\nTo try again: ", pulse.StylePlain)
	m.span("/resume "+pulse.Short(s.ID), pulse.StyleCode)
	return m.done()
}

// Paused tells that a session waits until it is resumed.
func (Words) Paused(s pulse.Session) pulse.Message {
	var m message
	where := fmt.Sprintf("after iteration %d/%d", s.CurrentIteration, s.MaxIterations)
	if s.CurrentIteration == 0 {
		where = "before its first iteration"
	}
	m.line("⏸️ [%s] Paused %s", project(s), where)
	m.span("To go on: ", pulse.StylePlain)
	m.span("/resume "+pulse.Short(s.ID), pulse.StyleCode)
	return m.done()
}

// Aborted tells that a session was stopped for good.
func (Words) Aborted(s pulse.Session, by string) pulse.Message {
	var m message
	who := ""
	if by = oneLine(by, 60); by != "" {
		who = " by " + by
	}
	m.line("🛑 [%s] Aborted%s (%s, %s)", project(s), who,
		count(int64(s.CurrentIteration), "iteration"), count(s.TotalCommits, "commit"))
	if s.BranchName != "" && s.TotalCommits > 0 {
		m.pair("The commits stay on ", s.BranchName)
	}
	return m.done()
}

// sandboxed says what kept the agent in its place when it last worked.
func sandboxed(s pulse.Session) string {
	if len(s.ProgressLog) == 0 {
		return ""
	}
	switch level := oneLine(s.ProgressLog[len(s.ProgressLog)-1].Sandbox, 40); level {
	case "":
		return ""
	case "none":
		return "Sandbox: none, the agent could do what you can"
	default:
		return "Sandbox: " + level
	}
}

// buttons gives a button for each option whose data fits; rest is true when
// some do not.
func buttons(g pulse.Gate) (row []pulse.Button, rest bool) {
	for _, o := range g.Options {
		data := "g:" + string(g.ID) + ":" + o.Key
		if len(data) > maxData {
			rest = true
			continue
		}
		label := o.Label
		if label == "" {
			label = o.Key
		}
		row = append(row, pulse.Button{Label: oneLine(label, 40), Data: data})
	}
	return row, rest
}

func project(s pulse.Session) string { return oneLine(s.ProjectName, 60) }

// sentence is a text as one sentence with its full stop.
func sentence(s, otherwise string) string {
	s = strings.TrimRight(oneLine(s, maxHead), ".: ")
	if s == "" {
		s = otherwise
	}
	if strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "…") {
		return s
	}
	return s + "."
}

func summary(it pulse.Iteration) string {
	text := strings.TrimSpace(Clean(it.OutputSummary))
	if text == "" {
		text = strings.TrimSpace(Clean(it.OutputFull))
	}
	return clip(text, maxSummary)
}

func usage(s pulse.Session) string {
	var parts []string
	if s.TotalTokens > 0 {
		parts = append(parts, "Tokens: "+grouped(s.TotalTokens))
	}
	if s.TotalCostMicros > 0 {
		parts = append(parts, "Cost: "+dollars(s.TotalCostMicros))
	}
	return strings.Join(parts, " · ")
}

// dollars shows cents, or more digits where cents would read as nothing.
func dollars(micros int64) string {
	if micros < 10_000 {
		return fmt.Sprintf("$%.4f", float64(micros)/1e6)
	}
	return fmt.Sprintf("$%.2f", float64(micros)/1e6)
}

func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func count(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + one + "s"
}

// elapsed is a duration as people read it.
func elapsed(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh %02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

// message puts a neutral message together; neighbours of one style are one span.
type message struct{ msg pulse.Message }

func (m *message) span(text string, style pulse.Style) {
	if n := len(m.msg.Spans); n > 0 && m.msg.Spans[n-1].Style == style {
		m.msg.Spans[n-1].Text += text
		return
	}
	m.msg.Spans = append(m.msg.Spans, pulse.Span{Text: text, Style: style})
}

func (m *message) line(format string, args ...any) {
	m.span(fmt.Sprintf(format, args...)+"\n", pulse.StylePlain)
}

func (m *message) pair(name, value string) {
	m.span(name, pulse.StylePlain)
	m.span(oneLine(value, 200), pulse.StyleCode)
	m.span("\n", pulse.StylePlain)
}

// commit shows the git evidence of an iteration, if there is any.
func (m *message) commit(it pulse.Iteration) {
	if it.CommitHash == "" {
		return
	}
	hash := oneLine(it.CommitHash, 200)
	m.span("Commit: ", pulse.StylePlain)
	m.span(hash[:min(len(hash), 7)], pulse.StyleCode)
	if n := len(it.FilesChanged); n > 0 {
		m.span(" ("+count(int64(n), "file")+" changed)", pulse.StylePlain)
	}
	m.span("\n", pulse.StylePlain)
}

// done is the message without a trailing line feed.
func (m *message) done() pulse.Message {
	if n := len(m.msg.Spans); n > 0 {
		last := &m.msg.Spans[n-1]
		last.Text = strings.TrimRight(last.Text, "\n")
		if last.Text == "" {
			m.msg.Spans = m.msg.Spans[:n-1]
		}
	}
	return m.msg
}
