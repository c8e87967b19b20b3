package bot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pulseloop/pulse"
)

// How much a view shows.
const (
	listed     = 10
	iterations = 10
	maxPrompt  = 60_000 // characters; platforms split it, or make a file of it
)

var icons = map[pulse.SessionStatus]string{pulse.SessionPending: "⏳", pulse.SessionRunning: "⚙️", pulse.SessionComplete: "✅",
	pulse.SessionBlocked: "⏸️", pulse.SessionFailed: "❌", pulse.SessionPaused: "💤", pulse.SessionAborted: "🛑"}

// named is a line about a session, with an afterthought.
func named(head string, s pulse.Session, then string) pulse.Message {
	m := pulse.Message{Spans: []pulse.Span{{Text: fmt.Sprintf("%s [%s] %s (", head, line(s.ProjectName, 60), topicTitle(s.Goal))},
		{Text: pulse.Short(s.ID), Style: pulse.StyleCode}, {Text: ")"}}}
	if then != "" {
		m.Spans[2].Text += "\n" + then
	}
	return m
}

// begun is the first message of a session.
func begun(s pulse.Session, note string) pulse.Message {
	text := fmt.Sprintf("🚀 [%s] Started: %s\nUp to %s, on branch ", line(s.ProjectName, 60), line(s.Goal, 200), plural(s.MaxIterations, "iteration"))
	m := pulse.Message{Spans: []pulse.Span{{Text: text}, {Text: line(s.BranchName, 200), Style: pulse.StyleCode},
		{Text: "\nSession "}, {Text: pulse.Short(s.ID), Style: pulse.StyleCode}}}
	if note != "" {
		m.Spans = append(m.Spans, pulse.Span{Text: "\n" + note})
	}
	return m
}

func (r *Router) status(ctx context.Context, u *update, args string) error {
	s, _, err := r.target(ctx, u, args, false)
	if err != nil {
		return err
	}
	return r.reply(ctx, u, overview(s, u.now), s.ID)
}

// overview tells where a session stands.
func overview(s pulse.Session, now time.Time) pulse.Message {
	m := pulse.Message{Spans: []pulse.Span{{Text: fmt.Sprintf("%s [%s] %s · iteration %d/%d · %s · %s old\n%s\n", icons[s.Status],
		line(s.ProjectName, 60), state(s), s.CurrentIteration, s.MaxIterations, plural(int(s.TotalCommits), "commit"),
		age(now.Sub(s.CreatedAt)), line(s.Goal, 300))}}}
	if s.StatusReason != "" {
		m.Spans = append(m.Spans, pulse.Span{Text: "Reason: " + line(s.StatusReason, 600) + "\n"})
	}
	if n := len(s.ProgressLog); n > 0 {
		p := s.ProgressLog[n-1]
		m.Spans = append(m.Spans, pulse.Span{Text: fmt.Sprintf("Last: iteration %d: %s\n", p.Iteration, line(p.Summary, 300))})
	}
	if n := len(s.Inputs); n > 0 {
		m.Spans = append(m.Spans, pulse.Span{Text: "Waiting for the next prompt: " + plural(n, "message") + "\n"})
	}
	return with(m, "Session ", pulse.Short(s.ID), ", branch ", line(s.BranchName, 200))
}

// state is a status as people say it.
func state(s pulse.Session) string {
	if s.PauseRequested && s.Status == pulse.SessionRunning {
		return "running, pauses after this iteration"
	}
	return string(s.Status)
}

// with appends labels and code in turns.
func with(m pulse.Message, parts ...string) pulse.Message {
	for i, p := range parts {
		style := pulse.StylePlain
		if i%2 == 1 {
			style = pulse.StyleCode
		}
		if p == "" {
			continue
		}
		m.Spans = append(m.Spans, pulse.Span{Text: p, Style: style})
	}
	return m
}

func (r *Router) list(ctx context.Context, u *update, _ string) error {
	sessions, err := r.cfg.Reader.Sessions(ctx, pulse.SessionFilter{Limit: listed + 1})
	if err != nil {
		return fmt.Errorf("list sessions: %w", err)
	}
	if len(sessions) == 0 {
		return r.reply(ctx, u, pulse.Text("There is no session yet. Send me a goal and there will be one."), "")
	}
	held, err := r.cfg.People.HeldChats(ctx)
	if err != nil {
		return fmt.Errorf("list chats that take no messages: %w", err)
	}
	var m pulse.Message
	for i, s := range sessions {
		if i == listed {
			m.Spans = append(m.Spans, pulse.Span{Text: "and older ones"})
			break
		}
		m = with(m, icons[s.Status]+" ", pulse.Short(s.ID), fmt.Sprintf(" [%s] %s, %d/%d: %s%s\n", line(s.ProjectName, 40), state(s),
			s.CurrentIteration, s.MaxIterations, line(s.Goal, 80), deaf(s, held)))
	}
	return r.reply(ctx, u, m, "")
}

// deaf says that nobody can be told of a session: its chat takes nothing
// until somebody writes there.
func deaf(s pulse.Session, held map[pulse.Address]string) string {
	for _, a := range s.Addresses() {
		if _, ok := held[pulse.Address{Platform: a.Platform, Chat: a.Chat}]; ok {
			return " (🔇 its chat takes no messages from me)"
		}
	}
	return ""
}

func (r *Router) show(ctx context.Context, u *update, args string) error {
	s, _, err := r.target(ctx, u, args, false)
	if err != nil {
		return err
	}
	its, err := r.cfg.Reader.Iterations(ctx, s.ID)
	if err != nil {
		return fmt.Errorf("list iterations: %w", err)
	}
	m := overview(s, u.now)
	if s.TotalTokens > 0 {
		m.Spans = append(m.Spans, pulse.Span{Text: fmt.Sprintf("\nTokens: %d", s.TotalTokens)})
	}
	if s.TotalCostMicros > 0 {
		m.Spans = append(m.Spans, pulse.Span{Text: fmt.Sprintf("\nCost: $%.4f", float64(s.TotalCostMicros)/1e6)})
	}
	if cut := len(its) - iterations; cut > 0 {
		m.Spans = append(m.Spans, pulse.Span{Text: fmt.Sprintf("\n(%s before these)", plural(cut, "iteration"))})
		its = its[cut:]
	}
	for _, it := range its {
		m.Spans = append(m.Spans, pulse.Span{Text: iterationLine(it)})
	}
	return r.reply(ctx, u, m, s.ID)
}

func iterationLine(it pulse.Iteration) string {
	b := fmt.Sprintf("\n%d. %s", it.Number, it.Status)
	if it.Attempt > 1 {
		b += fmt.Sprintf(", attempt %d", it.Attempt)
	}
	if it.Signal != "" {
		b += ", " + string(it.Signal)
	}
	if it.CommitHash != "" {
		b += ", " + it.CommitHash[:min(7, len(it.CommitHash))] + " (" + plural(len(it.FilesChanged), "file") + ")"
	}
	text := it.OutputSummary
	if it.Error != "" {
		text = it.Error
	}
	if text = line(text, 160); text != "" {
		b += ": " + text
	}
	return b
}

func (r *Router) prompt(ctx context.Context, u *update, args string) error {
	s, _, err := r.target(ctx, u, args, false)
	if err != nil {
		return err
	}
	its, err := r.cfg.Reader.Iterations(ctx, s.ID)
	if err != nil {
		return fmt.Errorf("list iterations: %w", err)
	}
	if len(its) == 0 {
		return pulse.NotFound("session "+pulse.Short(s.ID)+" has had no prompt yet", "try again when its first iteration has begun")
	}
	it := its[len(its)-1]
	text := []rune(it.TaskContent)
	head := fmt.Sprintf("Prompt of iteration %d (%s):\n", it.Number, plural(len(text), "character"))
	if len(text) > maxPrompt {
		head = fmt.Sprintf("Prompt of iteration %d (the first %d of %d characters):\n", it.Number, maxPrompt, len(text))
		text = text[:maxPrompt]
	}
	return r.reply(ctx, u, pulse.Message{Spans: []pulse.Span{{Text: head}, {Text: string(text), Style: pulse.StylePre}}}, s.ID)
}

func (r *Router) listProjects(ctx context.Context, u *update, _ string) error {
	projects, err := r.projects(ctx)
	if err != nil {
		return err
	}
	if len(projects) == 0 {
		return r.reply(ctx, u, pulse.Text("There is no project yet: run pulse init in a repository, or name one under projects in pulse.yaml."), "")
	}
	bound, _ := r.boundProject(ctx, u, projects)
	var m pulse.Message
	for _, p := range projects {
		mark := "• "
		if p.ID == bound.ID {
			mark = "📌 "
		}
		m = with(m, mark+line(p.Name, 60)+" ", line(p.Path, 200), "\n")
	}
	return r.reply(ctx, u, m, "")
}

func (r *Router) help(ctx context.Context, u *update, _ string) error {
	var m pulse.Message
	if u.who.Role.May() {
		m.Spans = append(m.Spans, pulse.Span{Text: "Send me a goal in your own words and I work on it. While I ask something, your words are the answer; while I work, they are guidance.\n\n"})
	}
	for _, c := range Commands() {
		if c.Hide || !c.on(u.e.Platform) || c.Who == Operators && !u.who.Role.May() {
			continue
		}
		m = with(m, "", strings.TrimSpace("/"+c.Name+" "+c.Args), " "+c.Help+"\n")
	}
	return r.reply(ctx, u, m, "")
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return plural(max(0, int(d.Seconds())), "second")
	case d < time.Hour:
		return plural(int(d.Minutes()), "minute")
	case d < 48*time.Hour:
		return plural(int(d.Hours()), "hour")
	}
	return plural(int(d.Hours()/24), "day")
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	r := []rune(s)
	return strings.ToUpper(string(r[:1])) + string(r[1:])
}
