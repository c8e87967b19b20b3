package codex

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"pulseloop/agent/cli"
	"pulseloop/pulse"
)

// frame is any line of the stream; unknown fields and types are skipped.
type frame struct {
	Type     string          `json:"type"`
	ThreadID string          `json:"thread_id"`
	Item     json.RawMessage `json:"item"`
	Usage    usage           `json:"usage"`
	Message  string          `json:"message"`
	Error    struct {
		Message string `json:"message"`
	} `json:"error"`
}

// usage as the CLI counts: cached tokens are part of the input, reasoning is
// part of the output.
type usage struct {
	Input      cli.Count `json:"input_tokens"`
	CacheRead  cli.Count `json:"cached_input_tokens"`
	CacheWrite cli.Count `json:"cache_write_input_tokens"`
	Output     cli.Count `json:"output_tokens"`
}

func (u usage) neutral() pulse.Usage {
	return pulse.Usage{
		InputTokens:      max(0, int64(u.Input-u.CacheRead-u.CacheWrite)),
		CacheReadTokens:  int64(u.CacheRead),
		CacheWriteTokens: int64(u.CacheWrite),
		OutputTokens:     int64(u.Output),
	}
}

type item struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Text    string `json:"text"`
	Message string `json:"message"`
	Status  string `json:"status"`

	Command  string `json:"command"`
	Output   string `json:"aggregated_output"`
	ExitCode *int   `json:"exit_code"`

	Changes []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`

	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Failure   struct {
		Message string `json:"message"`
	} `json:"error"`

	Query string `json:"query"`
}

// maxOpenTools bounds how many calls without an end are remembered.
const maxOpenTools = 4096

type decoder struct {
	dir, model string
	emit       func(cli.Event)

	started   bool
	ended     bool // turn.completed or turn.failed
	failed    bool
	lastText  string
	lastError string
	usage     pulse.Usage
	open      map[string]bool // calls told as started
}

func (d *decoder) line(l cli.Line) {
	var f frame
	if !cli.Decode(l.Text, &f) {
		if l.Cut {
			d.note(fmt.Sprintf("a line of %d bytes was left out", l.Size))
		}
		return
	}
	switch f.Type {
	case "thread.started":
		if !d.started {
			d.started = true
			d.emit(cli.Event{Kind: cli.EventStarted, Conversation: cli.OneLine(f.ThreadID), Model: d.model})
		}
	case "turn.started":
		d.ended, d.failed = false, false
	case "item.started", "item.updated", "item.completed":
		var it item
		if cli.Decode(f.Item, &it) {
			d.item(it, f.Type == "item.completed")
		}
	case "error":
		d.trouble(f.Message)
	case "turn.completed":
		d.ended, d.failed, d.usage = true, false, f.Usage.neutral()
		u := d.usage
		d.emit(cli.Event{Kind: cli.EventUsage, Usage: &u})
	case "turn.failed":
		d.ended, d.failed = true, true
		if f.Error.Message != "" {
			d.lastError = plainError(f.Error.Message)
		}
	}
}

func (d *decoder) note(text string) { d.say(cli.EventNote, text) }

// say tells a text cleaned, if anything is left of it.
func (d *decoder) say(kind cli.EventKind, text string) {
	if text = cli.Clean(text); text != "" {
		d.emit(cli.Event{Kind: kind, Text: text})
	}
}

// trouble takes an error line. Most announce another attempt; the last one
// before a failed turn repeats its reason.
func (d *decoder) trouble(message string) {
	message = plainError(message)
	if message == "" {
		return
	}
	if !strings.HasPrefix(message, "Reconnecting") {
		d.lastError = message
	}
	d.note(cli.OneLine(message))
}

func (d *decoder) item(it item, completed bool) {
	switch it.Type {
	case "agent_message":
		if completed && it.Text != "" {
			d.lastText = cli.Clean(it.Text)
			d.say(cli.EventText, it.Text)
		}
	case "reasoning":
		if completed {
			d.say(cli.EventThought, it.Text)
		}
	case "error":
		if completed {
			d.note(cli.OneLine(plainError(it.Message)))
		}
	case "command_execution", "file_change", "mcp_tool_call", "web_search":
		d.tool(it, completed)
	}
}

func (d *decoder) tool(it item, completed bool) {
	if it.ID == "" {
		return
	}
	if !d.open[it.ID] && len(d.open) < maxOpenTools {
		d.open[it.ID] = true
		d.emit(cli.Event{Kind: cli.EventToolStart, Tool: it.started(d.dir)})
	}
	if completed && d.open[it.ID] {
		delete(d.open, it.ID)
		d.emit(cli.Event{Kind: cli.EventToolEnd, Tool: it.finished(d.dir)})
	}
}

// started gives the call by the name the CLI's model knows it by.
func (it item) started(dir string) *cli.Tool {
	t := &cli.Tool{ID: it.ID}
	var input any
	switch it.Type {
	case "command_execution":
		t.Name, input = "exec_command", map[string]string{"command": it.Command}
		t.Summary = cli.OneLine(unwrap(it.Command))
	case "file_change":
		paths := make([]string, 0, len(it.Changes))
		for _, c := range it.Changes {
			paths = append(paths, c.Path)
		}
		t.Name, input = "apply_patch", map[string]any{"changes": it.Changes}
		t.Summary = pathsLine(paths, dir)
	case "web_search":
		t.Name, input = "web_search", map[string]string{"query": it.Query}
	default:
		t.Name, input = cli.OneLine(strings.Trim(it.Server+"."+it.Tool, ".")), it.Arguments
	}
	t.Input, _ = json.Marshal(input)
	if t.Summary == "" {
		t.Summary = cli.Summarize(t.Name, t.Input, dir)
	}
	return t
}

// shellCall is how Codex shows a command: by the shell it runs it with.
var shellCall = regexp.MustCompile(`(?s)^\S*/?(?:bash|zsh|sh) -l?c (.+)$`)

// unwrap gives the command without the shell around it.
func unwrap(command string) string {
	m := shellCall.FindStringSubmatch(command)
	if m == nil {
		return command
	}
	inner := m[1]
	for _, quote := range []string{"'", `"`} {
		if len(inner) >= 2 && strings.HasPrefix(inner, quote) && strings.HasSuffix(inner, quote) {
			return inner[1 : len(inner)-1]
		}
	}
	return inner
}

func pathsLine(paths []string, dir string) string {
	for i, p := range paths {
		one, _ := json.Marshal(map[string]string{"path": p})
		paths[i] = cli.Summarize("", one, dir)
	}
	return cli.OneLine(strings.Join(paths, ", "))
}

func (it item) finished(dir string) *cli.Tool {
	t := it.started(dir)
	t.Failed = it.Status == "failed" || it.Status == "declined" || it.ExitCode != nil && *it.ExitCode != 0
	output := it.Output
	if it.Type == "mcp_tool_call" {
		if output = it.Failure.Message; output == "" && len(it.Result) > 0 && string(it.Result) != "null" {
			output = string(it.Result)
		}
	}
	if it.ExitCode != nil && *it.ExitCode != 0 {
		output = fmt.Sprintf("%s\n(status %d)", strings.TrimRight(output, "\n"), *it.ExitCode)
	}
	t.Output = cli.CutMiddle(cli.Clean(output), cli.MaxToolOutput-64)
	return t
}

// outcome is the result of a stream that has ended, nil if it told none: a
// signal or a crash ends it after any line.
func (d *decoder) outcome() *cli.Result {
	switch {
	case d.ended && !d.failed:
		return &cli.Result{FinalText: d.lastText, Usage: d.usage}
	case d.ended || d.lastError != "":
		text := d.lastError
		if text == "" {
			text = "codex failed and gave no reason"
		}
		return &cli.Result{FinalText: d.lastText, Failed: true, Error: text, Hint: advice(text), Usage: d.usage}
	}
	return nil
}

// plainError unpacks a message that is the provider's error body.
func plainError(message string) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
		Detail string `json:"detail"`
	}
	if cli.Decode([]byte(message), &body) {
		switch {
		case body.Error.Message != "":
			message = body.Error.Message
		case body.Detail != "":
			message = body.Detail
		}
	}
	return cli.Clean(strings.TrimSpace(message))
}

// advice is what a person can do about a failure.
func advice(text string) string {
	text = strings.ToLower(text)
	for _, known := range []struct {
		part, hint string
	}{
		{"401", fixLogin},
		{"unauthorized", fixLogin},
		{"not logged in", fixLogin},
		{"api key", fixLogin},
		{"missing environment variable", "set the variable that the model provider in config.toml names"},
		{"429", "the account's limit is used up: wait until it is renewed, then resume"},
		{"usage limit", "the account's limit is used up: wait until it is renewed, then resume"},
		{"quota", "check the balance of the account"},
		{"context window", "the goal needs more context than the model takes: split it"},
		{"500", "the provider has a problem: try again later"},
		{"503", "the provider has a problem: try again later"},
		{"high demand", "the provider has a problem: try again later"},
		{"overloaded", "the provider has a problem: try again later"},
	} {
		if strings.Contains(text, known.part) {
			return known.hint
		}
	}
	return ""
}
