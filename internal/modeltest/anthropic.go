package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Anthropic starts a server that speaks the Messages API: POST /v1/messages (streamed or not), POST
// /v1/messages/count_tokens, and the reachability probes. Its base URL is Server.URL.
func Anthropic(scripts ...Script) *Server {
	return newServer(scripts, func(s *Server, mux *http.ServeMux) {
		mux.HandleFunc("POST /v1/messages", s.messages)
		mux.HandleFunc("POST /v1/messages/count_tokens", s.countTokens)
	})
}

type anthropicBody struct {
	Model     string          `json:"model"`
	MaxTokens int             `json:"max_tokens"`
	System    json.RawMessage `json:"system"`
	Stream    bool            `json:"stream"`
	Metadata  struct {
		UserID string `json:"user_id"`
	} `json:"metadata"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	req, body, err := decodeAnthropic(r)
	s.record(req)
	if err == nil {
		err = errors.Join(checkAnthropic(r, body), checkConversation(req))
	}
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, anthropicError("api_error", "modeltest: "+s.violate("POST /v1/messages: %v", err)))
		return
	}
	if anthropicBackground(req, body) {
		s.sendAnthropic(w, r, req, answer{steps: []Step{Say("ok")}})
		return
	}
	a, err := s.decide(req)
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, anthropicError("api_error", "modeltest: "+s.violate("POST /v1/messages: %v", err)))
		return
	}
	if a.fault != nil && a.fault.Status != 0 {
		refuse(w, *a.fault, anthropicFault(*a.fault))
		return
	}
	s.sendAnthropic(w, r, req, a)
}

func (s *Server) sendAnthropic(w http.ResponseWriter, r *http.Request, req Request, a answer) {
	msg, err := s.anthropicMessage(req, a)
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, anthropicError("api_error", "modeltest: "+s.violate("%v", err)))
		return
	}
	if !req.Stream {
		writeJSON(w, http.StatusOK, msg.whole())
		return
	}
	s.stream(w, r, msg.events(), a.fault)
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	req, _, err := decodeAnthropic(r)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, anthropicError("invalid_request_error", s.violate("POST /v1/messages/count_tokens: %v", err)))
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"input_tokens": len(req.Body) / 4})
}

// anthropicBackground recognises what Claude Code asks on its own account: the one-token quota probe. Everything else has to
// be expected by a script.
func anthropicBackground(req Request, body anthropicBody) bool {
	return body.MaxTokens == 1 && len(req.Tools) == 0
}

func decodeAnthropic(r *http.Request) (Request, anthropicBody, error) {
	var body anthropicBody
	raw, err := readJSON(r, &body)
	req := Request{Path: r.URL.Path, Header: r.Header.Clone(), Body: raw, Model: body.Model, Stream: body.Stream}
	if err != nil {
		return req, body, err
	}
	req.Session = anthropicSession(r.Header, body.Metadata.UserID)
	if req.System, err = flatten(body.System); err != nil {
		return req, body, fmt.Errorf("system: %w", err)
	}
	for _, t := range body.Tools {
		req.Tools = append(req.Tools, t.Name)
	}
	for i, m := range body.Messages {
		parts, err := anthropicParts(m.Content)
		if err != nil {
			return req, body, fmt.Errorf("messages[%d]: %w", i, err)
		}
		req.Messages = append(req.Messages, Message{Role: m.Role, Parts: parts})
	}
	return req, body, nil
}

// anthropicSession finds the CLI's session id, which it sends as a header or inside metadata.user_id.
func anthropicSession(h http.Header, userID string) string {
	if id := h.Get("X-Claude-Code-Session-Id"); id != "" {
		return id
	}
	var meta struct {
		SessionID string `json:"session_id"`
	}
	if json.Unmarshal([]byte(userID), &meta) == nil && meta.SessionID != "" {
		return meta.SessionID
	}
	if _, id, ok := strings.Cut(userID, "_session_"); ok {
		return id
	}
	return ""
}

func anthropicParts(content json.RawMessage) ([]Part, error) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []Part{{Kind: PartText, Text: text}}, nil
	}
	var blocks []anthropicBlock
	if err := json.Unmarshal(content, &blocks); err != nil {
		return nil, fmt.Errorf("content is neither a string nor an array of blocks: %w", err)
	}
	var parts []Part
	for _, b := range blocks {
		p, err := b.part()
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func (b anthropicBlock) part() (Part, error) {
	switch b.Type {
	case "text":
		return Part{Kind: PartText, Text: b.Text}, nil
	case "thinking":
		return Part{Kind: PartThinking, Text: b.Thinking}, nil
	case "tool_use":
		return Part{Kind: PartToolCall, ID: b.ID, Tool: b.Name, Input: string(b.Input)}, nil
	case "tool_result":
		text, err := flatten(b.Content)
		return Part{Kind: PartToolResult, ID: b.ToolUseID, Text: text, Failed: b.IsError}, err
	case "":
		return Part{}, errors.New("a block without type")
	}
	return Part{Kind: PartOther, Text: b.Type}, nil
}

// flatten turns a string, or an array of text blocks, into one text.
func flatten(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var blocks []anthropicBlock
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return "", fmt.Errorf("neither a string nor an array of blocks: %w", err)
	}
	var texts []string
	for _, b := range blocks {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n"), nil
}

func anthropicError(kind, message string) map[string]any {
	return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}, "request_id": "req_scripted"}
}

func anthropicFault(f Fault) map[string]any {
	kind, message := "api_error", "Internal server error"
	switch f.Status {
	case http.StatusBadRequest:
		kind, message = "invalid_request_error", "Bad request"
	case http.StatusUnauthorized:
		kind, message = "authentication_error", "invalid x-api-key"
	case http.StatusTooManyRequests:
		kind, message = "rate_limit_error", "This request would exceed your rate limit"
	case 529:
		kind, message = "overloaded_error", "Overloaded"
	}
	if f.Message != "" {
		message = f.Message
	}
	return anthropicError(kind, message)
}
