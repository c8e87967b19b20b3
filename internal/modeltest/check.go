package modeltest

import (
	"errors"
	"fmt"
	"net/http"
)

// checkConversation holds both protocols to their common rule: every tool call is answered exactly once, by a result with its
// id, after it and before the model is asked again.
func checkConversation(r Request) error {
	if len(r.Messages) == 0 {
		return errors.New("no messages")
	}
	var errs []error
	open := map[string]string{}
	for i, m := range r.Messages {
		switch m.Role {
		case "user", "assistant", "system":
		default:
			errs = append(errs, fmt.Errorf("message %d has role %q", i, m.Role))
		}
		for _, p := range m.Parts {
			switch p.Kind {
			case PartToolCall:
				if p.ID == "" || p.Tool == "" {
					errs = append(errs, fmt.Errorf("message %d: tool call without id or name", i))
				}
				open[p.ID] = p.Tool
			case PartToolResult:
				if _, ok := open[p.ID]; !ok {
					errs = append(errs, fmt.Errorf("message %d: tool result %q answers no open call", i, p.ID))
				}
				delete(open, p.ID)
			}
		}
	}
	for id, tool := range open {
		errs = append(errs, fmt.Errorf("tool call %s (%s) has no result", id, tool))
	}
	return errors.Join(errs...)
}

func checkAnthropic(r *http.Request, b anthropicBody) error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	need(r.Header.Get("X-Api-Key") != "" || r.Header.Get("Authorization") != "", "no x-api-key and no authorization header")
	need(r.Header.Get("Anthropic-Version") != "", "no anthropic-version header")
	need(b.Model != "", "no model")
	need(b.MaxTokens > 0, "no max_tokens")
	need(len(b.Messages) == 0 || b.Messages[0].Role == "user", "the first message is not the user's")
	for _, t := range b.Tools {
		need(t.Name != "", "a tool without name")
	}
	return errors.Join(errs...)
}
