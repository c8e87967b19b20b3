package api

import (
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"pulseloop/api/wire"
	"pulseloop/loop"
	"pulseloop/pulse"
)

const mostIterations = 1000

var (
	phone   = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)
	discord = regexp.MustCompile(`^[0-9]{1,20}$`)
)

func (s *Server) start(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req wire.Start
	if err := s.body(w, r, &req); err != nil {
		return 0, nil, err
	}
	a, err := actor(r)
	if err != nil {
		return 0, nil, err
	}
	if req.CreatedBy != "" {
		if a.Origin, err = originOf(req.CreatedBy, "createdBy"); err != nil {
			return 0, nil, err
		}
		a.Name = clientNames[a.Origin]
	}
	out, err := startRequest(req)
	if err != nil {
		return 0, nil, err
	}
	out.Actor = a
	if out.Project, err = s.startProject(r.Context(), req); err != nil {
		return 0, nil, err
	}
	started, err := s.cfg.Doer.Start(r.Context(), out)
	return http.StatusCreated, wire.SessionReply{Session: wire.FromSession(started)}, err
}

// startRequest checks what can be checked without asking anybody.
func startRequest(req wire.Start) (loop.StartRequest, error) {
	out := loop.StartRequest{
		Goal: strings.TrimSpace(req.Goal), BranchName: req.BranchName, AnchorTurnID: req.AnchorTurnID,
		ContextStrategy: req.ContextStrategy, Agent: req.Agent,
		ChatID: string(req.ChatID), PhoneNumber: req.PhoneNumber, DiscordThreadID: req.DiscordThreadID,
	}
	if req.MaxIterations != nil {
		if out.MaxIterations = *req.MaxIterations; out.MaxIterations < 1 || out.MaxIterations > mostIterations {
			return out, pulse.Invalid("maxIterations cannot be "+strconv.Itoa(out.MaxIterations), "use a whole number from 1 to "+strconv.Itoa(mostIterations))
		}
	}
	for _, c := range []struct {
		ok            bool
		message, hint string
	}{
		{out.Goal != "", "goal is missing", "say as goal what is to be done"},
		{req.ProjectName != "" || req.ProjectPath != "", "projectName and projectPath are missing", "name a registered project, or give the path of a repository"},
		{len(req.ProjectName) <= 100 && oneLine(req.ProjectName), "projectName cannot be " + quote(req.ProjectName), "use at most 100 bytes on one line"},
		{req.ProjectPath == "" || filepath.IsAbs(req.ProjectPath), "projectPath cannot be " + quote(req.ProjectPath), "use an absolute path"},
		{len(req.ProjectPath) <= 4096, "projectPath is too long", "use at most 4096 bytes"},
		{len(req.BranchName) <= 200 && oneLine(req.BranchName) && !strings.HasPrefix(req.BranchName, "-"), "branchName cannot be " + quote(req.BranchName), "use a branch name that git accepts"},
		{len(req.Agent) <= 100 && oneLine(req.Agent), "agent cannot be " + quote(req.Agent), "use the name of an agent, such as claude or codex"},
		{req.ChatID == "" || isInt(string(req.ChatID)), "chatId cannot be " + quote(string(req.ChatID)), "use the number of a Telegram chat"},
		{req.PhoneNumber == "" || phone.MatchString(req.PhoneNumber), "phoneNumber cannot be " + quote(req.PhoneNumber), "use the international form, such as +4930123456"},
		{req.DiscordThreadID == "" || discord.MatchString(req.DiscordThreadID), "discordThreadId cannot be " + quote(req.DiscordThreadID), "use the number of a Discord thread"},
		{req.AnchorTurnID == "" || pulse.ValidUUID(string(req.AnchorTurnID)), "anchorTurnId cannot be " + quote(string(req.AnchorTurnID)), "use the id of a turn, a UUID"},
		{strategies[req.ContextStrategy], "contextStrategy cannot be " + quote(string(req.ContextStrategy)), "use none, prefetch, mcp or hybrid"},
	} {
		if !c.ok {
			return out, pulse.Invalid(c.message, c.hint)
		}
	}
	return out, textLength("goal", out.Goal)
}

var strategies = map[pulse.ContextStrategy]bool{"": true, pulse.ContextNone: true, pulse.ContextPrefetch: true, pulse.ContextMCP: true, pulse.ContextHybrid: true}

// startProject finds the project by its name, or registers its path.
func (s *Server) startProject(ctx context.Context, req wire.Start) (pulse.Project, error) {
	if req.ProjectPath == "" {
		return s.project(ctx, req.ProjectName)
	}
	name := req.ProjectName
	if name == "" {
		name = filepath.Base(filepath.Clean(req.ProjectPath))
	}
	return s.register(ctx, name, req.ProjectPath)
}

func isInt(s string) bool {
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil
}

func oneLine(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}

// textLength bounds what people write, in the measure and the words of loop,
// which would refuse it too, but later.
func textLength(name, text string) error {
	if len(text) > loop.MaxGoalBytes {
		return &pulse.Error{Code: pulse.CodeTooLarge, Message: "the " + name + " has " + strconv.Itoa(len(text)) + " bytes",
			Hint: "at most " + strconv.Itoa(loop.MaxGoalBytes) + " are taken; put the long part into a file of the repository and name it"}
	}
	return nil
}
