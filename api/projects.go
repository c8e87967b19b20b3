package api

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

func (s *Server) projects(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	all, err := s.cfg.Reader.Projects(r.Context())
	out := wire.ProjectList{Projects: []wire.Project{}}
	for _, p := range all {
		out.Projects = append(out.Projects, wire.FromProject(p))
	}
	return http.StatusOK, out, err
}

func (s *Server) addProject(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req wire.NewProject
	if err := s.body(w, r, &req); err != nil {
		return 0, nil, err
	}
	if req.Path == "" || !filepath.IsAbs(req.Path) || len(req.Path) > 4096 {
		return 0, nil, pulse.Invalid("path cannot be "+quote(req.Path), "use the absolute path of a repository")
	}
	if req.Name == "" {
		req.Name = filepath.Base(filepath.Clean(req.Path))
	}
	if len(req.Name) > 100 || !oneLine(req.Name) {
		return 0, nil, pulse.Invalid("name cannot be "+quote(req.Name), "use at most 100 bytes on one line")
	}
	p, err := s.register(r.Context(), req.Name, req.Path)
	return http.StatusCreated, wire.ProjectReply{Project: wire.FromProject(p)}, err
}

func (s *Server) register(ctx context.Context, name, path string) (pulse.Project, error) {
	if s.cfg.Registrar == nil {
		return pulse.Project{}, &pulse.Error{Code: pulse.CodeUnprocessed, Message: "this server registers no projects",
			Hint: "add the project to pulse.yaml where the agents run"}
	}
	return s.cfg.Registrar.Register(ctx, name, path)
}

// project finds a registered project by its name or id.
func (s *Server) project(ctx context.Context, name string) (pulse.Project, error) {
	all, err := s.cfg.Reader.Projects(ctx)
	if err != nil {
		return pulse.Project{}, err
	}
	known := make([]string, 0, len(all))
	for _, p := range all {
		if p.Name == name || string(p.ID) == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	hint := "give projectPath to register one"
	if len(known) > 0 {
		hint += "; registered are " + strings.Join(known[:min(len(known), 20)], ", ")
	}
	return pulse.Project{}, pulse.NotFound("there is no project "+quote(name), hint)
}

func (s *Server) pair(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req wire.Pair
	if err := s.optional(w, r, &req); err != nil {
		return 0, nil, err
	}
	switch req.Role {
	case "":
		req.Role = pulse.RoleOperator
	case pulse.RoleOwner, pulse.RoleOperator, pulse.RoleViewer:
	default:
		return 0, nil, pulse.Invalid("role cannot be "+quote(string(req.Role)), "use owner, operator or viewer")
	}
	if s.cfg.Pairer == nil {
		return 0, nil, &pulse.Error{Code: pulse.CodeUnprocessed, Message: "there is no bot to pair with",
			Hint: "configure a bot first: pulse init, or telegram.token"}
	}
	code, expires, err := s.cfg.Pairer.NewCode(r.Context(), req.Role)
	return http.StatusCreated, wire.PairReply{Code: code, Role: req.Role, ExpiresAt: expires.UTC()}, err
}
