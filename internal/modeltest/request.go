package modeltest

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
)

// Request is a model request decoded to what both protocols have in common.
type Request struct {
	// Path is the URL path and Header what came with it.
	Path   string
	Header http.Header
	// Session identifies the conversation across the requests of one CLI run, where the client tells.
	Session string
	Model   string
	// System is the instructions, without the conversation.
	System   string
	Messages []Message
	// Tools are the names of the tools the model may call.
	Tools  []string
	Stream bool
	// Body is the request as it came.
	Body json.RawMessage
}

// PartKind says what a Part is.
type PartKind string

// What a message consists of.
const (
	PartText       PartKind = "text"
	PartThinking   PartKind = "thinking"
	PartToolCall   PartKind = "tool_call"
	PartToolResult PartKind = "tool_result"
	PartOther      PartKind = "other"
)

// Message is one entry of a conversation. Role is user, assistant, or system (which covers developer messages).
type Message struct {
	Role  string
	Parts []Part
}

// Part is a block of a message.
type Part struct {
	Kind PartKind
	// Text is the text, the thought, or the tool's output.
	Text string
	// ID ties a tool's result to its call.
	ID string
	// Tool and Input belong to a call. Freeform input is kept as it came.
	Tool  string
	Input string
	// Failed is set on a result the client marked as an error.
	Failed bool
}

// Prompt is the last plain thing a person said: the newest user message with text of its own, without tool results and
// without the blocks that clients weave in.
func (r Request) Prompt() string {
	if i := r.lastPrompt(); i >= 0 {
		return plainText(r.Messages[i])
	}
	return ""
}

// Rounds counts the tool rounds since the last prompt; several calls in one answer are one round.
func (r Request) Rounds() int {
	n, open := 0, false
	for _, m := range r.Messages[r.lastPrompt()+1:] {
		if m.Role != "user" {
			open = false
			continue
		}
		if !open && m.has(PartToolResult) {
			n, open = n+1, true
		}
	}
	return n
}

// Results are the tool results since the last prompt, oldest first.
func (r Request) Results() []Part {
	var out []Part
	for _, m := range r.Messages[r.lastPrompt()+1:] {
		for _, p := range m.Parts {
			if p.Kind == PartToolResult {
				out = append(out, p)
			}
		}
	}
	return out
}

// Offers says whether the model may call the tool.
func (r Request) Offers(tool string) bool {
	for _, t := range r.Tools {
		if t == tool {
			return true
		}
	}
	return false
}

func (r Request) lastPrompt() int {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		m := r.Messages[i]
		if m.Role == "user" && !m.has(PartToolResult) && plainText(m) != "" {
			return i
		}
	}
	return -1
}

// conversation is the key under which a Once script remembers whom it belongs to.
func (r Request) conversation() string {
	if r.Session != "" {
		return r.Session
	}
	for _, m := range r.Messages {
		if t := plainText(m); m.Role == "user" && t != "" {
			return t
		}
	}
	return ""
}

func (m Message) has(k PartKind) bool {
	for _, p := range m.Parts {
		if p.Kind == k {
			return true
		}
	}
	return false
}

// woven matches the blocks that clients put into user messages by themselves; nobody said those.
var woven = regexp.MustCompile(`(?s)<system-reminder>.*?</system-reminder>|<environment_context>.*?</environment_context>|` +
	`<user_instructions>.*?</user_instructions>|<turn_aborted>.*?</turn_aborted>|\[Request interrupted by user[^\]]*\]`)

func plainText(m Message) string {
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Kind == PartText {
			b.WriteString(p.Text)
			b.WriteByte('\n')
		}
	}
	return strings.TrimSpace(woven.ReplaceAllString(b.String(), ""))
}
