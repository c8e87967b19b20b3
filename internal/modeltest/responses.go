package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Responses starts a server that speaks the OpenAI Responses API: POST /v1/responses (streamed or not) and GET /v1/models.
// Its base URL is Server.URL + "/v1".
func Responses(scripts ...Script) *Server {
	return newServer(scripts, func(s *Server, mux *http.ServeMux) {
		mux.HandleFunc("POST /v1/responses", s.responses)
		mux.HandleFunc("GET /v1/models", s.models)
	})
}

type responsesBody struct {
	Model          string          `json:"model"`
	Instructions   string          `json:"instructions"`
	Stream         bool            `json:"stream"`
	PromptCacheKey string          `json:"prompt_cache_key"`
	Input          json.RawMessage `json:"input"`
	Tools          []responsesTool `json:"tools"`
}

type responsesTool struct {
	Type  string          `json:"type"`
	Name  string          `json:"name"`
	Tools []responsesTool `json:"tools"`
}

type responsesItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Summary   json.RawMessage `json:"summary"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Output    json.RawMessage `json:"output"`
	Tools     []responsesTool `json:"tools"`
}

func (s *Server) responses(w http.ResponseWriter, r *http.Request) {
	req, freeform, err := decodeResponses(r)
	s.record(req)
	if err == nil {
		err = errors.Join(checkResponses(r, req), checkConversation(req))
	}
	var a answer
	if err == nil {
		a, err = s.decide(req)
	}
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, responsesError("server_error", "modeltest: "+s.violate("POST /v1/responses: %v", err)))
		return
	}
	if a.fault != nil && a.fault.Status != 0 {
		refuse(w, *a.fault, responsesFault(*a.fault))
		return
	}
	answer, err := s.responsesAnswer(req, a, freeform)
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, responsesError("server_error", "modeltest: "+s.violate("%v", err)))
		return
	}
	if !req.Stream {
		writeJSON(w, http.StatusOK, answer.whole("completed"))
		return
	}
	s.stream(w, r, answer.events(), a.fault)
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{
		map[string]any{"id": ResponsesModel, "object": "model", "created": 0, "owned_by": "scripted"},
	}, "models": []any{}})
}

func checkResponses(r *http.Request, req Request) error {
	var errs []error
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
		errs = append(errs, errors.New("no bearer authorization header"))
	}
	if req.Model == "" {
		errs = append(errs, errors.New("no model"))
	}
	return errors.Join(errs...)
}

// decodeResponses also returns which of the tools are freeform, because their calls look different on the wire.
func decodeResponses(r *http.Request) (Request, map[string]bool, error) {
	var body responsesBody
	raw, err := readJSON(r, &body)
	req := Request{Path: r.URL.Path, Header: r.Header.Clone(), Body: raw, Model: body.Model, Stream: body.Stream, System: body.Instructions}
	if err != nil {
		return req, nil, err
	}
	req.Session = body.PromptCacheKey
	if id := r.Header.Get("Session-Id"); id != "" {
		req.Session = id
	}
	items, err := responsesItems(body.Input)
	if err != nil {
		return req, nil, err
	}
	freeform := map[string]bool{}
	for _, t := range append(body.Tools, additionalTools(items)...) {
		req.Tools = append(req.Tools, t.names(freeform)...)
	}
	req.Messages, err = responsesMessages(items)
	return req, freeform, err
}

// additionalTools collects the tools that newer clients put into the input instead of beside it.
func additionalTools(items []responsesItem) []responsesTool {
	var out []responsesTool
	for _, it := range items {
		if it.Type == "additional_tools" {
			out = append(out, it.Tools...)
		}
	}
	return out
}

// names lists a tool, or the tools of a namespace as namespace.tool; the namespace "functions" is the default and goes unsaid.
func (t responsesTool) names(freeform map[string]bool) []string {
	if t.Type == "namespace" {
		var out []string
		for _, inner := range t.Tools {
			for _, name := range inner.names(freeform) {
				if t.Name != "functions" {
					name = t.Name + "." + name
				}
				out = append(out, name)
			}
		}
		return out
	}
	if t.Name == "" {
		return []string{t.Type}
	}
	freeform[t.Name] = t.Type == "custom"
	return []string{t.Name}
}

// responsesItems reads the input, whose short form is a string.
func responsesItems(input json.RawMessage) ([]responsesItem, error) {
	var text string
	if json.Unmarshal(input, &text) == nil && text != "" {
		return []responsesItem{{Type: "message", Role: "user", Content: input}}, nil
	}
	var items []responsesItem
	if err := json.Unmarshal(input, &items); err != nil {
		return nil, fmt.Errorf("input is neither a string nor an array of items: %w", err)
	}
	return items, nil
}

func responsesMessages(items []responsesItem) ([]Message, error) {
	var out []Message
	for i, it := range items {
		if it.Type == "additional_tools" {
			continue
		}
		m, err := it.message()
		if err != nil {
			return nil, fmt.Errorf("input[%d]: %w", i, err)
		}
		out = append(out, m)
	}
	return out, nil
}

func (it responsesItem) message() (Message, error) {
	one := func(role string, p Part) (Message, error) { return Message{Role: role, Parts: []Part{p}}, nil }
	switch it.Type {
	case "message", "":
		if it.Role == "" {
			return Message{}, errors.New("a message without role")
		}
		text, err := flatten(it.Content)
		role := it.Role
		if role == "developer" {
			role = "system"
		}
		return Message{Role: role, Parts: []Part{{Kind: PartText, Text: text}}}, err
	case "reasoning":
		text, err := flatten(it.Summary)
		return Message{Role: "assistant", Parts: []Part{{Kind: PartThinking, Text: text}}}, err
	case "function_call":
		return one("assistant", Part{Kind: PartToolCall, ID: it.CallID, Tool: it.Name, Input: it.Arguments})
	case "custom_tool_call":
		return one("assistant", Part{Kind: PartToolCall, ID: it.CallID, Tool: it.Name, Input: it.Input})
	case "function_call_output", "custom_tool_call_output":
		text, err := flatten(it.Output)
		return Message{Role: "user", Parts: []Part{{Kind: PartToolResult, ID: it.CallID, Text: text}}}, err
	}
	return one("assistant", Part{Kind: PartOther, Text: it.Type})
}

func responsesError(code, message string) map[string]any {
	return map[string]any{"error": map[string]any{"type": code, "code": code, "message": message, "param": nil}}
}

func responsesFault(f Fault) map[string]any {
	code, message := "server_error", "The server had an error while processing your request"
	switch f.Status {
	case http.StatusBadRequest:
		code, message = "invalid_request_error", "Bad request"
	case http.StatusUnauthorized:
		code, message = "invalid_api_key", "Incorrect API key provided"
	case http.StatusTooManyRequests:
		code, message = "rate_limit_exceeded", "Rate limit reached"
	}
	if f.Message != "" {
		message = f.Message
	}
	return responsesError(code, message)
}
