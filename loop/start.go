package loop

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"pulseloop/pulse"
)

// Bounds of a goal and of its limits.
const (
	MaxGoalBytes      = 64 << 10
	MaxIterationLimit = 1000
)

// Start makes a session for a goal, due at once.
func (a *Actions) Start(ctx context.Context, r StartRequest) (pulse.Session, error) {
	now := a.cfg.Clock().UTC()
	s, err := a.newSession(r, now)
	if err != nil {
		return pulse.Session{}, err
	}
	c := pulse.Change{NewSession: &s}
	hear(&s, &c, s.Goal, now)
	c.Events = append([]pulse.Event{event(s.ID, pulse.EventSessionStarted, now, map[string]any{
		"goal": s.Goal, "project": s.ProjectName, "role": string(s.Role), "branch": s.BranchName})}, c.Events...)
	c.Audit = append(c.Audit, pulse.AuditEntry{At: now, Operator: r.Operator, Name: r.Name,
		Action: "start", Subject: string(s.ID), Detail: s.ProjectName})
	if r.Also != nil {
		r.Also(s, &c)
	}
	if err := a.store.Apply(ctx, pulse.Guard{Inbound: r.Inbound}, c); err != nil {
		return pulse.Session{}, err
	}
	return s, nil
}

func (a *Actions) newSession(r StartRequest, now time.Time) (pulse.Session, error) {
	goal, err := checkWords("goal", r.Goal)
	if err != nil {
		return pulse.Session{}, err
	}
	limit := r.MaxIterations
	if limit == 0 {
		limit = a.cfg.MaxIterations
	}
	if limit < 1 || limit > MaxIterationLimit {
		return pulse.Session{}, pulse.Invalid(fmt.Sprintf("maxIterations is %d", r.MaxIterations),
			fmt.Sprintf("give a number from 1 to %d", MaxIterationLimit))
	}
	strategy, err := checkStrategy(r.ContextStrategy)
	if err != nil {
		return pulse.Session{}, err
	}
	if r.AnchorTurnID != "" && !pulse.ValidUUID(string(r.AnchorTurnID)) {
		return pulse.Session{}, pulse.Invalid("anchorTurnId is not a turn's id", "give the id of a turn, a UUID, or leave it out")
	}
	if r.Agent != "" && len(a.cfg.Agents) > 0 && !slices.Contains(a.cfg.Agents, r.Agent) {
		return pulse.Session{}, pulse.Invalid(fmt.Sprintf("there is no agent %q", r.Agent), "use one of: "+strings.Join(a.cfg.Agents, ", "))
	}
	if !slices.Contains(pulse.Origins(), r.Origin) {
		return pulse.Session{}, pulse.Invalid(fmt.Sprintf("%q is no origin of a session", r.Origin), "")
	}
	s := pulse.Session{
		ID: pulse.SessionID(pulse.NewUUID(now)), ProjectID: r.Project.ID, ProjectName: r.Project.Name,
		Goal: goal, Role: pulse.RolePulsing, Status: pulse.SessionPending, MaxIterations: limit, Run: 1,
		AnchorTurnID: r.AnchorTurnID, ContextStrategy: strategy,
		Agent: firstOf(r.Agent, r.Project.Agent, a.cfg.DefaultAgent), BaseBranch: r.Project.BaseBranch,
		CreatedBy: r.Origin, CreatedByID: r.Operator,
		ChatID: r.ChatID, ChatThreadID: r.ChatThreadID, PhoneNumber: r.PhoneNumber,
		DiscordThreadID: r.DiscordThreadID, ConsoleID: r.ConsoleID,
		DueAt: now, CreatedAt: now, UpdatedAt: now,
	}
	s.BranchName = r.BranchName
	if s.BranchName == "" {
		s.BranchName = "pulse/" + slug(goal) + "-" + pulse.Short(s.ID)
	}
	if err := checkBranch(s.BranchName); err != nil {
		return pulse.Session{}, err
	}
	return s, nil
}

// checkWords refuses what a person cannot have meant to say.
func checkWords(what, text string) (string, error) {
	text = strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD"))
	if strings.IndexFunc(text, func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsSymbol(r) || unicode.IsPunct(r)
	}) < 0 {
		return "", pulse.Invalid("the "+what+" is empty", "say in words what is to be done")
	}
	if len(text) > MaxGoalBytes {
		return "", &pulse.Error{Code: pulse.CodeTooLarge, Message: fmt.Sprintf("the %s has %d bytes", what, len(text)),
			Hint: fmt.Sprintf("at most %d are taken; put the long part into a file of the repository and name it", MaxGoalBytes)}
	}
	return text, nil
}

func checkStrategy(c pulse.ContextStrategy) (pulse.ContextStrategy, error) {
	switch c {
	case "":
		return pulse.ContextPrefetch, nil
	case pulse.ContextNone, pulse.ContextPrefetch:
		return c, nil
	case pulse.ContextMCP, pulse.ContextHybrid:
		return "", &pulse.Error{Code: pulse.CodeUnprocessed, Message: fmt.Sprintf("the context strategy %q needs the tool server, which this version does not have", c),
			Hint: "use prefetch or none"}
	}
	return "", pulse.Invalid(fmt.Sprintf("%q is no context strategy", c), "use none or prefetch")
}

var (
	badBranch  = regexp.MustCompile(`[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|^[-/.]|[/.]$|^@$`)
	goodBranch = regexp.MustCompile(`^[\p{L}\p{N}._/#+@=-]+$`)
)

// checkBranch refuses names that git refuses, and those that would mean
// something else on a command line.
func checkBranch(name string) error {
	if len(name) > 200 || badBranch.MatchString(name) || !goodBranch.MatchString(name) || !utf8.ValidString(name) {
		return pulse.Invalid(fmt.Sprintf("%.60q cannot be a branch name", name),
			"use letters, digits, '-', '_', '.', '/', at most 200 bytes, not starting with '-' or '.'")
	}
	return nil
}

// slug makes a short name out of a goal: its first words, in ASCII.
func slug(goal string) string {
	var words []string
	for w := range strings.FieldsFuncSeq(strings.ToLower(goal), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) {
		words = append(words, w)
		if len(words) == 5 {
			break
		}
	}
	out := strings.Join(words, "-")
	if len(out) > 40 {
		out = strings.TrimRight(out[:40], "-")
	}
	if out == "" {
		return "goal"
	}
	return out
}

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}
