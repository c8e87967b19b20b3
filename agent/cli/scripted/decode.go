package scripted

import (
	"encoding/json"
	"fmt"

	"pulseloop/agent/cli"
	"pulseloop/pulse"
)

// frame is any line of the program, as it is read.
type frame struct {
	Type      string          `json:"type"`
	Subtype   string          `json:"subtype"`
	SessionID string          `json:"session_id"`
	Model     string          `json:"model"`
	Text      string          `json:"text"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	CallID    string          `json:"call_id"`
	Output    string          `json:"output"`
	IsError   bool            `json:"is_error"`
	Error     string          `json:"error"`
	Hint      string          `json:"hint"`
	Used      usage           `json:"usage"` // of a result
	usage                     // of a line that tells nothing else
}

type usage struct {
	Input      cli.Count `json:"input_tokens" yaml:"input"`
	Output     cli.Count `json:"output_tokens" yaml:"output"`
	CacheRead  cli.Count `json:"cache_read_tokens" yaml:"cache_read"`
	CacheWrite cli.Count `json:"cache_write_tokens" yaml:"cache_write"`
	Cost       cli.Money `json:"cost_usd" yaml:"cost"`
}

func (u usage) neutral() pulse.Usage {
	return pulse.Usage{
		InputTokens: int64(u.Input), OutputTokens: int64(u.Output),
		CacheReadTokens: int64(u.CacheRead), CacheWriteTokens: int64(u.CacheWrite), CostMicros: u.Cost.Micros(),
	}
}

type decoder struct {
	dir     string
	emit    func(cli.Event)
	started bool
	open    map[string]bool
	result  *cli.Result
}

// maxOpenTools bounds how many calls without an end are remembered.
const maxOpenTools = 4096

func (d *decoder) line(l cli.Line) {
	var f frame
	if !cli.Decode(l.Text, &f) {
		if l.Cut {
			d.emit(cli.Event{Kind: cli.EventNote, Text: fmt.Sprintf("a line of %d bytes was left out", l.Size)})
		}
		return
	}
	text := cli.Clean(f.Text)
	switch f.Type {
	case "session":
		if !d.started {
			d.started = true
			d.emit(cli.Event{Kind: cli.EventStarted, Conversation: cli.OneLine(f.SessionID), Model: cli.OneLine(f.Model)})
		}
	case "text":
		d.say(cli.EventText, text)
	case "text_delta":
		d.say(cli.EventTextDelta, text)
	case "thought":
		d.say(cli.EventThought, text)
	case "note":
		d.say(cli.EventNote, text)
	case "tool_call":
		d.tool(f)
	case "usage":
		u := f.usage.neutral()
		d.emit(cli.Event{Kind: cli.EventUsage, Usage: &u})
	case "result":
		d.result = &cli.Result{
			FinalText: text, Failed: f.Error != "", Error: cli.Clean(f.Error), Hint: cli.Clean(f.Hint), Usage: f.Used.neutral(),
		}
	}
}

func (d *decoder) say(kind cli.EventKind, text string) {
	if text != "" {
		d.emit(cli.Event{Kind: kind, Text: text})
	}
}

func (d *decoder) tool(f frame) {
	if d.open == nil {
		d.open = map[string]bool{}
	}
	t := &cli.Tool{ID: f.CallID, Name: cli.OneLine(f.Name), Input: f.Arguments}
	switch {
	case f.CallID == "":
	case f.Subtype == "started" && !d.open[f.CallID] && len(d.open) < maxOpenTools:
		d.open[f.CallID] = true
		t.Summary = cli.Summarize(f.Name, f.Arguments, d.dir)
		d.emit(cli.Event{Kind: cli.EventToolStart, Tool: t})
	case (f.Subtype == "ended" || f.Subtype == "completed") && d.open[f.CallID]:
		delete(d.open, f.CallID)
		t.Failed = f.IsError
		t.Output = cli.CutMiddle(cli.Clean(f.Output), cli.MaxToolOutput-64)
		d.emit(cli.Event{Kind: cli.EventToolEnd, Tool: t})
	}
}
