package claude

import (
	"encoding/json"
	"fmt"
	"strings"

	"pulseloop/agent/cli"
	"pulseloop/pulse"
)

// frame is any line of the stream; unknown fields and types are skipped.
type frame struct {
	Type      string          `json:"type"`
	Subtype   string          `json:"subtype"`
	Parent    *string         `json:"parent_tool_use_id"`
	SessionID string          `json:"session_id"`
	Model     string          `json:"model"`
	Message   message         `json:"message"`
	Event     json.RawMessage `json:"event"`
	RateLimit rateLimit       `json:"rate_limit_info"`
	retry
	outcome
}

type retry struct {
	Attempt     cli.Count       `json:"attempt"`
	MaxRetries  cli.Count       `json:"max_retries"`
	RetryDelay  cli.Count       `json:"retry_delay_ms"`
	ErrorStatus cli.Count       `json:"error_status"`
	Error       json.RawMessage `json:"error"`
}

type rateLimit struct {
	Status   string    `json:"status"`
	ResetsAt cli.Count `json:"resetsAt"`
	Kind     string    `json:"rateLimitType"`
}

type message struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"`
}

type block struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`

	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// synthetic is the model the CLI names when it speaks itself, such as about
// an error of the API.
const synthetic = "<synthetic>"

// maxOpenTools bounds how many calls without a result are remembered.
const maxOpenTools = 4096

type decoder struct {
	dir      string
	emit     func(cli.Event)
	started  bool
	lastText string
	tools    map[string]string // call id -> name
	meter    meter
	result   *cli.Result
}

func newDecoder(dir string, emit func(cli.Event)) *decoder {
	return &decoder{dir: dir, emit: emit, tools: map[string]string{}, meter: meter{open: map[string]pulse.Usage{}}}
}

// line decodes one line. Its error is errEnough when waiting on is no use.
func (d *decoder) line(l cli.Line) error {
	var f frame
	if !cli.Decode(l.Text, &f) {
		if l.Cut {
			d.note(fmt.Sprintf("a line of %d bytes was left out", l.Size))
		}
		return nil
	}
	own := f.Parent == nil || *f.Parent == ""
	switch f.Type {
	case "system":
		return d.system(f)
	case "assistant":
		d.assistant(f.Message, own)
	case "user":
		d.toolResults(f.Message)
	case "stream_event":
		d.partial(f, own)
	case "rate_limit_event":
		if s := f.RateLimit.Status; s != "" && s != "allowed" {
			d.note(strings.TrimSpace(fmt.Sprintf("usage limit of the account: %s %s", cli.OneLine(s), cli.OneLine(f.RateLimit.Kind))))
		}
	case "result":
		d.end(f)
	}
	return nil
}

func (d *decoder) note(text string) { d.say(cli.EventNote, text) }

// say tells a text cleaned, if anything is left of it.
func (d *decoder) say(kind cli.EventKind, text string) {
	if text = cli.Clean(text); text != "" {
		d.emit(cli.Event{Kind: kind, Text: text})
	}
}

func (d *decoder) system(f frame) error {
	switch f.Subtype {
	case "init":
		if !d.started {
			d.started = true
			d.emit(cli.Event{Kind: cli.EventStarted, Conversation: cli.OneLine(f.SessionID), Model: cli.OneLine(f.Model)})
		}
	case "compact_boundary":
		d.note("the conversation was summarised to make room")
	case "api_retry":
		return d.retry(f.retry)
	}
	return nil
}

// retry tells of a failed request. The CLI tries a refused key ten times over
// minutes; once more is enough.
func (d *decoder) retry(r retry) error {
	kind := rawText(r.Error)
	if kind == "authentication_failed" && r.Attempt >= 2 {
		d.result = &cli.Result{
			FinalText: d.lastText, Failed: true, Hint: fixLogin, Usage: d.meter.total(),
			Error: fmt.Sprintf("the credentials were refused (status %d)", r.ErrorStatus),
		}
		return errEnough
	}
	text := "the model could not be reached"
	if r.ErrorStatus > 0 {
		text = fmt.Sprintf("the model's server answered %d", r.ErrorStatus)
	}
	if kind != "" && kind != "unknown" {
		text += " (" + cli.OneLine(strings.ReplaceAll(kind, "_", " ")) + ")"
	}
	d.note(fmt.Sprintf("%s; attempt %d of %d in %.0f s", text, r.Attempt, r.MaxRetries, float64(r.RetryDelay)/1000))
	return nil
}

// assistant tells the blocks of a message. Those of a sub-agent are its own
// affair, but for the tools it calls.
func (d *decoder) assistant(m message, own bool) {
	for _, b := range blocks(m.Content) {
		switch {
		case b.Type == "tool_use":
			d.toolStart(b)
		case !own || m.Model == synthetic:
		case b.Type == "text" && b.Text != "":
			d.lastText = cli.Clean(b.Text)
			d.say(cli.EventText, b.Text)
		case b.Type == "thinking":
			d.say(cli.EventThought, b.Thinking)
		}
	}
}

func (d *decoder) toolStart(b block) {
	if _, open := d.tools[b.ID]; open || b.ID == "" || len(d.tools) >= maxOpenTools {
		return
	}
	d.tools[b.ID] = b.Name
	d.emit(cli.Event{Kind: cli.EventToolStart, Tool: &cli.Tool{
		ID: b.ID, Name: cli.OneLine(b.Name), Input: b.Input, Summary: cli.Summarize(b.Name, b.Input, d.dir),
	}})
}

func (d *decoder) toolResults(m message) {
	for _, b := range blocks(m.Content) {
		name, open := d.tools[b.ToolUseID]
		if b.Type != "tool_result" || !open {
			continue
		}
		delete(d.tools, b.ToolUseID)
		d.emit(cli.Event{Kind: cli.EventToolEnd, Tool: &cli.Tool{
			ID: b.ToolUseID, Name: cli.OneLine(name), Failed: b.IsError,
			Output: cli.CutMiddle(cli.Clean(contentText(b.Content)), cli.MaxToolOutput-64),
		}})
	}
}

// blocks reads a message's content, which is a list or a plain text.
func blocks(content json.RawMessage) []block {
	var list []json.RawMessage
	if json.Unmarshal(content, &list) != nil {
		if text := rawText(content); text != "" {
			return []block{{Type: "text", Text: text}}
		}
		return nil
	}
	out := make([]block, 0, len(list))
	for _, raw := range list {
		var b block
		if cli.Decode(raw, &b) {
			out = append(out, b)
		}
	}
	return out
}

// contentText reads a tool's result: a text, a list of blocks, or any object.
func contentText(content json.RawMessage) string {
	if text := rawText(content); text != "" {
		return text
	}
	var list []json.RawMessage
	if json.Unmarshal(content, &list) == nil {
		var parts []string
		for _, raw := range list {
			var b block
			switch {
			case !cli.Decode(raw, &b):
				parts = append(parts, rawText(raw))
			case b.Text != "":
				parts = append(parts, b.Text)
			case b.Type != "" && b.Type != "text":
				parts = append(parts, "["+b.Type+"]")
			}
		}
		return strings.Join(parts, "\n")
	}
	if s := string(content); s != "null" {
		return strings.Trim(s, `"`)
	}
	return ""
}

func rawText(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}
